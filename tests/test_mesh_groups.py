"""Groups: who is in them, in which order, and where a rank stands in its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.mesh_oracle import Naive, meshes, meshes_and_axes
from twinkle import DeviceMesh
from twinkle.errors import AxisError, MeshError, RankError

DATA = ("dp", "fsdp")


def check(naive: Naive, axes: Any, own: Any) -> None:
    mesh = naive.mesh
    for position, rank in enumerate(naive.ranks):
        group = own(position)
        found = mesh.group_of(axes, rank)
        assert list(found) == naive.at(group)
        assert mesh.index_in_group(axes, rank) == group.index(position)
        steps = set(np.diff(naive.at(group)).tolist())
        assert isinstance(found, range if len(steps) < 2 else tuple)
    assert mesh.groups(axes).tolist() == naive.partition(own)


@given(meshes_and_axes())
def test_a_group_is_who_differs_only_along_its_axes_in_position_order(drawn: tuple[Naive, tuple[str, ...]]) -> None:
    naive, axes = drawn
    check(naive, axes if len(axes) > 1 else axes[0], lambda position: naive.peers(axes, position))


@given(meshes_and_axes(needs=("dp", "tp")))
def test_data_names_the_members_of_all_data_axes(drawn: tuple[Naive, tuple[str, ...]]) -> None:
    naive, axes = drawn
    others = tuple(axis for axis in axes if axis not in DATA)
    check(naive, ("data", *others), lambda position: naive.peers((*DATA, *others), position))


@given(meshes(needs=DATA, least=2))
def test_ulysses_names_who_shares_rows_in_data_order(naive: Naive) -> None:
    if "ulysses" not in naive.names:
        check(naive, "ulysses", naive.ulysses_peers)
        check(naive, ["ulysses", "fsdp", "dp"], lambda position: naive.peers(DATA, position))


@given(meshes_and_axes(needs=("dp", "tp")))
def test_groups_are_disjoint_and_cover_the_mesh(drawn: tuple[Naive, tuple[str, ...]]) -> None:
    naive, axes = drawn
    groups = naive.mesh.groups(axes)
    assert sorted(groups.reshape(-1).tolist()) == sorted(naive.ranks)


def test_the_trap_of_the_field_log_ulysses_groups_follow_data_order() -> None:
    mesh = DeviceMesh.from_sizes(fsdp_size=4, dp_size=2, ulysses_size=2)
    assert mesh.data_ranks().tolist() == [0, 2, 0, 2, 1, 3, 1, 3]
    assert mesh.groups("ulysses").tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]


def test_ulysses_peers_of_which_the_lowest_is_not_the_first_are_still_in_data_order() -> None:
    # fsdp counts slower than dp, and a data rank takes 6 of 12: fsdp 2, 3 of dp 0 lie behind fsdp 0, 1 of dp 1.
    mesh = DeviceMesh.from_sizes(fsdp_size=4, dp_size=3, ulysses_size=6)
    assert list(mesh.group_of("ulysses", 0)) == [0, 3, 6, 9, 1, 4]
    assert mesh.groups("ulysses").tolist() == [[0, 3, 6, 9, 1, 4], [7, 10, 2, 5, 8, 11]]
    assert mesh.get_collect_ranks() == [0, 2]


def test_a_group_of_undeclared_axes_is_oneself() -> None:
    mesh = DeviceMesh.from_sizes(tp_size=2)
    for axes in ("pp", "ep", ("pp", "cp"), "ulysses", ()):
        assert list(mesh.group_of(axes, 1)) == [1]
        assert mesh.index_in_group(axes, 1) == 0
        assert mesh.groups(axes).tolist() == [[0], [1]]


@pytest.mark.parametrize("order", [("tp", "dp"), ("dp", "tp"), ["tp", "dp"], iter(("tp", "dp"))])
def test_the_order_in_which_axes_are_named_changes_nothing(order: Any) -> None:
    mesh = DeviceMesh.from_sizes(dp_size=2, pp_size=2, tp_size=2)
    assert list(mesh.group_of(order, 5)) == [4, 5, 6, 7]


@pytest.mark.parametrize("axes", [("tp", "tp"), ("dp", "ddp"), ("data", "dp"), ("sp", "ulysses")])
def test_an_axis_named_twice_is_refused(axes: tuple[str, ...]) -> None:
    mesh = DeviceMesh.from_sizes(dp_size=2, tp_size=2)
    for ask in (mesh.groups, lambda axes: mesh.group_of(axes, 0), lambda axes: mesh.index_in_group(axes, 0)):
        with pytest.raises(AxisError, match="is named twice"):
            ask(axes)


@pytest.mark.parametrize("axes", [None, 3, b"dp", ["dp", 3], {"dp": 1}, {"dp"}, frozenset({"dp"}), object(), "\ud800"])
def test_axes_of_other_kinds_are_refused(axes: Any) -> None:
    mesh = DeviceMesh.from_sizes(dp_size=2)
    for ask in (mesh.groups, mesh.permute, lambda axes: mesh.group_of(axes, 0), lambda axes: mesh.submesh(axes, 0)):
        with pytest.raises(AxisError, match=r"axes are a name or a sequence of names|unknown axis"):
            ask(axes)


def test_ulysses_beside_one_of_two_data_axes_is_refused() -> None:
    mesh = DeviceMesh.from_sizes(fsdp_size=2, dp_size=2, ulysses_size=2)
    with pytest.raises(AxisError, match='beside "fsdp" name "dp" too'):
        mesh.groups(("ulysses", "fsdp"))
    one = DeviceMesh.from_sizes(fsdp_size=4, ulysses_size=2)
    assert one.groups(("ulysses", "fsdp")).tolist() == [[0, 1, 2, 3]]


def test_nobody_outside_the_mesh_has_a_group() -> None:
    mesh = DeviceMesh([2, 3])
    assert mesh.index_in_group("dp", 0) is None
    for rank in (0, 4, -1, 2**80):
        with pytest.raises(
            RankError, match=rf"rank {min(rank, 2**127 - 1)} is not in this mesh of 2 ranks between 2 and 3"
        ):
            mesh.group_of("dp", rank)


def test_a_group_of_any_length_is_a_range() -> None:
    mesh = DeviceMesh.from_axes({"pp": 2**20, "dp": 2**20, "tp": 2**20})
    assert mesh.group_of("dp", 5) == range(5, 5 + 2**40, 2**20)
    assert mesh.group_of(("dp", "tp"), 2**40 + 1) == range(2**40, 2**41)
    assert mesh.group_of("data", 7) == mesh.group_of("dp", 7)
    with pytest.raises(MeshError, match=rf"the answer has {2**40} ranks one by one") as refusal:
        mesh.group_of(("pp", "tp"), 0)
    assert (refusal.value.count, refusal.value.limit) == (2**40, 2**24)
    with pytest.raises(MeshError, match="bytes"):
        mesh.groups("tp")


def test_groups_of_reversed_ranks_descend_where_positions_ascend() -> None:
    mesh = DeviceMesh([[7, 6], [5, 4], [3, 2]], ["dp", "tp"])
    assert mesh.strides == (-2, -1)
    assert mesh.group_of("dp", 4) == range(6, 0, -2)
    assert mesh.group_of("tp", 2) == range(3, 1, -1)
    assert mesh.groups("tp").tolist() == [[7, 6], [5, 4], [3, 2]]
    assert mesh.group_of(("dp", "tp"), 4) == range(7, 1, -1)
