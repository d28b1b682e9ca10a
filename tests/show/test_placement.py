"""Who sits where, as text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import cases
from twinkle import allocate
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
    assert placement_text({}) == "no groups"
