"""Device groups and nodes: what they accept, how they read back, and what they refuse."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

from twinkle import DeviceGroup, Node
from twinkle.errors import PlacementError


def test_fields_come_in_the_documented_order_and_colocation_by_keyword() -> None:
    group = DeviceGroup("roll", [0, 1], "GPU", "4,5", 2, colocate_with="train")
    assert [field.name for field in dataclasses.fields(DeviceGroup)] == [
        "name",
        "ranks",
        "device_type",
        "visible_devices",
        "gpus_per_worker",
        "colocate_with",
    ]
    assert (group.visible_devices, group.gpus_per_worker, group.colocate_with) == (("4", "5"), 2, "train")
    with pytest.raises(TypeError):
        DeviceGroup("roll", 2, "GPU", None, 1, "train")  # type: ignore[call-arg]


def test_names_of_one_family_make_equal_groups() -> None:
    groups = {DeviceGroup("a", 2, name) for name in ("GPU", "gpu", "cuda", "ppu", "maca")}
    assert len(groups) == 1
    assert DeviceGroup("a", 2, "rocm") != DeviceGroup("a", 2, "cuda")


@pytest.mark.parametrize("ranks", [[0, 1, 2], (0, 1, 2), range(3), np.arange(3), [np.int64(0), 1, 2]])
def test_ranks_are_any_sequence_of_integers(ranks: Any) -> None:
    assert DeviceGroup("a", ranks, "cuda").ranks == (0, 1, 2)


def test_a_count_stays_a_count() -> None:
    group = DeviceGroup("a", np.int32(4), "cuda", gpus_per_worker=2)  # type: ignore[arg-type]
    assert (group.ranks, group.size, group.workers) == (4, 4, 2)
    assert type(group.ranks) is int
    assert DeviceGroup("a", [0, 1, 2], "cuda").size == 3


@pytest.mark.parametrize("visible", ["8,9", " 8, 9 ", [8, "9"], (8, 9), np.array([8, 9])])
def test_visible_devices_read_back_as_strings(visible: Any) -> None:
    assert DeviceGroup("a", 2, "cuda", visible).visible_devices == ("8", "9")


def test_one_visible_device_may_be_one_number() -> None:
    assert DeviceGroup("a", 1, "cuda", 3).visible_devices == ("3",)
    assert DeviceGroup("a", 1, "cuda", "GPU-8932f937").visible_devices == ("GPU-8932f937",)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (("", 2, "cuda"), ["name"]),
        ((3, 2, "cuda"), ["name", "3"]),
        (("a", 0, "cuda"), ["'a'", "ranks", "0"]),
        (("a", -3, "cuda"), ["'a'", "ranks", "-3"]),
        (("a", True, "cuda"), ["'a'", "ranks", "True"]),
        (("a", 2.0, "cuda"), ["'a'", "ranks", "2.0"]),
        (("a", "2", "cuda"), ["'a'", "ranks", "'2'"]),
        (("a", {0, 1}, "cuda"), ["'a'", "ranks"]),
        (("a", [], "cuda"), ["'a'", "empty"]),
        (("a", [0, True], "cuda"), ["'a'", "rank True"]),
        (("a", [0, 1.5], "cuda"), ["'a'", "rank 1.5"]),
        (("a", [0, -1], "cuda"), ["'a'", "rank -1"]),
        (("a", [0, 0], "cuda"), ["'a'", "rank 0", "twice"]),
        (("a", range(2**24 + 1), "cuda"), ["'a'", str(2**24)]),
        (("a", 2, "tpu"), ["'a'", "'tpu'"]),
        (("a", 3, "cuda", None, 2), ["'a'", "3 ranks", "gpus_per_worker=2"]),
        (("a", 2, "cuda", None, True), ["'a'", "gpus_per_worker", "True"]),
        (("a", 2, "cuda", "3,3"), ["'a'", "duplicates"]),
        (("a", 2, "cuda", "3,,4"), ["'a'", "''"]),
        (("a", 2, "cuda", "-1"), ["'a'", "'-1'"]),
        (("a", 2, "cuda", [-1]), ["'a'", "-1"]),
        (("a", 2, "cuda", []), ["'a'", "empty"]),
        (("a", 2, "cuda", "GPU-"), ["'a'", "'GPU-'"]),
        (("a", 2, "npu", "GPU-a"), ["'a'", "ASCEND_RT_VISIBLE_DEVICES takes integer ids only"]),
        (("c", 2, "cpu", "0"), ["'c'", "CPU"]),
        (("c", 2, "cpu", None, 2), ["'c'", "gpus_per_worker=2"]),
        (("c", [0, 1], "cpu"), ["'c'", "positive integer"]),
    ],
)
def test_what_makes_no_group_is_refused_by_name_and_value(fields: tuple[Any, ...], words: list[str]) -> None:
    with pytest.raises(PlacementError) as refusal:
        DeviceGroup(*fields)
    for word in words:
        assert word in str(refusal.value)


def test_a_group_is_a_value() -> None:
    group = DeviceGroup("a", [3, 1], "npu", [5, 7], colocate_with="b")
    for twin in (pickle.loads(pickle.dumps(group)), copy.deepcopy(group), dataclasses.replace(group)):
        assert twin == group
        assert hash(twin) == hash(group)
    assert dataclasses.replace(group, ranks=2).ranks == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        group.name = "c"  # type: ignore[misc]


def test_the_repr_is_one_short_line_at_any_size() -> None:
    assert repr(DeviceGroup("a", 8, "GPU")) == "DeviceGroup('a', ranks=8, device_type='cuda')"
    long = repr(DeviceGroup("a", range(4096), "npu", gpus_per_worker=4, colocate_with="b"))
    assert len(long) < 200
    assert "\n" not in long
    assert "4096" in long


def test_a_node_keeps_ids_as_strings() -> None:
    node = Node("n0", "GPU", [0, "1", "GPU-a"], 4)
    assert (node.family, node.devices, node.cpus) == ("cuda", ("0", "1", "GPU-a"), 4)
    assert dict(node.slots()) == {0: "0", 1: "1", 2: "GPU-a"}
    granted = Node("n0", "cuda", {3: 9})
    assert granted.devices == {3: "9"}
    assert hash(granted) == hash(Node("n0", "GPU", {3: "9"}))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (("", "cuda"), ["id"]),
        (("n", "cuda", "0,1"), ["'n'", "'0,1'"]),
        (("n", "cuda", [0, 0]), ["'n'", "device 0", "twice"]),
        (("n", "cuda", ["a,b"]), ["'n'", "'a,b'"]),
        (("n", "cuda", {-1: 0}), ["'n'", "slot", "-1"]),
        (("n", "cpu", [0]), ["'n'", "cpu"]),
        (("n", "cuda", [0], -1), ["'n'", "cpus", "-1"]),
        (("n", "gpus"), ["'n'", "'gpus'"]),
    ],
)
def test_what_makes_no_node_is_refused(fields: tuple[Any, ...], words: list[str]) -> None:
    with pytest.raises(PlacementError) as refusal:
        Node(*fields)
    for word in words:
        assert word in str(refusal.value)


def test_the_text_of_a_group_shows_its_workers_and_what_they_ask_for() -> None:
    group = DeviceGroup("actor", 8, "GPU", gpus_per_worker=2)
    heading, row = str(group).splitlines()
    assert heading.split() == ["group", "node", "workers", "devices"]
    assert row.split("  ")[0] == "actor, cuda (4 workers)"
    assert "not placed" in row
    assert "0-3" in row
    assert row.endswith("2 of the node")
