"""Rows that a method is given are its own: on a real local Ray and in local mode, whatever they were copied from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import twinkle
from tests.remote import components
from twinkle import DeviceMesh
from twinkle.remote.ownership import copied, distinct
from twinkle.remote.parcels import Parcel, opened
from twinkle.remote.pickling import Packed, packed

# A type checker does not see what the decorator adds.
Writer: Any = components.Writer


@pytest.fixture(scope="module", params=["ray", "local"])
def writer(request: pytest.FixtureRequest, local_ray: None) -> Iterator[Any]:
    """One shard that has every row, on Ray or here."""
    twinkle.shutdown()
    if request.param == "ray":
        twinkle.initialize("ray", groups=[{"name": "pair", "ranks": 2, "device_type": "cpu"}])
        yield Writer(device_mesh=DeviceMesh.from_sizes(dp_size=1, pp_size=2), remote_group="pair")
    else:
        twinkle.initialize("local")
        yield Writer()
    twinkle.shutdown()


def numbered(count: int = 2) -> list[dict[str, Any]]:
    return [{"name": at, "ids": [at]} for at in range(count)]


@pytest.mark.parametrize(
    "derived",
    [
        lambda handle: handle.repeat(3),
        lambda handle: handle.expand([3, 3]),
        lambda handle: handle.select([0, 0, 0, 1, 1, 1]),
        lambda handle: handle.concat(handle, handle).select([0, 2, 4, 1, 3, 5]),
    ],
)
def test_copies_of_a_row_are_objects_of_their_own(writer: Any, derived: Callable[[Any], Any]) -> None:
    handle = writer.same(numbered())
    expected = [{"name": at // 3, "ids": [at // 3, at], "at": at} for at in range(6)]
    assert writer.number(derived(handle)) == expected
    assert handle.gather() == numbered()


def test_a_row_in_a_list_twice_or_in_two_arguments_is_two_objects(writer: Any) -> None:
    assert [row["at"] for row in writer.number([numbered(1)[0]] * 3)] == [0, 1, 2]
    row = numbered(1)[0]
    assert [row["at"] for row in writer.number([row, row])] == [0, 1]
    handle = writer.same(numbered())
    assert writer.number_first(handle, handle) == numbered()
    assert writer.number_first(handle, handle.select([1, 0])) == numbered()[::-1]
    found = writer.number_pairs(handle.repeat(2).zip(range(4)))
    assert [(row["name"], row["at"], at) for row, at in found] == [(0, 0, 0), (0, 1, 1), (1, 2, 2), (1, 3, 3)]


def test_gathered_copies_are_objects_of_their_own(writer: Any) -> None:
    handle = writer.same(numbered())
    found = handle.repeat(2).gather()
    found[0]["ids"].append(7)
    assert found[1] == numbered()[0]
    assert handle.gather() == numbered()


@pytest.mark.parametrize("size", [3, 100_000])
@pytest.mark.parametrize("make", [np.ones, torch.ones])
def test_arrays_can_be_written_to_and_what_is_stored_stays(writer: Any, make: Any, size: int) -> None:
    handle = writer.same(make((4, size)))
    for derived, count in ((handle, 4), (handle[1:3], 2), (handle.select([2, 2, 0]), 3)):
        found = writer.less(derived)
        assert (len(found), float(found.sum())) == (count, 0.0)
        found += 1
        mine = derived.gather()
        assert float(mine.sum()) == count * size
        mine -= 1
    assert float(handle.gather().sum()) == 4 * size


@pytest.mark.parametrize("size", [3, 100_000])
def test_arrays_inside_of_rows_can_be_written_to(writer: Any, size: int) -> None:
    frozen = np.ones(size)
    frozen.setflags(write=False)
    handle = writer.same([{"x": np.ones(size)}, {"x": frozen.copy()}])
    for given in (handle, handle.select([1, 1, 0]), [{"x": frozen.copy()}]):
        found = writer.less_each(given)
        assert all(float(row["x"].sum()) == 0 for row in found)
        found[0]["x"] += 1
    mine = handle.gather()
    mine[0]["x"] -= 1
    assert [float(row["x"].sum()) for row in handle] == [size, size]


def test_a_function_may_write_into_the_rows_it_maps(writer: Any) -> None:
    handle = writer.same(np.ones((2, 100_000)))

    def less(row: Any) -> float:
        row -= 1
        return float(row.sum())

    assert handle.map(less).gather() == [0.0, 0.0]
    assert float(handle.gather().sum()) == 200_000


# The parts.


def test_what_cannot_be_changed_is_not_copied() -> None:
    for value in (1, 1.5, "text", b"bytes", None, True, (1, "a"), range(3)):
        assert copied(value) is value
    seen: set[int] = set()
    for rows in ([1, 1, 2], ("a", "a"), range(4)):
        assert distinct(rows, seen) is rows
    given: list[Any] = [{}, {}]
    assert distinct(given, seen) is given
    assert distinct(given, seen) is not given


def test_a_copy_of_a_tensor_keeps_what_it_asks_for_and_not_where_it_came_from() -> None:
    weight = torch.ones(2, requires_grad=True)
    found = copied(weight * 2)
    assert (found.requires_grad, found.is_leaf, found.tolist()) == (True, True, [2.0, 2.0])


def test_a_packed_value_is_looked_into_or_opened_as_ones_own() -> None:
    made = np.arange(1000.0)
    one = Packed({"x": made, "y": [1, "a"]})
    view, own = one.opened(own=False), one.opened()
    assert np.shares_memory(view["x"], made)
    own["x"] -= own["x"]
    assert (made[-1], one.opened()["x"][-1], own["y"]) == (999.0, 999.0, [1, "a"])


def test_what_is_packed_can_be_written_to_when_it_arrives() -> None:
    import pickle

    for size in (2, 1000):
        frozen = np.ones(size)
        frozen.setflags(write=False)
        assert pickle.loads(packed([frozen]))[0].flags.writeable
        assert Packed([frozen]).opened()[0].flags.writeable
        parcel = Parcel([frozen])
        arrived = np.empty(parcel.size, dtype=np.uint8)
        parcel.write(arrived, 0)
        assert opened(arrived, None)[0].flags.writeable
