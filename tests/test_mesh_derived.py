"""Derived meshes: parts, other orders, merged and split axes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mesh_oracle import Naive, meshes, meshes_and_axes
from twinkle import DeviceMesh
from twinkle.errors import AxisError, MeshError, RankError

Drawn = tuple[Naive, tuple[str, ...]]


def sizes_of(naive: Naive, axes: tuple[str, ...]) -> dict[str, int]:
    return {axis: naive.size(axis) for axis in axes}


def part(naive: Naive, axes: tuple[str, ...], position: int) -> Any:
    """The table of these axes in that order, all others as at a position."""
    there = naive.coordinates[position]
    cut = naive.table[tuple(slice(None) if name in axes else there[at] for at, name in enumerate(naive.names))]
    kept = [name for name in naive.names if name in axes]
    return cut.transpose([kept.index(axis) for axis in axes])


@given(meshes_and_axes(), st.data())
def test_a_submesh_is_the_part_through_a_rank_in_the_order_asked(drawn: Drawn, data: st.DataObject) -> None:
    naive, axes = drawn
    position = data.draw(st.integers(0, len(naive.ranks) - 1))
    sub = naive.mesh.submesh(axes, naive.ranks[position])
    all_data = all(naive.size(axis) == 1 or axis in axes for axis in ("dp", "fsdp"))
    assert sub == DeviceMesh(part(naive, axes, position), axes, ulysses_size=naive.ulysses if all_data else None)
    assert sorted(sub.group_of(axes, naive.ranks[position])) == sorted(naive.mesh.group_of(axes, naive.ranks[position]))


def test_a_submesh_keeps_device_type_and_sequence_parallel_and_drops_the_rest() -> None:
    mesh = DeviceMesh.from_sizes(
        dp_size=4,
        pp_size=2,
        tp_size=2,
        ep_size=2,
        vpp_size=2,
        ulysses_size=2,
        sequence_parallel=True,
        device_type="npu",
    )
    sub = mesh.submesh(("tp", "pp"), 5)
    assert sub == DeviceMesh([[4, 12], [5, 13]], ("tp", "pp"), sequence_parallel=True, device_type="npu")
    assert mesh.submesh(("dp", "tp"), 0).ulysses_size == 2
    assert mesh.submesh("tp", 0).ulysses_size is None
    assert mesh.submesh(("cp", "tp"), 3).shape == (1, 2)
    assert mesh.submesh("fsdp", 3) == DeviceMesh([3], "fsdp", sequence_parallel=True, device_type="npu")
    with pytest.raises(RankError, match="rank 16 is not in this mesh"):
        mesh.submesh("tp", 16)
    with pytest.raises(AxisError, match=r"ep is 2 here only as an option.*expert_mesh\(\)"):
        mesh.submesh("ep", 0)
    with pytest.raises(AxisError, match="ulysses is 2 here only as an option"):
        mesh.submesh("ulysses", 0)
    with pytest.raises(AxisError, match="named twice"):
        mesh.submesh(("tp", "tp"), 0)
    with pytest.raises(AxisError, match='unknown axis "data"'):
        mesh.submesh("data", 0)
    with pytest.raises(MeshError, match="1 to 16 axes, not 0"):
        mesh.submesh((), 0)


def test_a_size_one_mesh_has_every_joint_axis() -> None:
    mesh = DeviceMesh.from_sizes(tp_size=2)
    for rank in (0, 1):
        assert mesh.submesh(("dp", "cp"), rank) == DeviceMesh([[rank]], ("dp", "cp"))
        assert list(mesh.group_of(("dp", "cp"), rank)) == [rank]
        assert mesh.index_in_group(("dp", "cp"), rank) == 0


@given(meshes().flatmap(lambda naive: st.tuples(st.just(naive), st.permutations(naive.names))))
def test_permuting_back_undoes_a_permutation(drawn: tuple[Naive, list[str]]) -> None:
    naive, order = drawn
    permuted = naive.mesh.permute(order)
    assert permuted == DeviceMesh(part(naive, tuple(order), 0), order, ulysses_size=naive.ulysses)
    assert permuted.permute(naive.names) == naive.mesh
    assert [permuted.data_rank_of(rank) for rank in naive.ranks] == [
        naive.mesh.data_rank_of(rank) for rank in naive.ranks
    ]


@pytest.mark.parametrize("axes", [(), "dp", ("dp", "pp"), ("dp", "tp", "pp"), ("dp", "dp")])
def test_a_permutation_names_every_axis_once(axes: Any) -> None:
    with pytest.raises(AxisError, match=r"permute needs each of the axes|named twice"):
        DeviceMesh.from_sizes(dp_size=2, tp_size=2).permute(axes)


@given(meshes_and_axes())
def test_a_merged_axis_counts_its_parts_in_the_order_asked_and_splits_back(drawn: Drawn) -> None:
    naive, axes = drawn
    merged = naive.mesh.flatten(axes, "merged")
    outermost = min(naive.names.index(axis) for axis in axes)
    order = [name for name in naive.names if name not in axes]
    names = [*order[:outermost], "merged", *order[outermost:]]
    order[outermost:outermost] = axes
    assert merged.mesh_dim_names == tuple(names)
    shape = [prod(sizes_of(naive, axes).values()) if name == "merged" else naive.size(name) for name in names]
    assert np.array_equal(merged.mesh, part(naive, tuple(order), 0).reshape(shape))
    assert merged.split("merged", sizes_of(naive, axes)) == naive.mesh
    again = DeviceMesh.from_dict(merged.to_dict())
    assert again == merged
    assert again.split("merged", sizes_of(naive, axes)) == naive.mesh


@given(meshes_and_axes(needs=("dp", "tp")))
def test_a_merged_data_axis_ends_every_question_about_rows_until_it_is_split(drawn: Drawn) -> None:
    naive, axes = drawn
    if not {"dp", "fsdp"} & set(axes):
        return
    view = naive.mesh.flatten(axes, "merged")
    for ask in (
        lambda: view.data_world_size,
        lambda: view.data_rank_of(naive.ranks[0]),
        view.data_ranks,
        view.get_collect_ranks,
        view.placement,
        lambda: view.slices(3),
        lambda: view.get_slice(3, global_rank=naive.ranks[0]),
        lambda: view.groups("data"),
    ):
        with pytest.raises(AxisError, match="split"):
            ask()
    for axis in axes:
        with pytest.raises(AxisError, match=f'axis "{axis}" is merged into "merged"'):
            view.get_dim_size(axis)
        with pytest.raises(AxisError, match="is merged into"):
            view.group_of(axis, naive.ranks[0])
        assert not view.has_dim(axis)
    assert "rows:" in view.explain(naive.ranks[0])
    assert view.split("merged", sizes_of(naive, axes)).data_ranks().tolist() == naive.mesh.data_ranks().tolist()


def test_joint_groups_of_the_field_log_keep_the_order_asked() -> None:
    mesh = DeviceMesh.from_sizes(dp_size=2, cp_size=2, tp_size=2)
    assert mesh.flatten(("dp", "cp"), "batch").group_of("batch", 0) == range(0, 8, 2)
    assert list(mesh.flatten(("dp", "tp"), "x").group_of("x", 0)) == [0, 1, 4, 5]
    assert list(mesh.flatten(("cp", "dp"), "x").group_of("x", 0)) == [0, 4, 2, 6]
    assert list(mesh.submesh(("cp", "dp"), 1).group_of(("cp", "dp"), 1)) == [1, 5, 3, 7]
    assert mesh.flatten(("dp", "cp"), "batch").group_of("batch", 1) == range(1, 9, 2)
    assert mesh.group_of(("cp", "dp"), 1) == range(1, 9, 2)


def test_merging_keeps_options_and_splitting_brings_them_back_into_force() -> None:
    mesh = DeviceMesh.from_sizes(
        dp_size=2,
        fsdp_size=2,
        pp_size=2,
        tp_size=2,
        ulysses_size=2,
        vpp_size=2,
        sequence_parallel=True,
        device_type="cpu",
    )
    view = mesh.flatten(("dp", "pp"), "outer")
    assert (view.ulysses_size, view.vpp_size, view.sequence_parallel, view.device_type) == (2, 2, True, "cpu")
    with pytest.raises(AxisError, match="split"):
        view.group_of("ulysses", 0)
    assert view.split("outer", {"dp": 2, "pp": 2}) == mesh
    assert mesh.flatten("tp", "inner").etp_world_size == mesh.etp_world_size == 2


def test_data_axes_in_data_order_merge_as_dp() -> None:
    mesh = DeviceMesh.from_sizes(fsdp_size=4, dp_size=2, tp_size=2, ulysses_size=2)
    merged = mesh.flatten(("dp", "fsdp"), "dp")
    assert merged.mesh_dim_names == ("dp", "tp")
    assert [merged.data_rank_of(rank) for rank in range(16)] == [mesh.data_rank_of(rank) for rank in range(16)]
    assert merged.get_slice(10, global_rank=3) == mesh.get_slice(10, global_rank=3)
    plain = DeviceMesh.from_axes({"dp": 2, "fsdp": 4, "tp": 2})
    assert plain.flatten(("dp", "fsdp"), "dp") == DeviceMesh.from_axes({"dp": 8, "tp": 2})
    assert plain.flatten(("dp", "fsdp"), "dp").split("dp", {"dp": 2, "fsdp": 4}) == plain


@pytest.mark.parametrize(
    ("axes", "name", "words"),
    [
        (("fsdp", "dp"), "dp", "cannot merge as"),
        (("dp", "tp"), "dp", "cannot merge as"),
        (("dp", "fsdp"), "tp", "cannot merge as"),
        (("dp", "fsdp"), "fsdp", "cannot merge as"),
        (("dp", "tp"), "sp", "cannot merge as"),
        (("dp", "tp"), "data", "no identifier"),
        (("dp", "tp"), "dp+tp", "no identifier"),
        (("dp", "tp"), "", "no identifier"),
        (("dp", "tp"), "1st", "no identifier"),
        (("dp", "tp"), 5, "is named by a text"),
        (("dp", "tp"), "\ud800", "is named by a text"),
        (("dp", "pp"), "x", 'axis "pp" is not declared here'),
        (("dp", "ddp"), "x", "named twice"),
        ((), "x", "at least one axis"),
        (("dp", "xp"), "x", "unknown axis"),
    ],
)
def test_a_merge_that_means_something_else_is_refused(axes: Any, name: Any, words: str) -> None:
    with pytest.raises(AxisError, match=words):
        DeviceMesh.from_axes({"dp": 2, "fsdp": 2, "tp": 2}).flatten(axes, name)


def test_a_merged_name_is_not_taken_twice() -> None:
    once = DeviceMesh.from_axes({"dp": 2, "cp": 2, "tp": 2}).flatten(("cp", "tp"), "x")
    with pytest.raises(AxisError, match="cannot merge as"):
        once.flatten("dp", "x")
    twice = once.flatten(("dp", "x"), "y")
    with pytest.raises(AxisError, match="is merged into"):
        twice.get_dim_size("tp")
    assert twice.split("y", {"dp": 2, "x": 4}) == once


@pytest.mark.parametrize(
    ("axis", "sizes", "words"),
    [
        ("dp", {"a": 2, "b": 3}, 'axis "dp" has size 8, but the parts multiply to 6'),
        ("dp", {}, "parts multiply to 1"),
        ("dp", {"a": 8, "tp": 1}, "named twice"),
        ("dp", {"a": -2, "b": -4}, "must be at least 1"),
        ("dp", {"a": True, "b": 8}, "must be a whole number"),
        ("dp", {"a b": 8}, "no identifier"),
        ("dp", [("a", 8)], "must map axis names to sizes"),
        ("dp", {5: 8}, "axes are a name"),
        ("pp", {"a": 1}, "not declared here"),
        ("xp", {"a": 1}, "unknown axis"),
        (5, {"a": 1}, "named by a text"),
        ("dp", {"a": 2**62, "b": 2**62}, "multiply to"),
    ],
)
def test_a_split_that_does_not_fit_is_refused(axis: Any, sizes: Any, words: str) -> None:
    with pytest.raises(MeshError, match=words):
        DeviceMesh.from_axes({"dp": 8, "tp": 2}).split(axis, sizes)


def test_a_merged_axis_splits_into_nothing_but_its_parts() -> None:
    merged = DeviceMesh.from_axes({"dp": 2, "tp": 4}).flatten(("tp", "dp"), "x")
    for other in ({"dp": 2, "tp": 4}, {"tp": 2, "dp": 4}, {"x": 8}, {"a": 4, "b": 2}):
        with pytest.raises(AxisError, match=r"splits into exactly these|multiply"):
            merged.split("x", other)
    assert merged.split("x", {"tp": 4, "ddp": 2}) == DeviceMesh.from_axes({"dp": 2, "tp": 4})


def test_neighbours_merge_at_any_size_and_others_up_to_the_table_limit() -> None:
    mesh = DeviceMesh.from_axes({"pp": 2**20, "dp": 2**20, "tp": 2**20})
    merged = mesh.flatten(("pp", "dp"), "outer")
    assert merged.strides == (2**20, 1)
    assert merged.split("outer", {"pp": 2**20, "dp": 2**20}) == mesh
    with pytest.raises(MeshError, match=f"a table of {2**60} ranks is longer than the {2**28}"):
        mesh.flatten(("pp", "tp"), "x")
