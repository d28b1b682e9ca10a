"""Rank, position and coordinate, one by one and all at once."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.mesh_oracle import Naive, meshes
from twinkle import DeviceMesh
from twinkle.errors import AxisError, RankError


class Indexed:
    """A number of somebody else's, which is an int by `__index__` only."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


class Stage(enum.IntEnum):
    LAST = 3


@given(meshes())
def test_rank_position_and_coordinate_are_what_the_table_says(naive: Naive) -> None:
    mesh = naive.mesh
    for position, (rank, coordinate) in enumerate(zip(naive.ranks, naive.coordinates, strict=True)):
        assert rank in mesh
        assert mesh.position_of(rank) == position
        assert mesh.rank_at(position) == rank
        assert mesh.coord_of(rank) == coordinate
        named = dict(zip(naive.names, coordinate, strict=True))
        assert mesh.coordinates(rank) == named
        assert mesh.rank_of(**named) == rank
    assert np.array_equal(mesh.mesh, naive.table)


@given(meshes(), st.integers() | st.integers(0, 100))
def test_a_number_that_is_no_rank_is_nowhere(naive: Naive, rank: int) -> None:
    assume(rank not in naive.ranks)
    mesh = naive.mesh
    assert rank not in mesh
    assert mesh.position_of(rank) is None
    assert mesh.coord_of(rank) is None
    assert mesh.coordinates(rank) is None
    assert mesh.data_rank_of(rank) is None
    with pytest.raises(RankError, match="is not in this mesh") as refusal:
        mesh.get_data_rank_from_global_rank(rank)
    assert refusal.value.world_size == len(naive.ranks)
    if not 0 <= rank < len(naive.ranks):
        with pytest.raises(RankError, match=rf"is not in 0\.\.{len(naive.ranks)}"):
            mesh.rank_at(rank)


@given(meshes(), st.data())
def test_coordinates_of_many_ranks_are_those_of_each(naive: Naive, data: st.DataObject) -> None:
    mesh = naive.mesh
    everyone = mesh.coords_of()
    assert everyone.dtype == np.int32
    assert [tuple(row) for row in everyone.tolist()] == naive.coordinates
    asked = data.draw(st.lists(st.sampled_from(naive.ranks)))
    found = mesh.coords_of(asked)
    assert found.shape == (len(asked), len(naive.names))
    assert [tuple(row) for row in found.tolist()] == [mesh.coord_of(rank) for rank in asked]


def test_coords_of_names_the_first_rank_outside() -> None:
    mesh = DeviceMesh([4, 5, 7])
    with pytest.raises(RankError, match="rank 6 is not in this mesh of 3 ranks between 4 and 7") as refusal:
        mesh.coords_of([4, 6, 9])
    assert (refusal.value.rank, refusal.value.lowest, refusal.value.highest) == (6, 4, 7)
    with pytest.raises(RankError, match="-1"):
        mesh.coords_of([-1])


@pytest.mark.parametrize("asked", [[0, 3], (0, 3), np.array([0, 3]), np.array([0, 3], np.uint8), range(0, 4, 3)])
def test_ranks_are_read_from_any_sequence(asked: Any) -> None:
    assert DeviceMesh.from_sizes(dp_size=2, tp_size=2).coords_of(asked).tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize("asked", [[0.0], [True], "01", [[0, 1]], 0, {0: 1}, [None], [1j], object()])
def test_ranks_of_other_kinds_are_refused(asked: Any) -> None:
    with pytest.raises(RankError):
        DeviceMesh.from_sizes(dp_size=4).coords_of(asked)


@pytest.mark.parametrize("three", [3, np.int64(3), np.uint8(3), Indexed(3), Stage.LAST])
def test_anything_with_an_index_is_a_rank(three: Any) -> None:
    mesh = DeviceMesh.from_sizes(dp_size=2, tp_size=2)
    assert three in mesh
    assert mesh.coord_of(three) == (1, 1)
    assert mesh.rank_at(three) == mesh.position_of(three) == 3
    one: tuple[Any, Any] = np.int8(1), Indexed(1)
    assert mesh.rank_of(dp=one[0], tp=one[1]) == 3
    assert list(mesh.group_of("tp", three)) == [2, 3]
    assert mesh.get_slice(three, global_rank=three) == slice(2, 3)
    assert mesh.coords_of([three]).tolist() == [[1, 1]]


