"""What the gateway costs: the same load straight at an upstream, and through gateways.

    python benchmarks/gateway.py                        # starts the product, measures, ends it
    python benchmarks/gateway.py --peers                # LiteLLM's proxy and vllm-router as well
    python benchmarks/gateway.py --product-url http://127.0.0.1:8000/v1

Everything runs on the loopback of one machine, in one run: each round measures every way after
the other, so that a busy moment hits all of them. Numbers of two runs, or of two machines, are
not to be compared; ratios and differences within a run are. Upstream, client and gateway share
the cores, as the CPU columns of `--profile` show. A wrong answer is a failure, never a number.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import peers
from processes import (
    HERE,
    Program,
    StartError,
    busy_seconds,
    client_seconds,
    cpu_seconds,
    free_port,
    measure,
    titles,
)
from report import print_others, print_profile, print_table, verdicts
from upstream import CHUNKS, PACE_S

Numbers: TypeAlias = dict[str, float]

#: Name of a measurement → connections, and whether they stream.
MEASUREMENTS = {
    "unary_1": (1, False),
    "unary_16": (16, False),
    "stream_1": (1, True),
    "stream_64": (64, True),
}
PRODUCT_START_S = 120.0
PEER_START_S = 90.0


@dataclass(frozen=True)
class Way:
    """One way to the upstream: straight, or through a gateway."""

    name: str
    url: str
    key: str = ""
    program: Program | None = None
    version: str = ""
    #: Whether requests bring tools, so that every step over the answer is on.
    tools: bool = False


def start_upstream(stack: ExitStack, scratch: Path, port: int) -> Program:
    """Starts the upstream at that port."""
    command = [sys.executable, str(HERE / "upstream.py"), "--port", str(port)]
    program = stack.enter_context(Program("upstream", command, scratch / "upstream.log"))
    program.wait_for(f"http://127.0.0.1:{port}/v1/models", 10.0, _is_ok)
    return program


def start_product(stack: ExitStack, scratch: Path, upstream_port: int, command: str) -> Way:
    """Starts the product in front of the upstream, with a configuration of its own."""
    port = free_port()
    routes = [
        {"model": name, "adapter": "bench", "target": name}
        for name in ("bench-stream", "bench-unary")
    ]
    provider = {
        "name": "bench",
        "type": "openai_compat",
        "url": f"http://127.0.0.1:{upstream_port}/v1",
        "slots": 256,
    }
    config = scratch / "edge.yaml"
    # JSON is YAML.
    config.write_text(json.dumps({"openai": {"model_routes": routes}, "providers": [provider]}))
    words = [*shlex.split(command), "run", "--config", str(config), "--port", str(port)]
    program = Program(
        "product",
        words,
        scratch / "product.log",
        goodbye=((signal.SIGINT, 45.0), (signal.SIGTERM, 15.0)),
    )
    print("starting the product …", flush=True)
    stack.enter_context(program)
    program.wait_for(f"http://127.0.0.1:{port}/readyz", PRODUCT_START_S, _is_ok)
    return Way("product", f"http://127.0.0.1:{port}/v1", program=program)


def start_peers(stack: ExitStack, scratch: Path, upstream_port: int, cache: Path) -> list[Way]:
    """Installs and starts the other gateways."""
    ways: list[Way] = []
    for start in (peers.litellm, peers.vllm_router):
        program, url, ready, version = start(cache, scratch, upstream_port)
        print(f"starting {program.name} {version} …", flush=True)
        stack.enter_context(program)
        program.wait_for(ready, PEER_START_S, _is_ok)
        ways.append(Way(program.name, url, program=program, version=version))
    return ways


def _is_ok(status: int) -> bool:
    return status == 200


def run_rounds(
    ways: Sequence[Way], upstream: Program, rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """Every measurement of every way, `rounds` times; every other round in reverse order."""
    programs = [upstream, *(way.program for way in ways if way.program)]
    rows: list[dict[str, Any]] = []
    for number in range(rounds):
        for way in ways if number % 2 == 0 else [*reversed(ways)]:
            for name in MEASUREMENTS:
                print(f"\rround {number + 1}/{rounds}: {way.name} {name:<12}", end="", flush=True)
                row: dict[str, Any] = {"round": number, "way": way.name, "measurement": name}
                try:
                    row |= measure_once(way, programs, name, seconds)
                except StartError as error:
                    row["failure"] = str(error)
                    print(f"\n{way.name} {name}: {error}", flush=True)
                rows.append(row)
    print("\r" + " " * 60 + "\r", end="")
    return rows


def measure_once(
    way: Way, programs: Sequence[Program], name: str, seconds: float
) -> dict[str, Any]:
    """One measurement, and who spent CPU time on it; the upstream is the first of `programs`."""
    connections, streams = MEASUREMENTS[name]
    waves = max(1, round(seconds / (CHUNKS * PACE_S))) if streams else 0
    families = [program.family() for program in programs]
    before = [cpu_seconds(family) for family in families]
    client_before, busy_before, begin_s = client_seconds(), busy_seconds(), time.monotonic()
    raw = measure(way.url, way.key, connections, seconds=seconds, waves=waves, tools=way.tools)
    wall_s, busy_s = time.monotonic() - begin_s, busy_seconds() - busy_before
    spent = {"client": client_seconds() - client_before}
    ours_s = spent["client"]
    for program, family, earlier in zip(programs, families, before, strict=True):
        names = titles(family)
        for pid, seconds_now in cpu_seconds(family).items():
            since_s = seconds_now - earlier.get(pid, 0.0)
            ours_s += since_s
            if program is programs[0] or program is way.program:
                key = names.get(pid, program.name)
                spent[key] = spent.get(key, 0.0) + since_s
    return {
        "numbers": of_streams(raw) if streams else of_unary(raw),
        "cpu_s": spent,
        "others_cores": max(0.0, busy_s - ours_s) / wall_s,
    }


def of_unary(raw: dict[str, Any]) -> Numbers:
    """The numbers of a unary measurement."""
    times = sorted(raw["times_s"])
    return {
        "p50_ms": 1e3 * quantile(times, 0.5),
        "p99_ms": 1e3 * quantile(times, 0.99),
        "per_s": raw["answers"] / raw["wall_s"],
    }


def of_streams(raw: dict[str, Any]) -> Numbers:
    """The numbers of a measurement of streams."""
    times = sorted(raw["times_s"])
    return {
        "first_p50_ms": 1e3 * quantile(times, 0.5),
        "first_p99_ms": 1e3 * quantile(times, 0.99),
        "cold_p50_ms": 1e3 * quantile(sorted(raw["cold_s"]), 0.5),
        "gap_ms": 1e3 * raw["longest_gap_s"],
        "per_s": raw["answers"] * CHUNKS / raw["wall_s"],
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which that share lies (nearest rank)."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summarize(rows: list[dict[str, Any]]) -> dict[str, dict[str, Numbers]]:
    """Way → measurement → medians over the rounds, with differences to `direct` of each round."""
    by_key: dict[tuple[str, str], list[Numbers]] = {}
    direct = {
        (row["round"], row["measurement"]): row["numbers"]
        for row in rows
        if row["way"] == "direct" and "numbers" in row
    }
    for row in rows:
        base: Numbers | None = direct.get((row["round"], row["measurement"]))
        if "numbers" not in row or base is None:
            continue
        numbers: Numbers = dict(row["numbers"])
        numbers["ratio"] = numbers["per_s"] / base["per_s"]
        if "p50_ms" in numbers:
            numbers["added_p50_ms"] = numbers["p50_ms"] - base["p50_ms"]
            numbers["added_p99_ms"] = numbers["p99_ms"] - base["p99_ms"]
        by_key.setdefault((row["way"], row["measurement"]), []).append(numbers)
    summary: dict[str, dict[str, Numbers]] = {}
    for (way, measurement), several in by_key.items():
        medians = {key: median(numbers[key] for numbers in several) for key in several[0]}
        summary.setdefault(way, {})[measurement] = medians
    return summary


def arguments() -> argparse.Namespace:
    """The command line."""
    number: Callable[[str], float] = float
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--product-url", help="measure a product that runs already (…/v1)")
    parser.add_argument("--key", default="", help="its bearer token")
    parser.add_argument(
        "--product-command",
        default=str(Path(sys.executable).with_name("iop-edge")),
        help="how to start it (default: %(default)s)",
    )
    parser.add_argument("--no-product", action="store_true", help="leave the product out")
    parser.add_argument("--via", action="append", default=[], metavar="URL", help="any gateway")
    parser.add_argument(
        "--tools", action="store_true", help="measure the product with tools in the requests too"
    )
    parser.add_argument("--peers", action="store_true", help="measure other gateways too")
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".bench", help="for the peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=number, default=3.0, help="of each measurement")
    parser.add_argument("--profile", action="store_true", help="print where CPU time went")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers")
    parser.add_argument("--port", type=int, default=0, help="of the upstream, for --via")
    return parser.parse_args()


def open_ways(options: argparse.Namespace, stack: ExitStack, scratch: Path, port: int) -> list[Way]:
    """Starts what is to be measured in front of the upstream at that port."""
    ways = [Way("direct", f"http://127.0.0.1:{port}/v1")]
    if options.product_url:
        ways.append(Way("product", options.product_url.rstrip("/"), options.key))
    elif not options.no_product:
        ways.append(start_product(stack, scratch, port, options.product_command))
    if options.tools and ways[-1].name == "product":
        ways.append(replace(ways[-1], name="with tools", tools=True))
    ways += [Way(f"via {url}", url.rstrip("/")) for url in options.via]
    if options.peers:
        ways += start_peers(stack, scratch, port, options.cache)
    return ways


def main() -> int:
    """Measures, prints, and tells by its exit code whether all answers were right."""
    options = arguments()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        port = options.port or free_port()
        upstream = start_upstream(stack, scratch, port)
        ways = open_ways(options, stack, scratch, port)
        rows = run_rounds(ways, upstream, options.rounds, options.seconds)
    summary = summarize(rows)
    print_table(summary)
    print_others(rows)
    if options.profile:
        print_profile(rows)
    missed = verdicts(summary.get("product", {}))
    if options.json:
        machine = {"cores": os.cpu_count(), "python": platform.python_version()}
        versions = {way.name: way.version for way in ways if way.version}
        everything = {"machine": machine, "versions": versions, "summary": summary, "rows": rows}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(everything, indent=1) + "\n")
    failed = any("failure" in row for row in rows)
    return 1 if failed or (options.check and missed) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except StartError as failure:
        sys.exit(str(failure))
