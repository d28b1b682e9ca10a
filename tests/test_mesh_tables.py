"""Meshes from explicit ranks: array-likes of every kind, the equation behind a table, and tables that are none."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from numpy.typing import NDArray

from tests.mesh_oracle import Naive, meshes
from twinkle import DeviceMesh
from twinkle.errors import AxisError, MeshError, RankError

TABLE = [[2, 0], [3, 1]]


@pytest.mark.parametrize(
    "table",
    [
        TABLE,
        tuple(map(tuple, TABLE)),
        [np.array([2, 0]), (3, 1)],
        [range(2, -2, -2), range(3, 0, -2)],
        np.array(TABLE),
        np.array(TABLE, np.uint8),
        np.array(TABLE, ">i4"),
        np.array(TABLE, np.uint64),
        np.array(TABLE, object),
        np.asfortranarray(TABLE),
        np.array([[2, 9, 0], [3, 9, 1]])[:, ::2],
        torch.tensor(TABLE),
        [[np.int64(2), torch.tensor(0)], [3, np.uint8(1)]],
        np.array(TABLE).data,
    ],
)
def test_a_table_is_read_from_any_array_like(table: Any) -> None:
    mesh = DeviceMesh(table, ("dp", "tp"))
    assert mesh == DeviceMesh(TABLE, ["dp", "tp"])
    assert mesh.mesh.tolist() == TABLE  # type: ignore[union-attr]
    assert (mesh.shape, mesh.offset, mesh.strides) == ((2, 2), 2, (1, -2))


@pytest.mark.parametrize("ranks", [[3, 5, 6], (3, 5, 6), deque([3, 5, 6]), iter([3, 5, 6])])
def test_names_left_out_mean_one_axis_dp(ranks: Any) -> None:
    mesh = DeviceMesh(ranks)
    assert mesh == DeviceMesh([3, 5, 6], "dp") == DeviceMesh([3, 5, 6], None) == DeviceMesh([3, 5, 6], ["ddp"])
    assert mesh.mesh_dim_names == ("dp",)


@given(meshes())
def test_an_array_reads_back_read_only_and_the_same_each_time(naive: Naive) -> None:
    mesh = naive.mesh
    array = mesh.mesh
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.int64
    assert np.array_equal(array, naive.table)
    assert array is mesh.mesh
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 0
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_changing_the_array_that_was_given_changes_no_mesh() -> None:
    table = np.array([3, 1, 2])
    mesh = DeviceMesh(table)
    table[0] = 7
    assert mesh.coord_of(3) == (0,)
    assert 7 not in mesh


@given(meshes())
def test_strides_are_those_of_the_table_where_it_has_any(naive: Naive) -> None:
    mesh = naive.mesh
    assert mesh.offset == naive.ranks[0]
    if mesh.strides is not None:
        steps = np.tensordot(np.indices(naive.table.shape), np.array(mesh.strides, dtype=object), axes=(0, 0))
        assert np.array_equal(steps + mesh.offset, naive.table)


@pytest.mark.parametrize(
    ("table", "names", "strides"),
    [
        (np.arange(6).reshape(2, 3), ("dp", "tp"), (3, 1)),
        (np.arange(6).reshape(2, 3).T, ("tp", "dp"), (1, 3)),
        (np.arange(0, 24, 4).reshape(2, 3), ("dp", "tp"), (12, 4)),
        (np.arange(6)[::-1].reshape(2, 3), ("dp", "tp"), (-3, -1)),
        ([[0, 1], [10, 11]], ("dp", "tp"), (10, 1)),
        ([[[5, 7]]], ("pp", "dp", "tp"), (4, 4, 2)),
        ([[4], [6]], ("dp", "tp"), (2, 1)),
        ([[9]], ("dp", "tp"), (1, 1)),
        ([[0, 3], [2, 5]], ("dp", "tp"), (2, 3)),
        ([0, 1, 3], ("dp",), None),
        ([[0, 1], [3, 2]], ("dp", "tp"), None),
        # An equation, but rank 3 is three of the outer or one and a half of the inner: the strides do not nest.
        ([[0, 2, 4], [3, 5, 7]], ("dp", "tp"), None),
    ],
)
def test_an_equation_is_recognised(table: Any, names: tuple[str, ...], strides: tuple[int, ...] | None) -> None:
    mesh = DeviceMesh(table, names)
    if strides == (2, 3):
        # 3 is less than two steps of 2: these do not nest either.
        assert mesh.strides is None
    else:
        assert mesh.strides == strides
    assert [mesh.coord_of(int(rank)) for rank in np.ravel(table)] == [*np.ndindex(*np.shape(table))]


def test_a_table_with_an_equation_is_the_mesh_made_from_sizes() -> None:
    table = DeviceMesh(np.arange(24).reshape(2, 3, 4), ("pp", "dp", "tp"))
    made = DeviceMesh.from_sizes(pp_size=2, dp_size=3, tp_size=4)
    assert table == made
    assert hash(table) == hash(made)
    assert table == DeviceMesh.from_axes({"pp": 2, "dp": 3, "tp": 4})


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0, 2**62, 1), (5, 2**62, 2**20), (2**62, -1, -(2**31)), (7, 8, 1)]
)
def test_a_range_of_any_length_makes_no_array(start: int, stop: int, step: int) -> None:
    ranks = range(start, stop, step)
    mesh = DeviceMesh(ranks, ["tp"])
    assert (mesh.offset, mesh.strides) == (ranks[0], (step if mesh.world_size > 1 else 1,))
    assert mesh.rank_at(mesh.world_size - 1) == ranks[-1]
    assert mesh.group_of("tp", ranks[-1])[-1] == ranks[-1]
    assert ranks[mesh.world_size // 2] in mesh
    assert (start + 1 in mesh) == (abs(step) == 1 and mesh.world_size > 1)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([0, 1, 0], "rank 0 is at two positions, 0 and 2"),
        ([[1, 2], [3, 1]], "rank 1 is at two positions, 0 and 3"),
        ([0, 2**40, 2**40], f"rank {2**40} is at two positions, 1 and 2"),
        ([0, 0], "rank 0 is at two positions, 0 and 1"),
        ([0, -1], "rank -1 is negative"),
        (range(3, -3, -2), "rank -1 is negative"),
        ([2**63], rf"rank {2**63} is too large"),
        (np.array([2**63], np.uint64), rf"rank {2**63} is too large"),
        (range(2**62, 2**64, 2**62), "too large"),
        ([2**70, 1], rf"at most {2**63 - 1}"),
        ([0.0, 1.0], "must be whole numbers, not 0.0"),
        (np.array([0.0, 1.0]), "not float64"),
        (np.array([True, False]), "not bool"),
        ([True, 2], "must be whole numbers, not True"),
        ([np.True_, 2], "must be whole numbers"),
        ([np.array([True]), [2]], "must be whole numbers"),
        (["0", "1"], "must be whole numbers, not '0'"),
        ("01", "array of ranks, not a str"),
        (b"01", "array of ranks, not a bytes"),
        ({0, 1}, "array of ranks, not a set"),
        ({0: 1}, "array of ranks, not a dict"),
        (None, "array of ranks, not a NoneType"),
        (object(), "must be an array of ranks"),
        ([[0, 1], [2]], "must be an array of ranks"),
        (np.array([0, 1], "datetime64[s]"), "whole numbers"),
        (np.ma.masked_array([0, 1], [False, True]), "masked"),
        ([None], "must be whole numbers, not None"),
    ],
)
def test_ranks_that_are_none_are_refused(ranks: Any, words: str) -> None:
    names = ("dp", "tp") if isinstance(ranks, list) and ranks and isinstance(ranks[0], list) else None
    with pytest.raises(RankError, match=words):
        DeviceMesh(ranks, names)


@pytest.mark.parametrize(
    ("table", "names", "kind", "words"),
    [
        (5, None, MeshError, "array of ranks|at least one dimension"),
        (np.int64(5), None, MeshError, "at least one dimension"),
        ([], None, MeshError, "dp is 0; it must be at least 1"),
        ([[], []], ["dp", "tp"], MeshError, "tp is 0"),
        (range(0), None, MeshError, "dp is 0"),
        ([[0, 1]], None, MeshError, 'has 2 dimensions, but mesh_dim_names is \\["dp"\\]'),
        ([0, 1], ["dp", "tp"], MeshError, "has 1 dimensions"),
        ([0, 1], [], MeshError, "one name per dimension"),
        ([[0, 1]], ["dp", "ddp"], AxisError, '"dp" is named twice'),
        ([0, 1], ["tq"], AxisError, 'unknown axis "tq"; did you mean "tp"'),
        ([0, 1], "rows", AxisError, "unknown axis"),
        ([0, 1], 5, AxisError, "axes are a name"),
        ([0, 1], [5], AxisError, "axes are a name"),
        ([[0, 1]], {"dp", "tp"}, AxisError, "axes are a name"),
        (np.zeros((1,) * 17, int), ["dp"] * 17, MeshError, "."),
        (np.broadcast_to(np.int64(0), (2**15, 2**15)), ["dp", "tp"], MeshError, f"{2**30} ranks, more than"),
        (range(2**40), ["dp", "tp"], MeshError, f"{2**40} ranks, more than"),
        ([range(2**40)], ["dp", "tp"], MeshError, f"{2**40} ranks, more than"),
    ],
)
def test_tables_that_make_no_mesh_are_refused(table: Any, names: Any, kind: type[MeshError], words: str) -> None:
    with pytest.raises(kind, match=words):
        DeviceMesh(table, names)


def test_a_list_inside_itself_is_refused() -> None:
    endless: list[Any] = []
    endless += [endless, endless]
    with pytest.raises(MeshError, match="more than 16 dimensions"):
        DeviceMesh(endless)


def test_every_rank_of_a_sparse_table_is_found() -> None:
    generator = np.random.default_rng(5)
    table: NDArray[np.int64] = generator.choice(2**40, 5000, replace=False).astype(np.int64)
    mesh = DeviceMesh(table.reshape(50, 100), ("dp", "tp"))
    assert mesh.strides is None
    assert mesh.coords_of(table).tolist() == [list(divmod(position, 100)) for position in range(5000)]
    assert not any(int(rank) + 1 in mesh for rank in table if rank + 1 not in table)
