"""Turns what the benches measured into one Markdown table of ratios: every other side beside twinkle.

    python benches/ratios.py [--write] PYTEST_BENCHMARK.json CRITERION_FOLDER

Prints the table; with `--write` also puts it between the markers of `benches/README.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections import defaultdict
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parent / "README.md"
BEGIN, END = "<!-- ratios: written by `make bench` -->", "<!-- /ratios -->"
BASELINE = "twinkle"

# For each "<question>, <size>": the median of each side in seconds.
Groups = dict[str, dict[str, float]]


def from_pytest(report: dict[str, Any]) -> Groups:
    """The medians of a report that `pytest --benchmark-json` wrote."""
    groups: Groups = defaultdict(dict)
    for bench in report["benchmarks"]:
        told = bench["extra_info"]
        # Sides that were measured in turns are in one bench.
        groups[bench["group"]] |= told.get("medians") or {told["side"]: bench["stats"]["median"]}
    return groups


def from_criterion(folder: Path) -> Groups:
    """The medians of the newest run below a `target/criterion` folder: group, side and size by criterion's names."""
    groups: Groups = defaultdict(dict)
    for path in sorted(folder.rglob("new/benchmark.json")):
        names = json.loads(path.read_text(encoding="utf-8"))
        estimates = json.loads(path.with_name("estimates.json").read_text(encoding="utf-8"))
        group = ", ".join(filter(None, (names["group_id"], names["value_str"])))
        groups[group][names["function_id"] or BASELINE] = estimates["median"]["point_estimate"] / 1e9
    return groups


def readable(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def table(groups: Groups) -> str:
    """One row for each other side of each group; a group without twinkle is a mistake in a bench."""
    rows = ["| question, size | twinkle | beside | takes | times twinkle |", "|---|---:|---|---:|---:|"]
    for group, sides in groups.items():
        if BASELINE not in sides:
            raise SystemExit(f"no side {BASELINE!r} in the group {group!r}, only {', '.join(sorted(sides))}")
        own = sides[BASELINE]
        others = [(side, seconds) for side, seconds in sides.items() if side != BASELINE]
        for side, seconds in others:
            rows.append(f"| {group} | {readable(own)} | {side} | {readable(seconds)} | {seconds / own:.3g} |")
        if not others:
            rows.append(f"| {group} | {readable(own)} | | | |")
    return "\n".join(rows)


def machine(report: dict[str, Any]) -> str:
    """What the figures were measured on."""
    cpu = report.get("machine_info", {}).get("cpu", {}).get("brand_raw", platform.machine())
    return f"Measured on {os.cpu_count()} cores of {cpu}, {platform.system()}, Python {platform.python_version()}."


def insert(document: str, text: str) -> str:
    """The document with everything between the two markers replaced."""
    head, begin, rest = document.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{README} has no markers {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"put the table into {README.name}")
    parser.add_argument("pytest_report", type=Path)
    parser.add_argument("criterion_folder", type=Path)
    options = parser.parse_args()
    report = json.loads(options.pytest_report.read_text(encoding="utf-8"))
    parts = [machine(report), "### Through Python", table(from_pytest(report))]
    if core := from_criterion(options.criterion_folder):
        parts += ["### The core alone", table(core)]
    text = "\n\n".join(parts)
    print(text)
    if options.write:
        README.write_text(insert(README.read_text(encoding="utf-8"), text), encoding="utf-8")


if __name__ == "__main__":
    main()
