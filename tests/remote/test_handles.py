"""Handles on a real local Ray: rows that stay with the workers, and go from worker to worker without the driver."""

from __future__ import annotations

import pickle
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.remote import components
from twinkle import DeviceMesh, Same, Sharded
from twinkle.errors import PlanError, TwinkleError
from twinkle.plan import Layout
from twinkle.remote import traffic

# A type checker does not see what the decorator adds.
Echo: Any = components.Echo

pytestmark = pytest.mark.usefixtures("job")


def echo(group: str, **sizes: int) -> Any:
    return Echo(device_mesh=DeviceMesh.from_axes(sizes), remote_group=group)


@pytest.fixture(scope="module")
def sampler(job: None) -> Any:
    return echo("cpu4", dp=4)


@pytest.fixture(scope="module")
def actor(job: None) -> Any:
    return echo("cpu8", pp=2, dp=2, tp=2)


@pytest.fixture
def handle(sampler: Any) -> Sharded:
    made: Sharded = sampler.same([{"id": at} for at in range(10)])
    return made


def counted(call: Any) -> tuple[Any, int, int]:
    traffic.reset()
    result = call()
    return result, traffic.driver_rows, traffic.moved_rows


def test_a_handle_is_a_sequence_of_rows(handle: Sharded) -> None:  # D60
    assert len(handle) == 10
    assert [row["id"] for row in handle] == list(range(10))
    assert handle[3] == {"id": 3}
    assert handle[-1] == {"id": 9}
    assert handle() == handle.gather()
    with pytest.raises(IndexError, match="row 10 of 10"):
        handle[10]
    assert repr(handle) == "<Sharded rows: 10 rows over 4 shards>"


def test_renumbering_moves_no_rows(handle: Sharded) -> None:
    def renumbered() -> list[Any]:
        return [
            handle.select([3, 3, 1]),
            handle.repeat(2),
            handle.expand([0] * 8 + [1, 2]),
            handle.minibatch(1, 5),
            handle[2:6],
            handle.zip(range(10)),
        ]

    made, driver, moved = counted(renumbered)
    assert (driver, moved) == (0, 0)
    found = [[row["id"] for row in one.gather()] for one in made[:-1]]
    assert found[0] == [3, 3, 1]
    assert found[1] == [at for at in range(10) for _ in range(2)]
    assert found[2:] == [[8, 9, 9], [2, 3], [2, 3, 4, 5]]
    assert [(row["id"], number) for row, number in made[-1].gather()] == [(at, at) for at in range(10)]


def test_only_what_is_asked_for_is_pulled(handle: Sharded) -> None:
    assert counted(lambda: handle[5])[1] == 1
    assert counted(lambda: handle.select([1, 8]).gather())[1] == 2
    assert counted(handle.gather)[1] == 10


def test_rows_go_from_worker_to_worker_and_none_through_the_driver(handle: Sharded, actor: Any) -> None:
    result, driver, moved = counted(lambda: actor.same(handle))
    # Borders 3, 6 and 8 over 5: shard 1 is cut where it is, and each row comes once to each of four workers.
    assert (driver, moved) == (0, 10 * 4)
    assert counted(lambda: actor.same(handle[:8]))[1] == 0
    assert [row["id"] for row in result.gather()] == list(range(10))
    assert [[row["id"] for row in rows] for rows, *_ in actor.rows_seen(handle)] == [
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
        [5, 6, 7, 8, 9],
    ] * 2


@pytest.mark.parametrize(("source", "target"), [("cpu8", "cpu8"), ("cpu2", "cpu8"), ("cpu8", "cpu2"), ("cpu4", "cpu8")])
def test_a_hand_over_moves_every_row_once(source: str, target: str) -> None:  # D37
    made = echo(source, dp=int(source[3:])).same(np.arange(128))
    result, driver, moved = counted(lambda: echo(target, dp=int(target[3:])).same(made))
    assert (driver, moved) == (0, 128)
    np.testing.assert_array_equal(result.gather(), np.arange(128))


