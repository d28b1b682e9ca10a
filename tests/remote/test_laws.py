"""Laws of remote calls on random meshes, rows and trees: a remote call is the local call, rows cut and joined."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.remote import components
from tests.remote.inline import InlineGroup, component, inline_ray
from twinkle import DeviceMesh, Rows
from twinkle.plan import Layout
from twinkle.remote import traffic
from twinkle.remote.handover import hand_over

# A type checker does not see what the decorator adds.
Echo: Any = components.Echo

SIZES = st.sampled_from([1, 2, 3])


@pytest.fixture(autouse=True)
def _inline() -> Iterator[None]:
    with inline_ray():
        yield


@st.composite
def meshes(draw: Any) -> DeviceMesh:
    """Up to four axes in any order over any ranks, ulysses where it divides."""
    names = draw(st.permutations(["dp", "fsdp", "pp", "tp", "cp"]))[: draw(st.integers(1, 4))]
    sizes = [draw(SIZES) for _ in names]
    size = int(np.prod(sizes))
    ranks = draw(st.sampled_from([np.arange(size), np.arange(size)[::-1] + 5, np.arange(size) * 3]))
    data = int(np.prod([s for name, s in zip(names, sizes, strict=True) if name in ("dp", "fsdp")] or [1]))
    ulysses = draw(st.sampled_from([s for s in (1, 2, 3) if data % s == 0]))
    return DeviceMesh(ranks.reshape(sizes), tuple(names), ulysses_size=ulysses)


@st.composite
def batches(draw: Any, least: int) -> Any:
    """Rows of every kind, as a list of their plain values and as what is handed over."""
    n = draw(st.integers(least, least + 12))
    plain: Any = [{"id": at, "text": "ab"[at % 2] * (at % 5)} for at in range(n)]
    kind = draw(st.sampled_from(["list", "tuple", "array", "range", "wide"]))
    if kind == "array":
        return np.arange(n) * 1.5
    if kind == "wide":
        return np.arange(n * 3).reshape(n, 3)
    return {"list": list(plain), "tuple": tuple(plain), "range": range(n)}[kind]


def listed(rows: Any) -> list[Any]:
    return [row.tolist() if isinstance(row, np.ndarray) else row for row in rows]


@given(mesh=meshes(), data=st.data())
def test_rows_come_back_as_they_were_on_any_mesh(mesh: DeviceMesh, data: Any) -> None:
    rows = data.draw(batches(mesh.data_world_size))
    echo = component(Echo, mesh)
    back = echo.pulled(rows)
    assert listed(back) == listed(rows)
    assert type(back) is type(rows) or isinstance(rows, range)
    handle = echo.same(rows)
    assert listed(handle.gather()) == listed(handle) == listed(rows)


@given(mesh=meshes(), data=st.data())
def test_every_worker_gets_the_slice_of_its_data_rank(mesh: DeviceMesh, data: Any) -> None:
    rows = data.draw(batches(mesh.data_world_size))
    seen = [found for found, *_ in component(Echo, mesh).rows_seen(rows)]
    for position, found in enumerate(seen):
        own = mesh.get_slice(len(rows), global_rank=mesh.rank_at(position))
        assert listed(found) == listed(rows)[own]


@given(source=meshes(), target=meshes(), data=st.data())
def test_a_hand_over_is_a_gather_and_a_scatter_without_the_driver(source: Any, target: Any, data: Any) -> None:
    rows = data.draw(batches(max(source.data_world_size, target.data_world_size)))
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=target.data_world_size, max_size=16))
    handle = component(Echo, source).anywhere(rows).select(order)
    expected = [listed(rows)[at] for at in order]
    traffic.reset()
    taken = component(Echo, target).same(handle)
    assert traffic.driver_rows == 0
    # A row that a worker is asked for twice comes once, and none comes that nobody needs.
    shares = Layout.even(len(order), target.data_world_size)
    needed = sum(len({order[at] for at in shares.rows(shard).tolist()}) for shard in range(shares.shards))
    assert traffic.moved_rows == needed * (target.world_size // target.data_world_size)
    assert listed(taken.gather()) == expected


LEAVES = st.one_of(st.integers(), st.text(max_size=3), st.none(), st.just("HANDLE"), st.just("ROWS"))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner), st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


def planted(tree: Any, handle: Any, rows: Any) -> Any:
    if isinstance(tree, list):
        return [planted(one, handle, rows) for one in tree]
    if isinstance(tree, tuple):
        return tuple(planted(one, handle, rows) for one in tree)
    if isinstance(tree, dict):
        return {key: planted(one, handle, rows) for key, one in tree.items()}
    return {"HANDLE": handle, "ROWS": rows}.get(tree, tree) if isinstance(tree, str) else tree


@given(mesh=meshes(), tree=TREES, extra=st.integers(0, 5))
def test_rows_planted_in_any_tree_arrive_cut_and_everything_else_whole(mesh: Any, tree: Any, extra: int) -> None:
    n = mesh.data_world_size + extra
    echo = component(Echo, mesh)
    handle = echo.same([f"h{at}" for at in range(n)])
    rows = list(range(n))
    for found, _, config in echo.two(rows, None, config={"tree": planted(tree, handle, Rows(rows))}):
        assert config == {"tree": planted(tree, [f"h{at}" for at in found], found)}


@given(mesh=meshes(), n=st.integers(1, 20))
def test_pads_never_come_back_and_every_shard_is_as_long_as_the_longest(mesh: Any, n: int) -> None:
    echo = component(Echo, mesh)
    rows = [{"id": at, "labels": [at]} for at in range(n)]
    source = component(Echo, DeviceMesh.from_sizes(dp_size=1))
    for given_rows in (rows, source.same(rows)):
        assert [(row["id"], row["labels"]) for row in echo.padded(given_rows)] == [(at, [at]) for at in range(n)]
        seen = echo.padded_seen(given_rows)
        assert len({len(found) for found in seen}) == 1
        masked = sum(row["labels"] == [-100] for found in seen for row in found)
        members = mesh.world_size // mesh.data_world_size
        assert masked == (len(seen[0]) * mesh.data_world_size - n) * members


@given(mesh=meshes(), extra=st.integers(0, 9))
def test_means_do_not_depend_on_the_mesh(mesh: Any, extra: int) -> None:
    n = mesh.data_world_size + extra
    echo = component(Echo, mesh)
    layout = Layout.even(n, mesh.data_world_size)
    sizes = layout.real_sizes.tolist()
    firsts = [float(layout.rows(shard)[0]) for shard in range(layout.shards)]
    expected = sum(first * size for first, size in zip(firsts, sizes, strict=True)) / n
    assert echo.mean_number([float(at) for at in range(n)]) == pytest.approx(expected)
    assert echo.sum_of(list(range(n))) == n


@given(n=st.integers(0, 60), source=st.integers(1, 9), target=st.integers(1, 9), data=st.data())
def test_reads_of_a_hand_over_are_the_rows_of_each_shard(n: int, source: int, target: int, data: Any) -> None:
    order = data.draw(st.permutations(range(n)))
    cut = sorted(data.draw(st.lists(st.integers(0, n), min_size=source - 1, max_size=source - 1)))
    borders = [0, *cut, n]
    shards = [list(order[a:b]) for a, b in itertools.pairwise(borders)]
    one, two = Layout.explicit(shards), Layout.padded(n, target) if n else Layout.even(n, target)
    over = hand_over(one, two)
    for shard in range(target):
        bundles = {
            piece: [row for start, stop in cuts for row in shards[piece][start:stop]]
            for piece, cuts in over.bundles[shard].items()
        }
        found = [row for piece, start, stop in over.reads[shard] for row in bundles[piece][start:stop]]
        assert found == two.rows(shard).tolist()
        pads = [found[pad] if isinstance(pad, int) else bundles[pad[0]][pad[1]] for pad in over.pads[shard]]
        assert pads == two.pads(shard).tolist()
        assert over.rows(shard) == len({*found, *pads})


def cuts_of(group: Any) -> list[list[Any]]:
    """The rows that each worker of a group was asked to cut."""
    return [[cut for name, args in host.asked if name == "pieces" for (cut,) in args[2]] for host in group.hosts]


def test_a_replica_in_the_reader_s_own_process_cuts_its_rows() -> None:
    group = InlineGroup(4)
    sampler = component(Echo, DeviceMesh.from_axes({"dp": 2, "tp": 2}), group=group)
    trainer = component(Echo, DeviceMesh.from_axes({"dp": 4}), group=group)
    made = sampler.anywhere(list(range(8)))
    assert trainer.rows_seen(made) == [([at, at + 1], (), {}) for at in (0, 2, 4, 6)]
    assert cuts_of(group) == [[(0, 2)], [(2, 4)], [(0, 2)], [(2, 4)]]


def test_a_replica_on_the_reader_s_node_cuts_its_rows() -> None:
    # Workers 0 to 3 of a group are on one node, 4 to 7 on the other.
    source, target = InlineGroup(8), InlineGroup(8)
    sampler = component(Echo, DeviceMesh.from_axes({"tp": 2, "dp": 4}), group=source)
    trainer = component(Echo, DeviceMesh.from_axes({"dp": 8}), group=target)
    parts = sampler.anywhere(list(range(16)))[:8], sampler.anywhere(list(range(16)))[8:]
    assert [rows for rows, *_ in trainer.rows_seen(parts)] == [[at, at + 1] for at in range(0, 16, 2)]
    halves = [(0, 2), (2, 4)]
    assert cuts_of(source) == [halves, halves, [], [], [], [], halves, halves]


def test_rows_of_a_handle_given_twice_are_cut_once() -> None:
    group = InlineGroup(2)
    made = component(Echo, DeviceMesh.from_axes({"dp": 2}), group=group).same(list(range(6)))
    component(Echo, DeviceMesh.from_axes({"dp": 3, "tp": 2})).two(made, made)
    assert cuts_of(group) == [[(0, 2), (2, 3)], [(0, 1), (1, 3)]]
