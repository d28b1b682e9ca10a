"""The table of ratios: other sides divided by twinkle, from the reports that both bench runners write."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def load() -> Any:
    """`benches/ratios.py`, which is a program and not part of a package."""
    spec = importlib.util.spec_from_file_location("ratios", ROOT / "benches" / "ratios.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ratios = load()


def bench(group: str, side: str, median: float) -> dict[str, Any]:
    return {"group": group, "extra_info": {"side": side}, "stats": {"median": median}}


def test_each_other_side_is_a_multiple_of_twinkle() -> None:
    report = {"benchmarks": [bench("g, 8 ranks", "NumPy", 3e-6), bench("g, 8 ranks", "twinkle", 1.5e-6)]}
    assert ratios.table(ratios.from_pytest(report)).splitlines()[2:] == ["| g, 8 ranks | 1.5 µs | NumPy | 3 µs | 2 |"]


def test_sides_that_one_bench_measures_in_turns_are_sides_as_any_other() -> None:
    report = {"benchmarks": [bench("g", "twinkle", 9.0)]}
    report["benchmarks"][0]["extra_info"]["medians"] = {"by hand": 3e-6, "twinkle": 1.5e-6}
    assert ratios.table(ratios.from_pytest(report)).splitlines()[2:] == ["| g | 1.5 µs | by hand | 3 µs | 2 |"]


def test_a_question_without_another_side_has_a_row_of_its_own() -> None:
    assert ratios.table({"g": {"twinkle": 2e-9}}).splitlines()[2:] == ["| g | 2 ns | | | |"]


def test_a_question_without_twinkle_is_refused() -> None:
    with pytest.raises(SystemExit, match="no side 'twinkle' in the group 'g', only NumPy"):
        ratios.table({"g": {"NumPy": 1.0}})


def test_criterion_reports_read_as_question_size_and_side(tmp_path: Path) -> None:
    for side, nanoseconds in (("twinkle", 5.0), ("search in a table", 500.0)):
        folder = tmp_path / "coordinate" / side / "8" / "new"
        folder.mkdir(parents=True)
        names = {"group_id": "coordinate", "function_id": side, "value_str": "8"}
        (folder / "benchmark.json").write_text(json.dumps(names))
        (folder / "estimates.json").write_text(json.dumps({"median": {"point_estimate": nanoseconds}}))
    rows = ratios.table(ratios.from_criterion(tmp_path)).splitlines()[2:]
    assert rows == ["| coordinate, 8 | 5 ns | search in a table | 500 ns | 100 |"]


def test_only_what_is_between_the_markers_is_replaced() -> None:
    document = f"before\n{ratios.BEGIN}\nold\n{ratios.END}\nafter\n"
    assert ratios.insert(document, "new") == f"before\n{ratios.BEGIN}\n\nnew\n\n{ratios.END}\nafter\n"
    assert ratios.insert(ratios.README.read_text(encoding="utf-8"), "new")
    with pytest.raises(SystemExit, match="no markers"):
        ratios.insert("nothing", "new")