@pytest.mark.parametrize("rows", [list(range(10)), np.arange(40).reshape(10, 4)])
def test_every_row_of_a_sampler_s_batch_is_fetched_once_by_each_worker_of_a_trainer(actor: Any, rows: Any) -> None:
    made = echo("cpu4", dp=4).same(rows)
    taken, driver, moved = counted(lambda: actor.same(made))
    assert (driver, moved) == (0, 10 * 8 // 2)
    np.testing.assert_array_equal(taken.gather(), rows)


def test_handles_of_several_groups_are_one_argument(handle: Sharded, actor: Any) -> None:
    other = echo("cpu2", dp=2).same([{"id": at} for at in range(10, 15)])
    taken, driver, moved = counted(lambda: actor.same([handle, other[1:], handle[:1]]))
    assert (driver, moved) == (0, 15 * 4)
    assert [row["id"] for row in taken.gather()] == [*range(10), *range(11, 15), 0]
    whole, driver, moved = counted(lambda: handle.concat(other).repeat(2).select(range(0, 30, 7)))
    assert (driver, moved) == (0, 0)
    assert [row["id"] for row in whole] == [0, 3, 7, 10, 14]
    assert actor.pulled(whole.map(lambda row: row["id"] * 2)) == [0, 6, 14, 20, 28]


def test_replicas_that_all_have_the_rows_are_read_where_that_is_near() -> None:
    made = echo("cpu4", dp=2, tp=2).anywhere(list(range(8)))
    trainer = echo("cpu4", dp=4)
    assert trainer.pulled(made) == list(range(8))
    assert [len(those) for those in made.pieces[0].store.holders] == [2, 2]


def test_a_handle_is_found_anywhere_in_an_argument(handle: Sharded, actor: Any) -> None:  # D61
    found = actor.two(list(range(10)), config={"deep": [handle, {"more": (handle, "text")}]})
    for rows, _, config in found:
        assert [row["id"] for row in config["deep"][0]] == rows
        assert [row["id"] for row in config["deep"][1]["more"][0]] == rows
        assert config["deep"][1]["more"][1] == "text"


def test_a_list_of_one_handle_is_that_handle(handle: Sharded, actor: Any) -> None:
    assert [row["id"] for row in actor.same([handle]).gather()] == list(range(10))


def test_a_handle_of_another_length_than_the_rows_is_refused(handle: Sharded, actor: Any) -> None:
    with pytest.raises(PlanError, match="rows has 4 rows and extra has 10"):
        actor.two([1, 2, 3, 4], handle)


def test_every_worker_gets_all_rows_of_a_handle_that_is_not_cut(handle: Sharded, sampler: Any) -> None:
    for args, kwargs in sampler.everything(handle, more=[handle]):
        assert [row["id"] for row in args[0]] == list(range(10))
        assert len(kwargs["more"][0]) == 10
    for _, extra, _ in sampler.two(list(range(8)), Same(handle)):
        assert len(extra) == 10


def test_zipped_rows_meet_where_they_are_needed(handle: Sharded, actor: Any) -> None:
    rewards = [at / 10 for at in range(10)]
    found, driver, _ = counted(lambda: actor.same(handle.zip(rewards, actor.same(list(range(10))))).gather())
    assert [(row["id"], reward, number) for row, reward, number in found] == [(at, at / 10, at) for at in range(10)]
    assert driver == 10 + 10 + 10
    with pytest.raises(PlanError, match="as many rows each, not 10, 3"):
        handle.zip([1, 2, 3])


MASK = "picked by their numbers, not by a mask of booleans: numpy.flatnonzero"
NUMBERS = [
    ("select", [[True, False, True]], MASK),
    ("select", [np.array([True, False, True])], MASK),
    ("select", [np.array([True])[0:1].tolist()], MASK),
    ("select", [[1.9]], r"rows\[0\] must be a whole number, not 1.9"),
    ("select", [[-1]], r"rows\[0\] must be from 0"),
    ("select", [[5]], "select names row 5, but there are 3 rows"),
    ("select", ["12"], "rows must be a list, range or one-dimensional array"),
    ("select", [iter([1])], "rows must be a list, range or one-dimensional array"),
    ("repeat", [-1], "times must be from 0"),
    ("repeat", [1.5], "times must be a whole number, not 1.5"),
    ("repeat", [2**40], "at most 16777216 are made at once"),
    ("expand", [[1, -1, 2]], r"counts\[1\] must be from 0"),
    ("expand", [[1, 1]], "counts, one per row: 3 expected, 2 found"),
    ("expand", [[0.5, 1, 1]], r"counts\[0\] must be a whole number"),
    ("minibatch", [2, 2], "2"),
    ("minibatch", [-1, 2], "-1"),
    ("minibatch", [0, 0], "0"),
    ("minibatch", [0], r"say (into|of) how many even ones, as (mini-batch 0 of them: minibatch\(0, count\)|count)"),
]


@pytest.mark.parametrize(("method", "numbers", "words"), NUMBERS)
def test_zips_refuse_the_numbers_that_handles_refuse(sampler: Any, method: str, numbers: Any, words: str) -> None:
    three = sampler.same(list(range(4)))[:3]
    for rows in (three, three.zip([7, 8, 9])):
        with pytest.raises((PlanError, IndexError), match=words):
            getattr(rows, method)(*numbers)


def test_zips_are_numbered_anew_as_handles_are(sampler: Any) -> None:
    zipped = sampler.same(list(range(4))).zip([5, 6, 7, 8])
    assert zipped.repeat(2).gather() == [(0, 5), (0, 5), (1, 6), (1, 6), (2, 7), (2, 7), (3, 8), (3, 8)]
    assert zipped.expand(np.array([0, 2, 0, 1])).gather() == [(1, 6), (1, 6), (3, 8)]
    assert [zipped.minibatch(at, 2).gather() for at in range(2)] == [[(0, 5), (1, 6)], [(2, 7), (3, 8)]]
    assert zipped[np.array([2, 0])].gather() == [(2, 7), (0, 5)]
    assert (zipped[np.array([1])].gather(), zipped[np.int64(1)], zipped[-1]) == ([(1, 6)], (1, 6), (3, 8))
    with pytest.raises(PlanError, match="not by a mask of booleans"):
        zipped[np.array([True, False, True, False])]
    assert zipped.repeat(0).gather() == zipped.select([]).gather() == []


def test_looking_for_a_row_and_going_backwards_pull_rows_in_batches(
    sampler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = sampler.same(list(range(600)))
    pulls: list[int] = []
    gather = Sharded.gather

    def counting(self: Any, **options: Any) -> Any:
        pulls.append(len(self))
        return gather(self, **options)

    monkeypatch.setattr(Sharded, "gather", counting)
    assert list(reversed(handle)) == list(range(599, -1, -1))
    assert handle.index(300) == handle.index(300, 300) == handle.index(300, -400, -1) == 300
    assert (handle.count(7), 599 in handle, 600 in handle) == (1, True, False)
    with pytest.raises(ValueError, match="no row of <Sharded rows: 600 rows over 4 shards> from 0 up to 300 is 300"):
        handle.index(300, 0, 300)
    assert len(pulls) <= 20
    zipped = handle.zip(range(600))
    assert (zipped.index((300, 300)), next(reversed(zipped)), zipped.count((5, 5))) == (300, (599, 599), 1)
    assert len(pulls) <= 30


def test_derived_rows_are_handed_over_in_their_new_order(handle: Sharded, actor: Any) -> None:
    order = [7, 2, 2, 9, 0, 5]
    assert [row["id"] for row in actor.same(handle.select(order)).gather()] == order
    assert [row["id"] for row in actor.same(handle.repeat(2)).gather()] == [at for at in range(10) for _ in range(2)]


def test_mapped_rows_stay_where_they_are(handle: Sharded, actor: Any) -> None:
    mapped, driver, _ = counted(lambda: handle.map(lambda row: row["id"] * 2))
    assert driver == 0
    assert actor.pulled(mapped) == [at * 2 for at in range(10)]


def test_lengths_are_known_without_pulling_rows(sampler: Any) -> None:
    made = sampler.same([{"input_ids": [0] * (at + 1)} for at in range(6)])
    lengths, driver, _ = counted(lambda: made.select([5, 0]).lengths)
    assert (lengths, driver) == ([6, 1], 0)
    assert sampler.same([1, 2, 3, 4]).lengths is None


def test_balanced_splits_follow_the_lengths(sampler: Any, actor: Any) -> None:
    made = sampler.same([{"input_ids": [0] * size} for size in (9, 1, 4, 3, 8, 2, 6, 5)])
    layout = Layout.balanced(made.lengths, 2)
    parts = made.select(np.concatenate([layout.rows(shard) for shard in range(2)]))
    loads = [sum(len(row["input_ids"]) for row in rows) for rows, *_ in actor.rows_seen(parts)]
    assert set(loads) == {19}


def test_a_handle_is_not_pickled(handle: Sharded) -> None:
    with pytest.raises(TwinkleError, match="is not pickled: pass it to a remote method"):
        pickle.dumps(handle)


@pytest.mark.parametrize("holder", [lambda handle: {handle}, lambda handle: deque([handle]), components.Holder])
def test_a_handle_where_none_is_looked_for_is_refused_saying_where_it_would_be_found(
    handle: Sharded, actor: Any, holder: Any
) -> None:
    words = (
        "or inside the lists, tuples, mappings and dataclasses of one, which is where handles are looked for, or gath"
    )
    with pytest.raises(TwinkleError, match=words):
        actor.everything(holder(handle))


def test_the_grpo_loop_shape_sees_rows_and_not_functions(handle: Sharded, sampler: Any) -> None:  # D62
    batch = handle if isinstance(handle, list) else [handle]
    assert [row["id"] for row in sampler.same(batch).gather()] == list(range(10))


LEAVES = st.one_of(st.integers(), st.text(max_size=3), st.none(), st.booleans())
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.tuples(inner), st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=6,
)
SHAPES = {2: [(2,), (1, 2), (2, 1)], 4: [(4,), (2, 2), (4, 1), (1, 4)], 8: [(8,), (2, 4), (4, 2), (2, 2, 2), (2, 1, 4)]}


@st.composite
def meshes(draw: Any) -> tuple[str, DeviceMesh]:
    size = draw(st.sampled_from([2, 4, 8]))
    shape = draw(st.sampled_from(SHAPES[size]))
    names = draw(st.permutations(["dp", "fsdp", "pp", "tp"]))[: len(shape)]
    return f"cpu{size}", DeviceMesh.from_axes(dict(zip(names, shape, strict=True)))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(source=meshes(), target=meshes(), n=st.integers(8, 20), config=TREES, pick=st.randoms(use_true_random=False))
def test_what_a_remote_call_returns_is_what_a_local_call_returns(
    source: Any, target: Any, n: int, config: Any, pick: Any
) -> None:
    rows = [{"id": at, "text": "x" * at} for at in range(n)]
    order = [pick.randrange(n) for _ in range(n)]
    local = Echo()
    expected = [rows[at] for at in order]
    first = Echo(device_mesh=source[1], remote_group=source[0])
    second = Echo(device_mesh=target[1], remote_group=target[0])
    handle = first.same(rows).select(order)
    parts = [handle, second.same(rows), first.anywhere(rows)[::2]]
    assert second.same(parts).gather() == expected + rows + rows[::2]
    assert second.same(handle).gather() == expected == list(local.same(expected))
    for _, extra, seen in second.two(handle, None, config={"tree": config}):
        assert (extra, seen) == (None, {"tree": config})


def test_rows_of_the_driver_s_own_components_reach_the_workers(actor: Any) -> None:
    own = Echo().same([1, 2, 3])
    result, driver, _ = counted(lambda: actor.same(own))
    assert driver == 3
    assert result.gather() == [1, 2, 3]
    assert [args for args, _ in actor.everything(own)] == [([1, 2, 3],)] * 8


def test_workers_rows_reach_the_driver_s_own_components(handle: Sharded) -> None:
    assert Echo().pulled(handle.select([4, 2])) == [{"id": 4}, {"id": 2}]


def test_zips_reach_every_worker_whole_where_nothing_is_cut(handle: Sharded, sampler: Any) -> None:
    for args, _ in sampler.everything(handle.zip(list("abcdefghij"))):
        assert args[0] == [({"id": at}, "abcdefghij"[at]) for at in range(10)]


def test_the_driver_s_memory_does_not_grow_with_the_rows(sampler: Any, actor: Any) -> None:
    def resident() -> int:
        with Path("/proc/self/statm").open() as statm:
            return int(statm.read().split()[1]) * 4096

    maker = sampler.same(list(range(16)))
    rows = maker.map(lambda row: np.full(500_000, row))

    def call() -> None:
        actor.sum_of(rows)
        actor.same(rows)

    # What is loaded once belongs to no call.
    call()
    before = resident()
    for _ in range(3):
        call()
    assert resident() - before < 16 * 500_000 * 8 / 4


def test_references_among_rows_can_be_read_where_they_arrive() -> None:
    import ray

    component: Any = components.Writer(device_mesh=DeviceMesh.from_sizes(dp_size=2), remote_group="cpu2")  # type: ignore[call-arg]
    handle = component.referred(list(range(4)))
    assert component.read(handle) == component.read(handle.gather()) == list(range(4))
    assert ray.get(list(handle)) == list(range(4))
