"""Who sits where, as text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import cases
from twinkle import allocate, get_device_placement
from twinkle.show.placement import placement_text
from twinkle.show.table import display_width

PLACED = [case for case in cases("allocate") if "expect" in case]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("case", PLACED, ids=lambda case: case["id"])
def test_every_worker_s_devices_are_there_and_nothing_is_too_wide(case: dict[str, Any], width: int) -> None:
    keys = ("groups", "nproc_per_node", "nodes", "ncpu_proc_per_node")
    placed = allocate(**{key: case[key] for key in keys if key in case})
    text = placement_text(placed, width=width)
    assert all(display_width(line) <= width for line in text.splitlines())
    words = "".join(text.split())
    for name, workers in placed.items():
        assert "".join(name.split()) in words
        for worker in workers:
            assert worker.node in text
            assert ",".join(worker.devices) in words


def test_chinese_names_and_long_device_ids_keep_the_columns() -> None:
    nodes = [{"id": "机架一", "family": "GPU", "devices": [f"GPU-{number:032d}" for number in range(4)], "cpus": 8}]
    groups = [
        {"name": "训练" * 20, "ranks": 2, "device_type": "GPU", "gpus_per_worker": 2},
        {"name": "rollout", "ranks": 1, "device_type": "GPU"},
    ]
    text = placement_text(allocate(groups, 4, nodes), width=80)
    assert all(display_width(line) <= 80 for line in text.splitlines())
    assert "".join(line[: line.find("  ")] for line in text.splitlines()[1:]).count("训练") == 20


def test_no_groups_are_said_to_be_none() -> None:
    assert placement_text({}) == "no device groups"
    assert get_device_placement([]) == "no device groups"


def test_groups_on_paper_show_what_they_ask_for() -> None:
    text = get_device_placement(
        [
            {"name": "训练" * 15, "ranks": 8, "device_type": "GPU", "gpus_per_worker": 2},
            {"name": "rollout", "ranks": 8, "device_type": "GPU", "colocate_with": "训练" * 15},
            {"name": "scorer", "ranks": 2, "device_type": "NPU", "visible_devices": "6,7"},
            {"name": "reward", "ranks": 3, "device_type": "CPU"},
        ]
    )
    lines = text.splitlines()
    assert all(display_width(line) <= 80 for line in lines)
    assert "".join(text.split()).count("训练" * 15) >= 1
    assert next(line for line in lines if line.startswith("scorer")).split("  ")[-1] == "of 6, 7"
    assert next(line for line in lines if line.startswith("reward")).split("  ")[-1] == "none"
    assert sum("not placed" in line for line in lines) == 4
