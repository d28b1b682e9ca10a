"""The handed cases of meshes: every answer, every refusal, and the groups that Megatron makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import cases
from twinkle import DeviceMesh
from twinkle.errors import MeshError

MESHES = {case["id"]: case for case in cases("mesh")}
ACCEPTED = {case["id"]: case for case in cases("accepted")}
REFUSED = {case["id"]: case for case in cases("refusals")}
MEGATRON = {case["id"]: case for case in cases("megatron")["cases"]}


def made(case: dict[str, Any]) -> DeviceMesh:
    if "from_sizes" in case:
        return DeviceMesh.from_sizes(**case["from_sizes"])
    return DeviceMesh(case["mesh"], case["mesh_dim_names"], **case["options"])


def in_order(group: list[int], axes: str, mesh: DeviceMesh) -> bool:
    key = mesh.index_in_group(axes.split(","), group[0]), [mesh.index_in_group(axes.split(","), rank) for rank in group]
    return key == (0, list(range(len(group))))


@pytest.mark.parametrize("case", MESHES.values(), ids=MESHES)
def test_a_mesh_answers_as_its_case_says(case: dict[str, Any]) -> None:
    mesh, expect = made(case), dict(case["expect"])
    assert mesh.world_size == expect.pop("world_size")
    assert mesh.mesh_dim_names == tuple(expect.pop("names"))
    assert mesh.shape == tuple(expect.pop("shape"))
    for rank, coordinate in expect.pop("coordinates").items():
        assert mesh.coordinates(int(rank)) == coordinate
        assert mesh.coord_of(int(rank)) == tuple(coordinate.values())
        assert mesh.rank_of(**coordinate) == int(rank)
    assert mesh.data_world_size == expect.pop("data_world_size")
    data_ranks = {int(rank): data_rank for rank, data_rank in expect.pop("data_rank").items()}
    assert {rank: mesh.data_rank_of(rank) for rank in data_ranks} == data_ranks
    assert {rank: mesh.get_data_rank_from_global_rank(rank) for rank in data_ranks} == data_ranks
    assert mesh.data_ranks().tolist() == [data_ranks[int(rank)] for rank in np.ravel(np.asarray(mesh.mesh))]
    for axes, groups in expect.pop("groups").items():
        assert mesh.groups(axes.split(",")).tolist() == groups
        for group in groups:
            assert in_order(group, axes, mesh)
            assert all(list(mesh.group_of(axes.split(","), rank)) == group for rank in group)
    assert mesh.get_pp_first_ranks() == mesh.get_pp_stage_ranks(0) == expect["pp_first_ranks"]
    assert mesh.get_pp_last_ranks() == expect["pp_last_ranks"]
    assert mesh.get_tp_last_ranks() == expect["tp_last_ranks"]
    assert [rank for rank in sorted(data_ranks) if mesh.is_pp_first_rank(rank)] == expect.pop("pp_first_ranks")
    assert [rank for rank in sorted(data_ranks) if mesh.is_pp_last_rank(rank)] == expect.pop("pp_last_ranks")
    assert [rank for rank in sorted(data_ranks) if mesh.is_tp_last_rank(rank)] == expect.pop("tp_last_ranks")
    assert mesh.get_collect_ranks() == expect.pop("collect_ranks")
    for total, bounds in expect.pop("slices").items():
        assert mesh.slices(int(total)).tolist() == bounds
        for rank, data_rank in data_ranks.items():
            assert mesh.get_slice(int(total), global_rank=rank) == slice(*bounds[data_rank])
            assert mesh.get_slice(int(total), data_rank) == slice(*bounds[data_rank])
    assert not expect, "every expectation of a case is checked"


@pytest.mark.parametrize("case", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted_sizes_make_the_mesh_the_case_says(case: dict[str, Any]) -> None:
    mesh = made(case)
    expect = {key: value for key, value in case.items() if key not in ("id", "why", "from_sizes")}
    assert mesh.shape == tuple(expect.pop("shape"))
    assert mesh.mesh_dim_names == tuple(expect.pop("names"))
    if "data_ranks" in expect:
        assert mesh.data_ranks().tolist() == expect.pop("data_ranks")
    assert {name: getattr(mesh, name) for name in expect} == expect
    if "device_type" in case["from_sizes"]:
        assert mesh.device_type == case["from_sizes"]["device_type"]


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_refused_sizes_are_refused_with_the_words_the_case_says(case: dict[str, Any]) -> None:
    with pytest.raises(MeshError) as refusal:
        made(case)
    for word in case["must_mention"]:
        assert word in str(refusal.value)


def megatron_meshes(case: dict[str, Any]) -> list[DeviceMesh]:
    """The dense mesh of a case, by its order string where ranks begin at 0, and by its axes."""
    experts = case["id"].startswith("expert")
    # The expert cases count experts beside tp (their etp) and dp (what is left); the dense mesh holds them in dp.
    sizes = {name: case[name] for name in ("tp", "cp", "dp", "pp")}
    sizes["dp"] *= case["ep"] if experts else 1
    outermost_first = [name for name in reversed(case["order"].split("-")) if name != "ep"]
    axes = {name: sizes[name] for name in outermost_first}
    etp = case["tp"] if experts else None
    found = [DeviceMesh.from_axes(axes, offset=case["rank_offset"], ep_size=case["ep"], etp_size=etp)]
    if case["rank_offset"] == 0:
        given = {f"{name}_size": size for name, size in sizes.items()}
        found.append(DeviceMesh.from_sizes(**given, ep_size=case["ep"], etp_size=etp, order=case["order"]))
    return found


@pytest.mark.parametrize("case", MEGATRON.values(), ids=MEGATRON)
def test_groups_are_those_that_megatron_makes(case: dict[str, Any]) -> None:
    for mesh in megatron_meshes(case):
        assert mesh.order == case["order"]
        experts = case["id"].startswith("expert")
        asked = mesh.expert_mesh() if experts else mesh
        for name, groups in case["groups"].items():
            axes = ["etp" if axis == "tp" and experts else axis for axis in name.split("-")]
            assert asked.groups(axes).tolist() == groups, name
            for group in groups:
                assert list(asked.group_of(axes, group[-1])) == group
