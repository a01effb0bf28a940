"""The check of the contract's clauses notices what it is there to notice."""

from __future__ import annotations

import pytest

from tests.clauses import Clause, read_clauses

TWO_CLAUSES = "- **AUTH-1** one\n- **AUTH-2** (planned) two\n"
CITES_BUILT = "@pytest.mark.clause('AUTH-1')\ndef test_one(): pass\n"


def run(pytester: pytest.Pytester, contract: str, tests: str, *arguments: str) -> pytest.RunResult:
    """Run pytest with the plugin on a contract and a file of tests of its own."""
    pytester.makefile(".md", contract=contract)
    pytester.makeini("[pytest]\ncontract = contract.md\ntestpaths = suite\n")
    folder = pytester.mkdir("suite")
    (folder / "test_it.py").write_text(f"import pytest\n{tests}", encoding="utf-8")
    return pytester.runpytest_inprocess(
        "--disable-plugin-autoload", "-p", "tests.clauses", *arguments
    )


def test_reads_id_and_plan() -> None:
    """A clause is a list item that begins with its id, which `(planned)` may follow."""
    text = f"# Title\n{TWO_CLAUSES}- **Note** not one, nor is AUTH-3\n"
    assert read_clauses(text) == [Clause("AUTH-1", False), Clause("AUTH-2", True)]


def test_passes_where_each_built_clause_is_cited(pytester: pytest.Pytester) -> None:
    """A planned clause needs no test."""
    run(pytester, TWO_CLAUSES, CITES_BUILT).assert_outcomes(passed=1)


def test_a_planned_clause_may_be_cited(pytester: pytest.Pytester) -> None:
    """What is proved before it is promised does no harm."""
    tests = "@pytest.mark.clause('AUTH-1', 'AUTH-2')\ndef test_one(): pass\n"
    run(pytester, TWO_CLAUSES, tests).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("contract", "tests", "fault"),
    [
        pytest.param(
            TWO_CLAUSES,
            f"{CITES_BUILT}@pytest.mark.clause('AUTH-9')\ndef test_two(): pass\n",
            "AUTH-9 is no clause, but suite/test_it.py::test_two cites it",
            id="unknown",
        ),
        pytest.param(
            TWO_CLAUSES + "- **AUTH-1** again\n",
            CITES_BUILT,
            "AUTH-1 stands 2 times",
            id="doublet",
        ),
        pytest.param(
            TWO_CLAUSES,
            "def test_one(): pass\n",
            "AUTH-1 is not planned and has no test",
            id="uncovered",
        ),
        pytest.param(
            TWO_CLAUSES,
            f"@pytest.mark.skip\n{CITES_BUILT}",
            "AUTH-1 is not planned and has no test",
            id="covered by a skipped test",
        ),
        pytest.param(
            TWO_CLAUSES,
            "@pytest.mark.clause\ndef test_one(): pass\n",
            "the clause marker names no clause",
            id="marker without an id",
        ),
    ],
)
def test_fails_the_run(pytester: pytest.Pytester, contract: str, tests: str, fault: str) -> None:
    """Each fault ends the run before a test is run, and is named."""
    result = run(pytester, contract, tests)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{fault}*"])
    result.assert_outcomes()


@pytest.mark.parametrize(
    "narrowing",
    [("suite/test_it.py",), ("-k", "two"), ("-m", "not live"), ("--deselect", "suite/x.py")],
    ids=["file", "keyword", "marker", "deselect"],
)
def test_a_narrowed_run_asks_for_no_coverage(
    pytester: pytest.Pytester, narrowing: tuple[str, ...]
) -> None:
    """Who runs one test while working on it is not told about all the others."""
    run(pytester, TWO_CLAUSES, "def test_two(): pass\n", *narrowing).assert_outcomes(passed=1)


@pytest.mark.parametrize("argument", ["suite", "."])
def test_the_whole_folder_by_name_is_a_full_run(pytester: pytest.Pytester, argument: str) -> None:
    """Naming all there is narrows nothing."""
    result = run(pytester, TWO_CLAUSES, "def test_one(): pass\n", argument)
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_report_lists_clauses_with_their_tests(pytester: pytest.Pytester) -> None:
    """`--contract` runs nothing, names each test once and shows what lacks one."""
    tests = (
        "@pytest.mark.clause('AUTH-1')\n@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_one(n): raise AssertionError\n"
    )
    result = run(pytester, TWO_CLAUSES + "- **AUTH-3** three\n", tests, "--contract")
    assert result.ret == pytest.ExitCode.OK
    assert [line for line in result.outlines if line] == [
        "AUTH-1",
        "    suite/test_it.py::test_one",
        "AUTH-2 (planned)",
        "AUTH-3 HAS NO TEST",
        "3 clauses, 2 built, 1 of them with tests",
    ]
