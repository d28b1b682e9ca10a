"""Flows between meshes, against the plan's own moves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.meshes import meshes
from tests.support import cases
from twinkle import DeviceMesh
from twinkle.errors import PlanError
from twinkle.plan import Layout
from twinkle.show.flow import Moves, Side, about_flow, flow_text

FLOWS = cases("plan")["flow"]


def side_of(described: dict[str, Any]) -> Side:
    """One end of a handed flow."""
    return Side(DeviceMesh.from_axes(dict(described["dims"])), described.get("gpus_per_worker", 1))


@pytest.mark.parametrize("case", FLOWS, ids=lambda case: case["id"])
def test_the_moves_are_the_handed_ones(case: dict[str, Any]) -> None:
    source, target = side_of(case["from"]), side_of(case["to"])
    assert about_flow(case["n"], source, target, case["collect_from"])["moves"] == case["moves"]
    for shard, worker in enumerate(case["from_representative"]):
        assert list(source.holders(shard, "pp_last")) == [worker]
    for worker, shard in enumerate(case["to_shard_of_worker"]):
        assert worker in target.workers(shard)


@given(st.integers(0, 60), meshes(), meshes())
def test_moves_one_by_one_are_those_of_the_plan(batch: int, source: DeviceMesh, target: DeviceMesh) -> None:
    moves = Moves(batch, Side(source), Side(target))
    found = [[move.source, move.source_start, move.target, move.target_start, len(move.rows)] for move in moves]
    layouts = [Layout.even(batch, mesh.data_world_size) for mesh in (source, target)]
    assert found == layouts[0].reshard(layouts[1]).tolist()
    assert len(moves) == len(found)
    assert not found or list(moves)[-1] == moves.last


@given(st.integers(0, 10**4), st.integers(1, 3000), st.integers(1, 3000))
def test_moves_are_counted_without_being_walked(batch: int, source: int, target: int) -> None:
    moves = Moves(batch, Side(DeviceMesh.from_sizes(dp_size=source)), Side(DeviceMesh.from_sizes(dp_size=target)))
    assert len(moves) == len(Layout.even(batch, source).reshard(Layout.even(batch, target)))


def test_a_flow_of_a_trillion_rows_is_told_at_once() -> None:
    source, target = Side(DeviceMesh.from_axes({"dp": 2**40})), Side(DeviceMesh.from_axes({"dp": 2**39, "tp": 2}))
    assert f"... {2**40 - 24} more moves" in flow_text(2**42, source, target)


@given(meshes(), st.sampled_from(["pp_last", "pp_first", "any", "all"]))
def test_workers_are_those_of_the_placement(mesh: DeviceMesh, collect_from: Any) -> None:
    side, placement = Side(mesh), mesh.placement(collect_from=collect_from)
    for shard in range(placement.shards):
        assert sorted(side.workers(shard)) == placement.members(shard).tolist()
        assert sorted(side.holders(shard, collect_from)) == placement.holders(shard).tolist()


def test_empty_shards_are_named() -> None:
    text = flow_text(2, Side(DeviceMesh.from_sizes(dp_size=4)), Side(DeviceMesh.from_sizes(dp_size=1)))
    assert "4 shards on 4 workers; shards 2 to 3 are empty" in text


def test_a_worker_across_two_shards_is_refused() -> None:
    with pytest.raises(PlanError, match="worker 0 owns positions"):
        Side(DeviceMesh.from_axes({"pp": 2, "dp": 2}), 2)
