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
from tests.remote.inline import component, inline_ray
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
    needed = len(order)
    members = target.world_size // target.data_world_size
    # A row that is asked for twice may come once.
    assert traffic.moved_rows <= 1.5 * needed * members
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
    over = hand_over(one, two, [1] * target)
    for shard in range(target):
        found = [row for piece, start, stop in over.reads[shard] for row in shards[piece][start:stop]]
        assert found == two.rows(shard).tolist()
        pads = [found[pad] if isinstance(pad, int) else shards[pad[0]][pad[1] : pad[2]][0] for pad in over.pads[shard]]
        assert pads == two.pads(shard).tolist()
    assert over.fetched <= max(1.5, 1) * (n + sum(isinstance(p, tuple) for pads in over.pads for p in pads))
