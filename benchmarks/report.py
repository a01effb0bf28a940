"""The results of a benchmark as text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

#: What is printed of each measurement: key, heading, digits after the point.
_COLUMNS = {
    "unary_1": (("p50_ms", "p50 ms", 2), ("p99_ms", "p99 ms", 2), ("added_p50_ms", "added p50", 2),
                ("added_p99_ms", "added p99", 2)),
    "unary_16": (("per_s", "answers/s", 0), ("ratio", "of direct", 3), ("p50_ms", "p50 ms", 2),
                 ("p99_ms", "p99 ms", 2)),
    "stream_1": (("per_s", "chunks/s", 1), ("ratio", "of direct", 3),
                 ("first_p50_ms", "first p50", 1), ("cold_p50_ms", "cold p50", 1),
                 ("gap_ms", "gap ms", 0)),
    "stream_64": (("per_s", "chunks/s", 0), ("ratio", "of direct", 3),
                  ("first_p50_ms", "first p50", 1), ("first_p99_ms", "first p99", 1),
                  ("cold_p50_ms", "cold p50", 1), ("gap_ms", "gap ms", 0)),
}  # fmt: skip
_TITLES = {
    "unary_1": "Whole answers, 1 connection",
    "unary_16": "Whole answers, 16 connections",
    "stream_1": "Paced streams, 1 at a time",
    "stream_64": "Paced streams, 64 at once (cold: the wave before the measured ones)",
}
#: What the product promises: measurement, number, bound, and whether the bound is the greatest.
TARGETS = (
    ("unary_1", "added_p50_ms", 1.5, True),
    ("unary_16", "per_s", 900.0, False),
    ("stream_64", "ratio", 0.97, False),
    ("stream_64", "first_p50_ms", 60.0, True),
)


def print_table(summary: dict[str, dict[str, dict[str, float]]]) -> None:
    """Prints one table a measurement; medians over the rounds."""
    for measurement, columns in _COLUMNS.items():
        print(f"\n{_TITLES[measurement]}")
        rows = [["", *(heading for _, heading, _ in columns)]]
        for way, measured in summary.items():
            numbers = measured.get(measurement, {})
            cells = [_cell(numbers.get(key), digits) for key, _, digits in columns]
            rows.append([way, *cells])
        _print_aligned(rows)


def print_others(rows: Sequence[dict[str, Any]]) -> None:
    """Prints how busy the machine was with anything else: what makes a run worthless."""
    cores = [row["others_cores"] for row in rows if "others_cores" in row]
    if cores:
        print(
            f"\nOther processes kept {median(cores):.2f} cores busy (median; at worst "
            f"{max(cores):.2f}). Above 0.2, measure again when they are done."
        )


def print_profile(rows: Sequence[dict[str, Any]]) -> None:
    """Prints CPU seconds by process, summed over the rounds."""
    spent: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        if "cpu_s" not in row:
            continue
        of_row = spent[row["measurement"], row["way"]]
        for who, seconds in row["cpu_s"].items():
            of_row[who] += seconds
    print("\nCPU seconds with warm-up, all rounds together (processes under 0.05 s left out)")
    for (measurement, way), of_row in spent.items():
        parts = [f"{who} {s:.2f}" for who, s in sorted(of_row.items(), key=lambda i: -i[1])
                 if s >= 0.05]  # fmt: skip
        print(f"  {measurement:<10} {way:<12} {', '.join(parts)}")


def verdicts(product: dict[str, dict[str, float]]) -> int:
    """Prints each target of the product with what was measured; returns how many it misses."""
    missed = 0
    for measurement, key, bound, is_greatest in TARGETS:
        value = product.get(measurement, {}).get(key)
        if value is None:
            continue
        kept = value <= bound if is_greatest else value >= bound
        missed += not kept
        sign = "≤" if is_greatest else "≥"
        word = "kept  " if kept else "MISSED"
        print(f"{word} {measurement} {key} {sign} {bound:g}: {value:.3f}")
    return missed


def _cell(value: float | None, digits: int) -> str:
    return "failed" if value is None else f"{value:,.{digits}f}"


def _print_aligned(rows: list[list[str]]) -> None:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        first, *rest = (
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  " + "  ".join([first, *rest]))
