"""Placements and routes: against the oracle on random meshes, the handed flows, and the worked numbers."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import plan_oracle as oracle
from tests.support import cases
from twinkle.errors import PlacementError, PlanError
from twinkle.mesh import DeviceMesh
from twinkle.plan import CollectFrom, Layout, Placement, route

CASES = cases("plan")


def mesh_of(dims: list[tuple[str, int]], ulysses: int | None = None, ranks: list[int] | None = None) -> DeviceMesh:
    sizes = [size for _, size in dims]
    table = np.arange(math.prod(sizes)) if ranks is None else np.asarray(ranks)
    return DeviceMesh(table.reshape(sizes), tuple(name for name, _ in dims), ulysses_size=ulysses)


@st.composite
def meshes(draw: st.DrawFn) -> tuple[DeviceMesh, list[tuple[str, int]], int]:
    """A mesh with its axes in any order and any distinct ranks, its dims and its ulysses size."""
    names = draw(st.permutations(["dp", "fsdp", "pp", "tp", "cp"]))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    dims = list(zip(names, sizes, strict=False))
    data = math.prod(size for name, size in dims if name in {"dp", "fsdp"})
    ulysses = draw(st.sampled_from([size for size in (1, 2, 3) if data % size == 0]))
    total = math.prod(sizes)
    ranks = draw(st.lists(st.integers(0, 1000), min_size=total, max_size=total, unique=True))
    return mesh_of(dims, ulysses, ranks), dims, ulysses


def plain(placement: Placement) -> dict[str, Any]:
    return {
        "shard_of_worker": placement.shard_of_worker.tolist(),
        "members": [placement.members(shard).tolist() for shard in range(placement.shards)],
        "lead": placement.lead.tolist(),
        "pp_last": placement.representative.tolist(),
    }


def dealt(mesh: DeviceMesh, rows: int) -> list[list[int]]:
    placement = mesh.placement()
    return Layout.even(rows, placement.shards).dispatch(list(range(rows)), placement)


@given(meshes())
def test_placements_of_any_mesh_are_those_of_a_walk_over_its_positions(
    drawn: tuple[DeviceMesh, list[tuple[str, int]], int],
) -> None:
    mesh, dims, ulysses = drawn
    expected = oracle.placement(dims, ulysses)
    placement = mesh.placement()
    assert plain(placement) == {key: value for key, value in expected.items() if key != "pp_first"}
    assert placement.workers == mesh.world_size
    assert placement.shards == mesh.data_world_size
    shards = range(placement.shards)
    assert [placement.holders(shard).tolist() for shard in shards] == [[worker] for worker in expected["pp_last"]]
    first = mesh.placement(collect_from="pp_first")
    assert [first.holders(shard).tolist() for shard in shards] == [[worker] for worker in expected["pp_first"]]
    for every in (mesh.placement(collect_from="any"), mesh.placement(collect_from="all")):
        assert [every.holders(shard).tolist() for shard in shards] == expected["members"]
    assert [mesh.rank_at(worker) for worker in placement.representative.tolist()] == mesh.get_collect_ranks()
    assert placement.shard_of_worker.tolist() == mesh.data_ranks().tolist()


@given(meshes(), st.data())
def test_workers_named_by_position_own_what_they_list(
    drawn: tuple[DeviceMesh, list[tuple[str, int]], int], data: st.DataObject
) -> None:
    mesh, dims, ulysses = drawn
    shards = mesh.data_ranks().tolist()
    by_shard = [[p for p, shard in enumerate(shards) if shard == wanted] for wanted in range(mesh.data_world_size)]
    lists = []
    for positions in by_shard:
        shuffled = data.draw(st.permutations(positions))
        cut = data.draw(st.integers(0, len(shuffled) - 1))
        lists += [part for part in (shuffled[:cut], shuffled[cut:]) if part]
    lists = data.draw(st.permutations(lists))
    placement = mesh.placement(workers=lists)
    assert plain(placement) == {
        key: value for key, value in oracle.placement(dims, ulysses, lists).items() if key != "pp_first"
    }


@given(meshes(), st.integers(0, 40), st.data())
def test_dispatch_then_collect_is_the_identity_on_any_mesh(
    drawn: tuple[DeviceMesh, list[tuple[str, int]], int], rows: int, data: st.DataObject
) -> None:
    mesh, _, _ = drawn
    placement = mesh.placement()
    rows += placement.shards
    batch = [f"row {row}" for row in range(rows)]
    weights = data.draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows))
    for layout in (
        Layout.even(rows, placement.shards),
        Layout.padded(rows, placement.shards, multiple=3),
        Layout.balanced(weights, placement.shards),
        Layout.minibatched(rows, placement.shards, 2, pad=True),
    ):
        sent = layout.dispatch(batch, placement)
        for shard in range(placement.shards):
            assert len({id(sent[worker]) for worker in placement.members(shard)}) == 1, "replicas share one object"
        assert layout.collect([sent[worker] for worker in placement.representative]) == batch


@given(meshes(), meshes(), st.integers(1, 40), st.data())
def test_dispatch_by_a_then_reshard_then_collect_by_b_is_the_identity(
    first: tuple[DeviceMesh, list[tuple[str, int]], int],
    second: tuple[DeviceMesh, list[tuple[str, int]], int],
    rows: int,
    data: st.DataObject,
) -> None:
    collect_from: CollectFrom = data.draw(st.sampled_from(["pp_last", "pp_first", "any", "all"]))
    source, target = first[0].placement(collect_from=collect_from), second[0].placement()
    rows += source.shards + target.shards
    batch = [f"row {row}" for row in range(rows)]
    weights = data.draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows))
    leaving, arriving = Layout.even(rows, source.shards), Layout.balanced(weights, target.shards)
    held = leaving.dispatch(batch, source)
    received: list[list[str | None]] = [
        [None] * int(arriving.sizes[shard]) for shard in target.shard_of_worker.tolist()
    ]
    routed = route(leaving.reshard(arriving), source, target)
    for sender, start, receiver, at, length in routed.tolist():
        assert sender in source.holders(int(source.shard_of_worker[sender])), "only holders are read"
        assert received[receiver][at : at + length] == [None] * length, "written once"
        received[receiver][at : at + length] = held[sender][start : start + length]
    assert received == arriving.dispatch(batch, target)
    assert arriving.collect([received[worker] for worker in target.representative]) == batch


@given(meshes(), meshes(), st.integers(1, 30), st.data())
def test_routes_read_from_the_nearest_holder(
    first: tuple[DeviceMesh, list[tuple[str, int]], int],
    second: tuple[DeviceMesh, list[tuple[str, int]], int],
    rows: int,
    data: st.DataObject,
) -> None:
    source = first[0].placement(collect_from=data.draw(st.sampled_from(["pp_last", "any"])))
    target = second[0].placement()
    moves = Layout.even(rows, source.shards).reshard(Layout.even(rows, target.shards))
    near = data.draw(
        st.none() | st.lists(st.integers(-1, source.workers - 1), min_size=target.workers, max_size=target.workers)
    )
    nodes = [
        data.draw(st.lists(st.sampled_from("abc"), min_size=placement.workers, max_size=placement.workers))
        for placement in (source, target)
    ]
    expected = oracle.route(
        moves.tolist(),
        [source.holders(shard).tolist() for shard in range(source.shards)],
        [target.members(shard).tolist() for shard in range(target.shards)],
        same_process=near,
        source_node=nodes[0],
        target_node=nodes[1],
    )
    routed = route(moves, source, target, near, nodes[0], nodes[1])
    assert routed.tolist() == expected
    if near is not None:
        representative = first[0].placement()
        from_it = route(moves, representative, target, near)
        assert remote(routed, near) <= remote(from_it, near)


def remote(routed: np.ndarray[Any, np.dtype[np.int64]], same_process: list[int]) -> int:
    return sum(length for sender, _, receiver, _, length in routed.tolist() if same_process[receiver] != sender)


@pytest.mark.parametrize("case", CASES["flow"], ids=lambda case: case["id"])
def test_flows_between_meshes_are_those_of_the_cases(case: dict[str, Any]) -> None:
    placed = []
    for side in ("from", "to"):
        mesh = mesh_of([(name, size) for name, size in case[side]["dims"]])
        placed.append(mesh.placement(case[side].get("gpus_per_worker", 1), collect_from=case["collect_from"]))
    source, target = placed
    assert source.lead.tolist() == case["from_lead"]
    assert source.representative.tolist() == case["from_representative"]
    assert target.shard_of_worker.tolist() == case["to_shard_of_worker"]
    moves = Layout.even(case["n"], source.shards).reshard(Layout.even(case["n"], target.shards))
    assert route(moves, source, target).tolist() == case["moves"]


def test_rows_are_cut_by_position_in_data_order() -> None:
    assert dealt(mesh_of([("fsdp", 3), ("dp", 2)]), 12) == [[0, 1], [6, 7], [2, 3], [8, 9], [4, 5], [10, 11]]
    assert mesh_of([("fsdp", 3), ("dp", 2)]).placement().representative.tolist() == [0, 2, 4, 1, 3, 5]
    assert dealt(mesh_of([("dp", 4)], ranks=[4, 5, 6, 7]), 8) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert dealt(mesh_of([("dp", 4)], 2), 6) == [[0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5]]
    ulysses = mesh_of([("fsdp", 2), ("dp", 4)], 2).placement()
    assert [ulysses.members(shard).tolist() for shard in range(4)] == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_workers_of_several_devices_take_consecutive_blocks() -> None:
    placement = mesh_of([("dp", 4), ("tp", 2)]).placement(2)
    assert placement.shard_of_worker.tolist() == [0, 1, 2, 3]
    assert placement == mesh_of([("dp", 4), ("tp", 2)]).placement(2, 4)
    assert placement == mesh_of([("dp", 4)]).placement(2, 4), "a mesh over workers does as well"
    spanning = mesh_of([("pp", 2), ("dp", 2)])
    with pytest.raises(PlanError, match=r"worker 0 owns positions \[0, 1\] of data shards \[0, 1\]"):
        spanning.placement(2)
    mapped = spanning.placement(2, [[0, 2], [1, 3]])
    assert mapped.shard_of_worker.tolist() == [0, 1]
    assert dealt_by(mapped, 4) == [[0, 1], [2, 3]]


def dealt_by(placement: Placement, rows: int) -> list[list[int]]:
    return Layout.even(rows, placement.shards).dispatch(list(range(rows)), placement)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 3}, r"a mesh of 8 positions does not fit 3 workers of 1 devices"),
        ({"workers": 16}, r"a mesh of 8 positions does not fit 16 workers of 1 devices"),
        ({"gpus_per_worker": 2, "workers": 2}, r"a mesh of 8 positions does not fit 2 workers of 2 devices"),
        ({"gpus_per_worker": 3}, r"a mesh of 8 positions cannot be dealt out 3 to a worker"),
        ({"workers": [[0, 1], [1, 2]]}, r"workers\[1\] names position 1, which is named before"),
        ({"workers": [[0, 8]]}, r"workers\[0\] names position 8, which is not there"),
        ({"workers": [[0], [1]]}, r"position 2 belongs to no worker"),
        ({"workers": [[0], []]}, r"workers\[1\] names 0 positions"),
        ({"gpus_per_worker": 2, "workers": [[0]]}, r"workers\[0\] names 1 positions, and a worker has 2"),
    ],
)
def test_workers_that_do_not_fit_are_refused_with_the_numbers(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlacementError, match=message):
        mesh_of([("dp", 4), ("tp", 2)]).placement(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gpus_per_worker": 0}, "gpus_per_worker must be from 1 to"),
        ({"gpus_per_worker": True}, "gpus_per_worker must be a whole number, not True"),
        ({"workers": 0}, "workers must be from 1 to"),
        ({"workers": "8"}, "workers must be a list"),
        ({"workers": [0, 1]}, r"workers\[0\] must be a list"),
        ({"workers": [["0"]]}, r"workers\[0\] must be a whole number, not '0'"),
        ({"collect_from": "pp"}, r'collect_from must be one of \["pp_last", "pp_first", "any", "all"\], not \'pp\''),
    ],
)
def test_arguments_of_another_kind_are_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        mesh_of([("dp", 4), ("tp", 2)]).placement(**arguments)


def test_views_have_no_placement() -> None:
    mesh = DeviceMesh.from_sizes(world_size=8, dp_size=4, tp_size=2, ep_size=2)
    with pytest.raises(ValueError, match="ep"):
        mesh.expert_mesh().placement()


@given(meshes(), st.sampled_from(["pp_last", "pp_first", "any", "all"]))
def test_placements_travel_and_compare_by_what_they_say(
    drawn: tuple[DeviceMesh, list[tuple[str, int]], int], collect_from: Any
) -> None:
    placement = drawn[0].placement(collect_from=collect_from)
    again = pickle.loads(pickle.dumps(placement))
    assert again == placement
    assert hash(again) == hash(placement)
    assert again.collect_from == collect_from
    assert len(pickle.dumps(placement)) < 150


def test_equal_placements_may_come_from_different_meshes() -> None:
    assert (
        mesh_of([("dp", 4)]).placement()
        == mesh_of([("fsdp", 4)]).placement()
        == mesh_of([("fsdp", 2), ("dp", 2)]).permute(["dp", "fsdp"]).placement()
    )
    assert mesh_of([("dp", 4)], 2).placement() == mesh_of([("dp", 2), ("tp", 2)]).placement()
    assert mesh_of([("dp", 4)]).placement() != mesh_of([("dp", 4)]).placement(collect_from="any")
    assert mesh_of([("pp", 2), ("dp", 2)]).placement() != mesh_of([("tp", 2), ("dp", 2)]).placement()
    assert len(pickle.dumps(DeviceMesh.from_sizes(dp_size=4096, tp_size=8, pp_size=32).placement())) < 150


def test_the_text_of_a_placement_is_a_table_and_its_repr_a_line() -> None:
    placement = mesh_of([("pp", 2), ("dp", 2), ("tp", 2)]).placement()
    assert repr(placement) == "<Placement of 2 shards on 8 workers, collect_from='pp_last'>"
    assert str(placement).splitlines()[2:] == [
        "    0       0               4  0 1 4 5",
        "    1       2               6  2 3 6 7",
    ]
    with pytest.raises(PlanError, match=r"made by DeviceMesh\.placement"):
        Placement()


def test_colocated_replicas_move_no_rows_between_processes() -> None:
    sampler = mesh_of([("dp", 2), ("tp", 2)]).placement(collect_from="any")
    trainer = mesh_of([("dp", 4)]).placement()
    moves = Layout.even(8, 2).reshard(Layout.even(8, 4))
    together = route(moves, sampler, trainer, same_process=[0, 1, 2, 3])
    assert together.tolist() == [[0, 0, 0, 0, 2], [1, 2, 1, 0, 2], [2, 0, 2, 0, 2], [3, 2, 3, 0, 2]]
    nodes = ["left", "right", "left", "right"]
    apart = route(moves, sampler, trainer, source_node=nodes, target_node=nodes)
    assert [(sender, receiver) for sender, _, receiver, _, _ in apart.tolist()] == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_routes_are_refused_when_they_do_not_name_everybody() -> None:
    four = mesh_of([("dp", 4)]).placement()
    moves = Layout.even(8, 4).reshard(Layout.even(8, 4))
    with pytest.raises(PlanError, match="same_process, one per worker: 4 expected, 1 found"):
        route(moves, four, four, [0])
    with pytest.raises(PlacementError, match="same_process names worker 4, but there are 4 workers"):
        route(moves, four, four, [4, 0, 0, 0])
    with pytest.raises(PlanError, match="target_node is missing"):
        route(moves, four, four, source_node=["abcd"])
    with pytest.raises(PlanError, match="source_node, one per worker: 4 expected, 1 found"):
        route(moves, four, four, source_node=["a"], target_node=list("abcd"))
    with pytest.raises(PlanError, match="source_node must hold labels"):
        route(moves, four, four, source_node=[[], [], [], []], target_node=list("abcd"))  # type: ignore[list-item]
    with pytest.raises(PlanError, match="there is no shard 4: 4 shards count from 0"):
        route([[4, 0, 0, 0, 1]], four, four)
    with pytest.raises(PlanError, match="the length of a move must be from 1"):
        route([[0, 0, 0, 0, 0]], four, four)
    with pytest.raises(PlanError, match=r"numbers in moves\[0\]: 5 expected, 2 found"):
        route([[0, 0]], four, four)
    with pytest.raises(PlanError, match="source must be a Placement"):
        route(moves, "four", four)  # type: ignore[arg-type]
