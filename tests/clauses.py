"""Pytest plugin: the contract's clauses and the tests that prove them stay in step.

1. A test names the clauses it proves with `@pytest.mark.clause("CHAT-1", …)`.
2. The run fails where a test names a clause that the contract does not have, and where an id
   stands twice in the contract.
3. A full run also fails where a clause that is not `(planned)` has no test. A full run is one that
   collects the whole test folder and narrows nothing.
4. A test may name a planned clause: it is then proved before it is promised.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

CLAUSE = re.compile(r"^- \*\*(?P<id>[A-Z]+-\d+)\*\*(?P<planned> \(planned\))?(?= )", re.MULTILINE)
REPORT = pytest.StashKey[list[str]]()


@dataclass(frozen=True, slots=True)
class Clause:
    """One numbered promise of the contract."""

    id: str
    planned: bool


def read_clauses(text: str) -> list[Clause]:
    """Every clause of the contract, in the order of the document, doublets included."""
    return [Clause(found["id"], bool(found["planned"])) for found in CLAUSE.finditer(text)]


def find_faults(
    clauses: Sequence[Clause], cited: dict[str, list[str]], *, full_run: bool
) -> list[str]:
    """What is wrong between the contract and the tests, one line a fault.

    Args:
        clauses: All clauses of the contract.
        cited: Clause id → names of the tests that cite it.
        full_run: Whether all tests there are were collected.
    """
    ids = [clause.id for clause in clauses]
    faults = [
        f"{name} stands {ids.count(name)} times"
        for name in dict.fromkeys(ids)
        if ids.count(name) > 1
    ]
    faults += [
        f"{name} is no clause, but {tests[0]} cites it"
        for name, tests in cited.items()
        if name not in ids
    ]
    if full_run:
        faults += [
            f"{clause.id} is not planned and has no test"
            for clause in clauses
            if not clause.planned and clause.id not in cited
        ]
    return faults


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--contract`, and the setting that says where the contract is."""
    parser.addoption(
        "--contract", action="store_true", help="print each clause with its tests, and run none"
    )
    parser.addini(
        "contract",
        "path of the contract, from the root folder",
        default="docs/openai-compatible-api-contract.md",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let `--contract` collect quietly and run nothing."""
    config.addinivalue_line("markers", "clause(*ids): the clauses that a test proves.")
    if config.getoption("--contract"):
        config.option.collectonly = True
        config.option.verbose = -2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Compare tests and contract, before anything is deselected."""
    document = config.rootpath / str(config.getini("contract"))
    clauses = read_clauses(document.read_text(encoding="utf-8"))
    cited: dict[str, list[str]] = defaultdict(list)
    for item in items:
        for name in _clauses_of(item):
            cited[name].append(item.nodeid)
    full_run = not config.getoption("--contract") and _is_full_run(session)
    faults = find_faults(clauses, cited, full_run=full_run)
    if faults:
        raise pytest.UsageError("\n".join(f"{document.name}: {fault}" for fault in faults))
    if config.getoption("--contract"):
        config.stash[REPORT] = list(_report(clauses, cited))
        items.clear()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the report of `--contract`."""
    for line in config.stash.get(REPORT, list[str]()):
        terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a report that ran no test be a success."""
    if REPORT in session.config.stash:
        session.exitstatus = pytest.ExitCode.OK


def _clauses_of(item: pytest.Item) -> Iterator[str]:
    """Ids that a test cites; one that is skipped whatever happens proves nothing."""
    if item.get_closest_marker("skip") is not None:
        return
    for marker in item.iter_markers("clause"):
        if not marker.args:
            raise pytest.UsageError(f"{item.nodeid}: the clause marker names no clause")
        yield from map(str, marker.args)


def _is_full_run(session: pytest.Session) -> bool:
    """Whether the whole test folder was collected, with nothing narrowed or left out."""
    config = session.config
    options = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")
    if any(getattr(config.option, name, None) for name in options) or session.testsfailed:
        return False
    folders = {config.rootpath / str(path) for path in config.getini("testpaths")}
    wanted = {Path(config.invocation_params.dir, argument) for argument in config.args}
    return folders <= wanted or config.rootpath in wanted


def _report(clauses: Sequence[Clause], cited: dict[str, list[str]]) -> Iterator[str]:
    for clause in clauses:
        tests = list(dict.fromkeys(name.split("[")[0] for name in cited.get(clause.id, [])))
        note = " (planned)" if clause.planned else "" if tests else " HAS NO TEST"
        yield f"{clause.id}{note}"
        yield from (f"    {name}" for name in tests)
    built = [clause for clause in clauses if not clause.planned]
    proved = [clause for clause in built if clause.id in cited]
    yield f"{len(clauses)} clauses, {len(built)} built, {len(proved)} of them with tests"
