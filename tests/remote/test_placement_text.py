"""Who sits where, on paper."""

from __future__ import annotations

import pytest

from twinkle import DeviceGroup, get_device_placement
from twinkle.errors import PlacementError


def test_groups_are_placed_on_nodes_of_eight_devices() -> None:
    groups = [
        DeviceGroup("train", 8, "GPU"),
        DeviceGroup("infer", 4, "GPU", gpus_per_worker=2),
        DeviceGroup("c", 3, "cpu"),
    ]
    assert get_device_placement(groups).splitlines() == [
        "train: 8 workers, cuda",
        "  node 0 of cuda",
        *(f"    worker {worker}: {worker}" for worker in range(8)),
        "infer: 2 workers, cuda",
        "  node 1 of cuda",
        "    worker 0: 0, 1",
        "    worker 1: 2, 3",
        "c: 3 workers, cpu",
        "  node 0 of cuda",
        "    workers 0..2: no devices",
    ]


def test_what_cannot_be_placed_is_refused() -> None:
    with pytest.raises(PlacementError, match="rank 1 already used by group 'a'"):
        get_device_placement([DeviceGroup("a", [0, 1], "npu"), DeviceGroup("b", [1], "npu")])


def test_named_devices_and_no_groups() -> None:
    assert "worker 1: 9" in get_device_placement([DeviceGroup("a", 2, "GPU", visible_devices="8,9")])
    assert get_device_placement([]) == "no device groups"
