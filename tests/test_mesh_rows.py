"""Rows: whose are whose, who is collected from, and who stands at the end of an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mesh_oracle import Naive, meshes, rows
from twinkle import DeviceMesh
from twinkle.errors import AxisError, MeshError, RankError


@given(meshes() | meshes(needs=("fsdp", "dp"), least=2), st.integers(0, 200))
def test_a_rank_gets_the_rows_of_its_data_rank(naive: Naive, total: int) -> None:
    mesh = naive.mesh
    bounds = rows(total, naive.data_world_size)
    assert mesh.data_world_size == naive.data_world_size
    assert mesh.slices(total).tolist() == [list(own) for own in bounds]
    assert mesh.data_ranks().tolist() == [naive.data_rank(position) for position in range(len(naive.ranks))]
    for position, rank in enumerate(naive.ranks):
        data_rank = naive.data_rank(position)
        assert mesh.data_rank_of(rank) == mesh.get_data_rank_from_global_rank(rank) == data_rank
        own = slice(*bounds[data_rank])
        assert mesh.get_slice(total, global_rank=rank) == mesh.get_slice(total, data_rank=data_rank) == own
        assert mesh.get_slice(total, data_rank) == own
        assert all(type(end) is int for end in (own.start, own.stop))


@given(meshes() | meshes(needs=("fsdp", "dp"), least=2))
def test_each_data_rank_is_collected_from_once(naive: Naive) -> None:
    mesh = naive.mesh
    assert mesh.get_collect_ranks() == naive.representatives()
    mesh.get_collect_ranks().clear()
    assert mesh.get_collect_ranks() == naive.representatives()


@given(meshes(needs=("pp", "tp")))
def test_ends_of_axes_are_ascending_ranks(naive: Naive) -> None:
    mesh = naive.mesh
    for stage in range(naive.size("pp")):
        there = [rank for place, rank in enumerate(naive.ranks) if naive.index("pp", place) == stage]
        assert mesh.get_pp_stage_ranks(stage) == sorted(there)
    last = {axis: naive.size(axis) - 1 for axis in ("pp", "tp")}
    for place, rank in enumerate(naive.ranks):
        assert mesh.is_pp_first_rank(rank) == (naive.index("pp", place) == 0) == (rank in mesh.get_pp_first_ranks())
        assert (
            mesh.is_pp_last_rank(rank) == (naive.index("pp", place) == last["pp"]) == (rank in mesh.get_pp_last_ranks())
        )
        assert (
            mesh.is_tp_last_rank(rank) == (naive.index("tp", place) == last["tp"]) == (rank in mesh.get_tp_last_ranks())
        )
    outside = max(naive.ranks) + 1
    ends = (mesh.is_pp_first_rank, mesh.is_pp_last_rank, mesh.is_tp_last_rank)
    assert [ask(outside) for ask in ends] == [False] * 3


def test_without_a_pp_axis_everybody_is_in_stage_zero_and_there_is_no_other() -> None:
    mesh = DeviceMesh([3, 1, 2])
    assert mesh.get_pp_stage_ranks(0) == mesh.get_pp_first_ranks() == mesh.get_pp_last_ranks() == [1, 2, 3]
    for stage in (1, -1, 2**90):
        with pytest.raises(RankError, match=r"is not in 0\.\.1 \(pp is not declared\)"):
            mesh.get_pp_stage_ranks(stage)
    with pytest.raises(RankError, match=r"stage 2 is not in 0\.\.2 \(pp is declared\)"):
        DeviceMesh.from_sizes(pp_size=2).get_pp_stage_ranks(2)


@pytest.mark.parametrize("data_rank", [4, 7, -1, -(2**70), 2**70])
def test_a_data_rank_outside_is_refused_and_global_rank_suggested(data_rank: int) -> None:
    mesh = DeviceMesh.from_sizes(dp_size=4)
    for ask in (lambda: mesh.get_slice(10, data_rank), lambda: mesh.get_slice(10, data_rank=data_rank)):
        with pytest.raises(RankError, match=r"is not in 0\.\.4; for the number of a process write global_rank="):
            ask()


def test_a_global_rank_outside_the_mesh_gets_nobodys_rows() -> None:
    mesh = DeviceMesh([2, 3])
    with pytest.raises(RankError, match="rank 0 is not in this mesh of 2 ranks between 2 and 3"):
        mesh.get_slice(10, global_rank=0)
    assert mesh.get_slice(10, global_rank=3) == slice(5, 10)


@pytest.mark.parametrize(
    "given", [{"rank": 0, "data_rank": 0}, {"rank": 0, "global_rank": 0}, {"data_rank": 1, "global_rank": 1}]
)
def test_rows_are_asked_by_one_name_only(given: dict[str, int]) -> None:
    with pytest.raises(MeshError, match="give one of"):
        DeviceMesh.from_sizes(dp_size=2).get_slice(4, **given)


@pytest.mark.parametrize("total", [-1, 2**63, -(2**90), True, 1.5, "8", None])
def test_a_row_count_that_is_none_is_refused(total: Any) -> None:
    mesh = DeviceMesh.from_sizes(dp_size=2)
    for ask in (
        mesh.slices,
        lambda total: mesh.get_slice(total, 0),
        lambda total: mesh.get_slice(total, global_rank=1),
    ):
        with pytest.raises(MeshError, match="total_length"):
            ask(total)


def test_rows_of_huge_batches_are_whole_numbers() -> None:
    mesh = DeviceMesh.from_sizes(dp_size=3)
    assert mesh.slices(2**63 - 1).tolist()[-1][1] == 2**63 - 1
    assert mesh.get_slice(2**63 - 1, 0) == slice(0, (2**63 - 1) // 3 + 1)
    assert mesh.get_slice(0, 2) == slice(0, 0)


def test_rows_follow_positions_and_never_rank_numbers() -> None:
    mesh = DeviceMesh([[7, 6], [5, 4]], ("dp", "tp"))
    assert [mesh.get_slice(4, global_rank=rank) for rank in (7, 6, 5, 4)] == [slice(0, 2)] * 2 + [slice(2, 4)] * 2


def test_a_declared_ulysses_axis_divides_no_rows() -> None:
    mesh = DeviceMesh(np.arange(8).reshape(4, 2), ("dp", "ulysses"))
    assert mesh.data_world_size == 4
    assert mesh.data_ranks().tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert mesh.get_dim_size("ulysses") == 2
    assert mesh.groups("ulysses").tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("axis", ["ep", "etp", "ep_fsdp"])
def test_a_mesh_of_experts_cuts_no_rows(axis: str) -> None:
    view = DeviceMesh(np.arange(8).reshape(4, 2), ("dp", axis))
    for ask in (
        lambda: view.data_world_size,
        lambda: view.data_rank_of(0),
        view.data_ranks,
        lambda: view.slices(4),
        lambda: view.get_slice(4, 0),
        lambda: view.get_slice(4, global_rank=0),
        view.get_collect_ranks,
        lambda: view.get_data_rank_from_global_rank(0),
        view.placement,
        lambda: view.groups("data"),
    ):
        with pytest.raises(AxisError, match=f'declares "{axis}"'):
            ask()
    assert view.groups(axis).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert "cuts no rows" in view.explain(0)