@pytest.mark.parametrize("value", [True, False, np.True_, 1.0, "1", None, [1], 1j, b"1"])
def test_a_bool_a_float_and_a_text_are_no_rank(value: Any) -> None:
    mesh = DeviceMesh.from_sizes(dp_size=4)
    for ask in (mesh.position_of, mesh.coord_of, mesh.rank_at, mesh.data_rank_of, mesh.get_pp_stage_ranks):
        with pytest.raises(RankError, match="must be a whole number"):
            ask(value)
    with pytest.raises(RankError, match="must be a whole number"):
        assert value in mesh
    with pytest.raises(RankError, match="dp must be a whole number"):
        mesh.rank_of(dp=value)


def test_rank_of_may_leave_out_size_one_and_give_zero_for_undeclared_axes() -> None:
    mesh = DeviceMesh.from_sizes(dp_size=1, tp_size=4)
    assert mesh.rank_of(tp=2) == mesh.rank_of(tp=2, dp=0, pp=0, fsdp=0, sp=0) == 2
    with pytest.raises(AxisError, match='axis "tp" has 4 indices, so its index must be given'):
        mesh.rank_of(dp=0)
    with pytest.raises(RankError, match=r"pp=1 is not in 0\.\.1"):
        mesh.rank_of(tp=2, pp=1)
    with pytest.raises(RankError, match=r"tp=4 is not in 0\.\.4"):
        mesh.rank_of(tp=4)
    with pytest.raises(RankError, match=r"tp=-1 is not in 0\.\.4"):
        mesh.rank_of(tp=-1)
    with pytest.raises(AxisError, match='unknown axis "tq"; did you mean "tp"'):
        mesh.rank_of(tq=1)
    with pytest.raises(AxisError, match='"dp" is named twice'):
        mesh.rank_of(tp=1, dp=0, ddp=0)


def test_aliases_are_read_as_the_axes_they_mean() -> None:
    mesh = DeviceMesh(np.arange(8).reshape(2, 2, 2), ["ddp", "dp_shard", "sp"])
    assert mesh.mesh_dim_names == ("dp", "fsdp", "ulysses")
    assert mesh == DeviceMesh(np.arange(8).reshape(2, 2, 2), ["dp_replicate", "fsdp", "ulysses"])
    assert mesh.rank_of(dp_replicate=1, fsdp=0, sp=1) == 5
    assert mesh.has_dim("sp")
    assert mesh.get_dim_size("dp_shard") == 2
    assert mesh.data_world_size == 4


@pytest.mark.parametrize(("name", "nearest"), [("tpp", "tp"), ("DP", "dp"), ("fdsp", "fsdp"), ("ulyses", "ulysses")])
def test_an_unknown_axis_is_refused_with_the_nearest_one(name: str, nearest: str) -> None:
    mesh = DeviceMesh.from_sizes(dp_size=2)
    for ask in (mesh.has_dim, mesh.get_dim_size, mesh.groups, lambda name: mesh.group_of(name, 0)):
        with pytest.raises(AxisError, match=f'unknown axis "{name}"; did you mean "{nearest}"'):
            ask(name)


def test_sizes_of_axes_say_whether_they_are_declared() -> None:
    mesh = DeviceMesh.from_sizes(dp_size=8, tp_size=2, ulysses_size=4, ep_size=2, etp_size=2)
    assert [mesh.has_dim(name) for name in ("dp", "tp", "pp", "ulysses", "ep")] == [True, True, False, False, False]
    assert [mesh.get_dim_size(name) for name in ("dp", "tp", "pp", "cp", "fsdp", "ulysses")] == [8, 2, 1, 1, 1, 4]
    assert (mesh.dp_world_size, mesh.tp_world_size, mesh.pp_world_size) == (8, 2, 1)
    assert (mesh.ep_world_size, mesh.etp_world_size) == (2, 2)
    for name in ("ep", "etp"):
        with pytest.raises(AxisError, match=r"only as an option.*expert_mesh\(\)"):
            mesh.get_dim_size(name)
        with pytest.raises(AxisError, match=r"expert_mesh\(\)"):
            mesh.groups(name)
    assert DeviceMesh.from_sizes(tp_size=2).etp_world_size == 2
    assert DeviceMesh.from_sizes(tp_size=2).ep_world_size == 1


def test_coordinates_are_as_narrow_as_they_can_be() -> None:
    wide = DeviceMesh(np.array([0, 2**40]), ["tp"])
    assert wide.groups("tp").dtype == np.int64
    assert wide.coords_of().dtype == np.int32
    assert wide.data_ranks().dtype == np.int32
    assert DeviceMesh([0, 2**31 - 1]).groups("dp").dtype == np.int32
    assert DeviceMesh([0, 2**31]).groups("dp").dtype == np.int64
    assert wide.mesh.dtype == np.int64  # type: ignore[union-attr]
    assert wide.slices(4).dtype == np.int64
