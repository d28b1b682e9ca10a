"""The answers behind the command, against the mesh's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.meshes import CASES, mesh_of, meshes
from twinkle import DeviceMesh
from twinkle.errors import AxisError, MeshError, RankError
from twinkle.show.answers import Shares, about_mesh, about_rank, about_slices, groups_along, listed_groups

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
SHARED = st.builds(
    lambda dp, fsdp, ulysses, order: DeviceMesh.from_sizes(
        dp_size=dp,
        fsdp_size=fsdp,
        tp_size=2,
        pp_size=2,
        ulysses_size=ulysses if dp * fsdp % ulysses == 0 else 1,
        order=order,
    ),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 8),
    st.permutations(["dp", "fsdp", "tp", "pp"]),
)


@given(SHARED)
def test_shares_are_the_mesh_s_own(mesh: DeviceMesh) -> None:
    shares = Shares(mesh)
    assert [shares.collected_from(data_rank) for data_rank in range(len(shares))] == mesh.get_collect_ranks()
    for data_rank in range(len(shares)):
        same = [rank for rank in range(mesh.world_size) if mesh.data_rank_of(rank) == data_rank]
        assert sorted(shares.ranks(data_rank)) == same
        first = shares.collected_from(data_rank, first_stage=True)
        assert (mesh.coordinates(first) or {})["pp"] == 0
        assert mesh.data_rank_of(first) == data_rank


@given(SHARED | meshes(), st.data())
def test_groups_one_by_one_are_the_array_of_groups(mesh: DeviceMesh, data: st.DataObject) -> None:
    names = [*(mesh.mesh_dim_names or ()), *(["ulysses"] if (mesh.ulysses_size or 1) > 1 else [])]
    axes = data.draw(st.lists(st.sampled_from(names), unique=True).filter(lambda chosen: _mixable(mesh, chosen)))
    assert listed_groups(mesh, axes) == mesh.groups(axes).tolist()
    assert [list(group) for group in groups_along(mesh, axes)[:3]] == mesh.groups(axes)[:3].tolist()


def _mixable(mesh: DeviceMesh, axes: list[str]) -> bool:
    try:
        mesh.group_of(axes, mesh.rank_at(0))
    except AxisError:
        return False
    return True


@each_case
def test_the_answers_about_a_mesh_and_its_ranks_are_the_handed_ones(case: dict[str, Any]) -> None:
    mesh, expected = mesh_of(case), case["expect"]
    about, batch = about_mesh(mesh), int(next(iter(expected["slices"])))
    for key in ("world_size", "names", "shape", "data_world_size"):
        assert about[key] == expected[key]
    for name, groups in expected["groups"].items():
        if name in about["names"]:
            assert next(axis["groups"] for axis in about["axes"] if axis["name"] == name) == len(groups)
    for rank, coordinates in expected["coordinates"].items():
        answer = about_rank(mesh, int(rank), batch=batch)
        assert answer["coordinates"] == coordinates
        assert answer["data_rank"] == expected["data_rank"][rank]
        assert answer["rows"] == expected["slices"][str(batch)][answer["data_rank"]]
        for name, group in answer["groups"].items():
            assert list(group["ranks"])[group["index"]] == int(rank)
            assert list(group["ranks"]) in expected["groups"].get(name, [list(group["ranks"])])


@each_case
def test_slices_are_the_handed_ones(case: dict[str, Any]) -> None:
    for batch, slices in case["expect"]["slices"].items():
        found = about_slices(mesh_of(case), int(batch))
        assert found["slices"] == slices
        assert found["collected_from"] == case["expect"]["collect_ranks"]


def test_an_axis_that_leaves_its_node_is_warned_of_where_it_is_slow() -> None:
    mesh = DeviceMesh.from_sizes(pp_size=2, tp_size=8)
    assert about_mesh(mesh, 8)["warnings"] == []
    (warning,) = about_mesh(mesh, 4)["warnings"]
    assert warning == "tp leaves the node: its groups of 8 ranks span up to 2 nodes of 4 ranks"


def test_a_view_answers_about_groups_and_refuses_rows() -> None:
    view = DeviceMesh.from_sizes(dp_size=4, tp_size=2, ep_size=2).expert_mesh()
    assert about_mesh(view)["data_world_size"] is None
    assert "data_rank" not in about_rank(view, 3)
    with pytest.raises((AxisError, MeshError), match=r"rows|data"):
        about_rank(view, 3, batch=8)


def test_a_rank_outside_is_refused() -> None:
    with pytest.raises(RankError, match="rank 8"):
        about_rank(DeviceMesh.from_sizes(dp_size=8), 8)


def test_lists_that_are_too_long_are_refused_before_they_are_made() -> None:
    with pytest.raises(MeshError, match="33554432 ranks are more than"):
        listed_groups(DeviceMesh.from_axes({"dp": 2**25}), "dp")
    with pytest.raises(MeshError, match="33554432 data ranks are more than"):
        about_slices(DeviceMesh.from_axes({"dp": 2**25}), 8)
