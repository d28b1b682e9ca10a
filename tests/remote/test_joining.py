"""Joined handles: the rows of many calls as one row argument, on any meshes, and by what law."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.remote import components
from tests.remote.inline import InlineGroup, component, inline_ray
from tests.remote.test_laws import listed, meshes
from twinkle import DeviceMesh, Rows, Same, Sharded
from twinkle.errors import PlanError
from twinkle.remote import rows as row_tools
from twinkle.remote import traffic

# A type checker does not see what the decorator adds.
Echo: Any = components.Echo

KINDS: dict[str, Any] = {
    "list": lambda at: [{"id": row, "text": "ab"[row % 2] * (row % 5)} for row in at],
    "tuple": lambda at: tuple(f"row {row}" for row in at),
    "array": lambda at: np.array(at) * 1.5,
    "wide": lambda at: np.stack([np.array(at), np.array(at) + 1], axis=1),
}


@pytest.fixture(autouse=True)
def _inline() -> Iterator[None]:
    with inline_ray():
        yield


def sampler(**sizes: int) -> Any:
    return component(Echo, DeviceMesh.from_axes(sizes))


def numbers(count: int, start: int = 0) -> Sharded:
    made: Sharded = sampler(dp=2).same(list(range(start, start + count)))
    return made


@st.composite
def renumbered(draw: Any, handle: Any, plain: list[Any]) -> tuple[Any, list[Any]]:
    """A handle after a few steps of its algebra, and a plain list after the same."""
    for _ in range(draw(st.integers(0, 2))):
        step, n = draw(st.sampled_from(["select", "repeat", "expand", "slice", "minibatch"])), len(plain)
        if step == "select" and n:
            order = draw(st.lists(st.integers(0, n - 1), max_size=12))
            handle, plain = handle.select(order), [plain[at] for at in order]
        elif step == "repeat" and n < 30:
            handle, plain = handle.repeat(2), [row for row in plain for _ in range(2)]
        elif step == "expand" and n < 30:
            counts = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
            handle, plain = handle.expand(counts), [row for row, c in zip(plain, counts, strict=True) for _ in range(c)]
        elif step == "slice":
            start, stop = sorted((draw(st.integers(0, n)), draw(st.integers(0, n))))
            handle, plain = handle[start:stop], plain[start:stop]
        elif step == "minibatch":
            handle, plain = handle.minibatch(0, 2), plain[: (n + 1) // 2]
    return handle, plain


@st.composite
def joins(draw: Any) -> tuple[list[Any], list[Any], str]:
    """Up to four handles of one kind of rows, from components of their own, and their rows in plain lists."""
    kind, first = draw(st.sampled_from(sorted(KINDS))), 0
    handles, plain = [], []
    for _ in range(draw(st.integers(1, 4))):
        mesh = draw(meshes())
        n = mesh.data_world_size + draw(st.integers(0, 5))
        rows = KINDS[kind](range(first, first + n))
        first += n
        made = component(Echo, mesh).anywhere(rows)
        handle, expected = draw(renumbered(made, listed(rows)))
        handles.append(handle)
        plain += expected
    return handles, plain, kind


@given(parts=joins(), target=meshes(), data=st.data())
def test_what_a_call_on_joined_handles_returns_is_what_a_local_call_on_the_rows_returns(
    parts: Any, target: DeviceMesh, data: Any
) -> None:
    handles, plain, kind = parts
    whole, expected = data.draw(renumbered(handles[0].concat(*handles[1:]), plain))
    assert len(whole) == len(expected)
    assert listed(whole.gather()) == expected
    if kind in ("list", "tuple") and expected:
        assert whole.lengths == row_tools.lengths(expected)
        assert whole.map(str).gather() == [str(row) for row in expected]
    traffic.reset()
    if len(expected) >= target.data_world_size:
        taken = component(Echo, target).same(whole)
        # No two stored rows are alike here, and a worker fetches each that it needs once, and no other.
        shares = target.slices(len(expected)).tolist()
        needed = sum(len({repr(row) for row in expected[start:stop]}) for start, stop in shares)
        assert traffic.moved_rows == needed * (target.world_size // target.data_world_size)
        assert traffic.driver_rows == 0
        assert listed(taken.gather()) == expected
    if len(plain) >= target.data_world_size:
        echo = component(Echo, target)
        for given_rows in (handles, tuple(handles), Rows(handles), [handles]):
            traffic.reset()
            taken = echo.same(given_rows)
            assert traffic.driver_rows == 0
            assert listed(taken.gather()) == plain


@given(parts=st.lists(st.integers(0, 3), min_size=1, max_size=4), target=meshes())
def test_pads_may_repeat_rows_of_another_part(parts: list[int], target: DeviceMesh) -> None:
    first, rows, handles = 0, [], []
    for count in parts:
        made = [{"id": at, "labels": [at]} for at in range(first, first + 2)]
        handles.append(sampler(dp=2).same(made)[:count])
        rows += made[:count]
        first += 2
    if not rows:
        return
    echo = component(Echo, target)
    assert [(row["id"], row["labels"]) for row in echo.padded(handles)] == [(row["id"], row["labels"]) for row in rows]
    assert echo.padded_seen(handles) == echo.padded_seen(rows)


def test_rollouts_of_several_steps_are_one_training_batch() -> None:
    policy, actor = sampler(dp=4), sampler(pp=2, dp=2, tp=2)
    samples, rewards, expected = [], [], []
    for step in range(3):
        prompts = [f"prompt {step}.{at}" for at in range(5)]
        rollouts = policy.same(prompts).repeat(2)
        kept = rollouts.select([at for at in range(len(rollouts)) if at % 5 != step])
        samples.append(kept)
        rewards += [float(step)] * len(kept)
        expected += [prompts[at // 2] for at in range(10) if at % 5 != step]
    traffic.reset()
    seen = actor.two(samples, rewards)
    assert [rows for rows, _, _ in seen[:3]] == [expected[:12], expected[:12], expected[12:]]
    assert [scores for _, scores, _ in seen[:3]] == [[0.0] * 8 + [1.0] * 4] * 2 + [[1.0] * 4 + [2.0] * 8]
    assert traffic.driver_rows == len(rewards)


def test_lists_of_handles_are_rows_in_columns_too() -> None:
    one, two = numbers(3), numbers(2, 3)
    rows = {"ids": [one, two], "more": {"texts": list("abcde")}}
    for seen in (sampler(dp=2).two(rows)[1][0], sampler(dp=2).rows_seen(Rows(rows))[1][0]):
        assert seen == {"ids": [3, 4], "more": {"texts": ["d", "e"]}}


def test_a_list_of_handles_that_is_not_cut_stays_a_list() -> None:
    one, two = numbers(3), numbers(2, 3)
    ((rows,), _), *_ = sampler(dp=2).everything([one, two])
    assert rows == [[0, 1, 2], [3, 4]]
    _, rest, _ = sampler(dp=1).rows_seen([1], Same([one, two]))[0]
    assert rest == ([[0, 1, 2], [3, 4]],)


def test_a_join_is_a_handle_with_the_same_algebra() -> None:
    whole = numbers(3).concat(numbers(2, 3), numbers(4, 5)).concat(numbers(2, 9))
    assert repr(whole) == "<Sharded rows: 11 rows over 8 shards>"
    assert whole.gather() == list(whole) == list(range(11))
    assert (whole[4], whole[-1], whole[2:5].gather()) == (4, 10, [2, 3, 4])
    assert [len(whole.minibatch(at, 3)) for at in range(3)] == [4, 4, 3]
    assert whole.zip(range(11)).select([10, 0]).gather() == [(10, 10), (0, 0)]
    assert whole.concat(whole)[8:14].gather() == [8, 9, 10, 0, 1, 2]
    # A piece that two parts read is one piece, and one that nobody reads is let go.
    assert len(whole.concat(whole).pieces) == 8
    assert len(whole[:3].concat(whole[1:2]).pieces) == 2


def test_a_function_is_applied_to_the_rows_of_the_handle_alone_and_once_to_each() -> None:
    group = InlineGroup(2)
    echo = component(Echo, DeviceMesh.from_axes({"dp": 2}), group=group)
    made = echo.same([0, 1, 2, 3]).concat(echo.same([5, 4, 0]))
    assert made.select([6, 1, 2, 2, 5]).map(lambda row: 60 // row if row else None).gather() == [None, 60, 30, 30, 15]
    assert made[1:6].map(lambda row: 60 // row).repeat(2)[2:8].gather() == [30, 30, 20, 20, 12, 12]
    mapped = [[cut for name, args in host.asked if name == "mapped" for cut in args[2]] for host in group.hosts]
    assert mapped == [[(1, 2), (1, 2), (1, 2), (0, 2)], [(0, 1), (0, 1), (0, 2)]]
    assert made[:0].map(str).gather() == []


def test_parts_without_rows_count_for_nothing() -> None:
    nothing = numbers(3)[:0]
    assert nothing.concat(nothing).gather() == []
    assert sampler(dp=1).may_be_empty([nothing, nothing]) == []
    for none in ([nothing, nothing], []):
        with pytest.raises(PlanError, match="same: 0 rows"):
            sampler(dp=1).same(none)
    arrays = sampler(dp=2).same(np.arange(4))
    np.testing.assert_array_equal(nothing.concat(arrays, nothing).gather(), np.arange(4))
    np.testing.assert_array_equal(sampler(dp=3).pulled([nothing, arrays]), np.arange(4))


def test_rows_of_other_widths_are_widened_where_they_meet() -> None:
    narrow, wide = sampler(dp=2).same(np.ones((2, 2))), sampler(dp=2).same(np.ones((2, 3)))
    expected = row_tools.join([np.ones((2, 2)), np.ones((2, 3))])
    np.testing.assert_array_equal(narrow.concat(wide).gather(), expected)
    np.testing.assert_array_equal(sampler(dp=3).same([narrow, wide]).gather(), expected)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (np.arange(4.0), "list; ndarray of float64 with 1 dimensions"),
        ((1, 2), "list; tuple"),
    ],
)
def test_rows_of_other_types_are_refused_before_anything_is_sent(other: Any, words: str) -> None:
    with pytest.raises(PlanError, match=f"handles of different rows cannot be joined: {words}; map them"):
        numbers(3).concat(sampler(dp=2).same(other))


def test_arrays_of_other_dtypes_or_dimensions_are_refused() -> None:
    whole, half, flat = np.ones((2, 2), np.int64), np.ones((2, 2), np.float32), np.ones(2, np.int64)
    made = [sampler(dp=2).same(rows) for rows in (whole, half, flat)]
    with pytest.raises(PlanError, match="int64 with 2 dimensions; ndarray of float32 with 2 dimensions"):
        sampler(dp=1).same(made[:2])
    with pytest.raises(PlanError, match="int64 with 2 dimensions; ndarray of int64 with 1 dimensions"):
        made[0].concat(made[2])


def test_zips_are_joined_column_by_column() -> None:
    one, two = numbers(3).zip(["abc"] * 3, numbers(3, 10)), numbers(2, 3).zip([1, 2], numbers(2, 20))
    expected = [(0, "abc", 10), (1, "abc", 11), (2, "abc", 12), (3, 1, 20), (4, 2, 21)]
    assert one.concat(two).gather() == expected
    assert sampler(dp=2).same([one, two]).gather() == expected
    with pytest.raises(PlanError, match="they are not tuples of equally many parts"):
        one.concat(numbers(2))
    with pytest.raises(PlanError, match="they are not tuples of equally many parts"):
        one.concat(numbers(2).zip([1, 2]))
    with pytest.raises(PlanError, match="part 1 of the zips is handle and list: rows that are here"):
        one.concat(numbers(2).zip(numbers(2), numbers(2)))


def test_what_is_no_handle_is_not_joined() -> None:
    with pytest.raises(PlanError, match="a list cannot be joined to a handle"):
        numbers(3).concat([1, 2])
    with pytest.raises(PlanError, match=r"rows is a list of 1 handles and 2 other items; a list of handles alone"):
        sampler(dp=2).same([numbers(3), [1, 2], 3])


def test_rows_of_this_process_are_not_joined_to_those_of_workers() -> None:
    import twinkle

    twinkle.initialize("local")
    try:
        here = Echo().same([1, 2])
        assert here.concat(here, here[:1]).gather() == [1, 2, 1, 2, 1]
        assert here.concat(here).local == [1, 2]
        assert Echo().pulled([here, here[1:]]) == [1, 2, 2]
        with pytest.raises(PlanError, match="this process keeps and rows that workers keep cannot be joined"):
            here.concat(numbers(3))
    finally:
        twinkle.shutdown()


def test_columns_of_one_result_may_be_joined() -> None:
    made = sampler(dp=2).columns([1, 2, 3])
    assert made["ids"].concat(made["double"]).gather() == [1, 2, 3, 2, 4, 6]
    traffic.reset()
    assert sampler(dp=3).same([made["ids"], made["double"]]).gather() == [1, 2, 3, 2, 4, 6]
    assert traffic.moved_rows == 6
