"""The order of nodes and bundles: numbers compare as numbers, and every caller gets the same order."""

from __future__ import annotations

import random
from typing import Any

import pytest

from twinkle.errors import PlacementError
from twinkle.platform import bundle_order, node_order


@pytest.mark.parametrize(
    "ordered",
    [
        [f"10.0.0.{last}" for last in (*range(2, 10), *range(66, 74))],
        ["10.0.0.9", "10.0.1.1", "192.168.0.1"],
        ["node7", "node8", "node66", "node70"],
        ["node007", "node008", "node066"],
        ["a2b9c", "a2b10", "a10b1"],
        ["n", "n1", "n1a", "nb"],
        ["fe80::2", "fe80::10"],
        ["10.0.0.10", "10.0.0.x"],
    ],
)
def test_nodes_are_ordered_by_the_numbers_in_them(ordered: list[str]) -> None:
    shuffled = list(ordered)
    random.Random(3).shuffle(shuffled)
    assert node_order(shuffled) == tuple(ordered)


def test_labels_count_when_they_are_complete_and_unique() -> None:
    nodes = ["n1", "n2", "n3"]
    assert node_order(nodes, {"n1": 2, "n2": 0, "n3": 1}) == ("n2", "n3", "n1")
    assert node_order(nodes, {"n1": 2, "n2": 0}) == ("n1", "n2", "n3")
    assert node_order(nodes, {"n1": 1, "n2": 1, "n3": 0}) == ("n1", "n2", "n3")


def test_bundles_that_land_here_and_there_are_ordered_by_node_and_device() -> None:
    # One bundle, then eight on the other node, then seven more on the first.
    bundles = [("n1", 0), *(("n2", device) for device in range(8)), *(("n1", device) for device in range(1, 8))]
    assert bundle_order(bundles) == (0, *range(9, 16), *range(1, 9))
    assert bundle_order(bundles, ["n2", "n1"]) == (*range(1, 9), 0, *range(9, 16))


def test_device_ten_comes_after_device_two() -> None:
    assert bundle_order([("n", "10"), ("n", "2"), ("n", "GPU-b"), ("n", "GPU-a")]) == (1, 0, 3, 2)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: node_order(["a", "a"]), "'a' is listed twice"),
        (lambda: node_order(["a", 3]), "3"),  # type: ignore[list-item]
        (lambda: node_order(["a"], {"a": -1}), "-1"),
        (lambda: bundle_order([("a", 0)], ["b"]), "'a'"),
        (lambda: bundle_order(["a0"]), "'a0'"),  # type: ignore[list-item]
    ],
)
def test_names_that_are_none_are_refused(call: Any, word: str) -> None:
    with pytest.raises(PlacementError, match=word):
        call()
