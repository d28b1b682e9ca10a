"""What went wrong for others: sections A, B, C and L of the field log, each kind with its right numbers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from tests.support import run_python
from twinkle import DeviceGroup, DeviceMesh
from twinkle.errors import AxisError, MeshError, RankError
from twinkle.platform import Platform


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda rank: monkeypatch.setattr(Platform, "get_rank", staticmethod(lambda: rank))


# A. Rank, coordinate, members.


def test_b01_a_size_is_how_many_ranks_a_group_has_not_how_many_groups_there_are() -> None:
    # dp, cfg, pp, sp, tp outermost first; cfg is cp here.
    mesh = DeviceMesh.from_axes({"dp": 2, "cp": 2, "pp": 2, "sp": 2, "tp": 1})
    assert mesh.groups("dp").tolist() == [[rank, rank + 8] for rank in range(8)]
    assert mesh.groups("cp").tolist()[:4] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert mesh.groups("cp").tolist()[4:] == [[8, 12], [9, 13], [10, 14], [11, 15]]
    assert mesh.groups("sp").tolist() == [[rank, rank + 1] for rank in range(0, 16, 2)]
    assert mesh.groups("pp").tolist()[:3] == [[0, 2], [1, 3], [4, 6]]
    for axis in ("dp", "cp", "pp", "sp", "tp"):
        assert sorted(mesh.groups(axis).reshape(-1).tolist()) == list(range(16))
        assert mesh.groups(axis).shape == (16 // mesh.get_dim_size(axis), mesh.get_dim_size(axis))


def test_b03_the_axis_order_is_chosen_and_shown() -> None:
    mesh = DeviceMesh(np.arange(6).reshape(3, 2), ("dp", "pp"))
    assert [mesh.coord_of(rank) for rank in range(6)] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert mesh == DeviceMesh.from_sizes(dp_size=3, pp_size=2, order=("dp", "pp"))
    assert repr(mesh) == "DeviceMesh(dp=3, pp=2)"
    assert repr(DeviceMesh.from_sizes(dp_size=3, pp_size=2)) == "DeviceMesh(pp=2, dp=3)"


@pytest.mark.parametrize("offset", [0, 8])
def test_b04_every_group_comes_from_the_same_order_and_offset(offset: int) -> None:
    default = DeviceMesh.from_axes({"pp": 2, "dp": 2, "tp": 2}, offset=offset)
    other = DeviceMesh.from_axes({"dp": 2, "pp": 2, "tp": 2}, offset=offset)
    assert (default.order, other.order) == ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
    assert (default.groups("dp") - offset).tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert (other.groups("dp") - offset).tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert (other.groups("pp") - offset).tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert other.expert_mesh().offset == other.submesh(("dp", "tp"), offset).offset == offset


def test_b06_an_axis_above_one_that_the_order_lacks_is_refused() -> None:
    sizes: dict[str, Any] = {"world_size": 8, "tp_size": 2, "pp_size": 2, "dp_size": 2}
    with pytest.raises(AxisError, match=r'pp_size is 2, but the order \["dp", "tp"\] does not name pp'):
        DeviceMesh.from_sizes(**sizes, order=("dp", "tp"))
    mesh = DeviceMesh.from_sizes(**sizes, order=("dp", "pp", "tp"))
    places = {(mesh.data_rank_of(rank), mesh.index_in_group(("pp", "tp"), rank)): rank for rank in range(8)}
    assert places == {divmod(rank, 4): rank for rank in range(8)}


def test_b08_experts_are_counted_by_the_index_in_the_ep_group() -> None:
    experts = DeviceMesh.from_sizes(pp_size=2, dp_size=2, ep_size=2).expert_mesh()
    assert experts.groups("ep").tolist() == [[0, 1], [2, 3]]
    first = {rank: 4 * (experts.index_in_group("ep", rank) or 0) for rank in range(4)}
    assert {rank: (start, start + 4) for rank, start in first.items()} == {0: (0, 4), 1: (4, 8), 2: (0, 4), 3: (4, 8)}


@pytest.mark.parametrize(
    ("axes", "rank", "members"),
    [
        (("dp", "cp"), 0, [0, 2, 4, 6]),
        (("dp", "tp"), 0, [0, 1, 4, 5]),
        (("cp", "dp"), 0, [0, 4, 2, 6]),
        (("dp", "cp"), 1, [1, 3, 5, 7]),
    ],
)
def test_b10_merged_axes_keep_the_order_asked_and_groups_the_order_of_positions(
    axes: tuple[str, ...], rank: int, members: list[int]
) -> None:
    mesh = DeviceMesh.from_sizes(dp_size=2, cp_size=2, tp_size=2)
    assert list(mesh.flatten(axes, "joint").group_of("joint", rank)) == members
    assert np.asarray(mesh.submesh(axes, rank).mesh).reshape(-1).tolist() == members
    assert list(mesh.group_of(axes, rank)) == sorted(members)


# B. Sub-meshes and ranks that are not members.


@pytest.mark.parametrize(("ranks", "outside"), [([2, 3], [0, 1]), ([1, 3], [0, 2]), ([3], [0, 1, 2]), ([3, 2], [0, 1])])
def test_b13_a_mesh_that_ends_at_the_last_rank_is_not_the_world(
    ranks: list[int], outside: list[int], become: Any
) -> None:
    mesh = DeviceMesh(ranks)
    assert mesh.world_size == len(ranks)
    assert [mesh.coord_of(rank) for rank in ranks] == [(place,) for place in range(len(ranks))]
    assert [mesh.coord_of(rank) for rank in outside] == [None] * len(outside)
    for rank in outside:
        become(rank)
        assert mesh.dp_rank is None
        assert rank not in mesh


def test_b14_a_rank_outside_the_mesh_is_told_so_and_gets_no_rows(become: Any) -> None:
    mesh = DeviceMesh([0, 2])
    assert 1 not in mesh
    with pytest.raises(RankError, match="rank 1 is not in this mesh of 2 ranks between 0 and 2"):
        mesh.group_of("dp", 1)
    become(0)
    other = DeviceMesh([2, 3])
    assert (other.dp_rank, other.data_rank) == (None, None)
    with pytest.raises(RankError, match=r"it is rank 0; ask slices\(10\) instead"):
        other.get_slice(10)


def test_b15_rows_are_cut_by_position_never_by_rank_number() -> None:
    mesh = DeviceMesh([4, 5, 6, 7])
    rows = list(range(8))
    assert [rows[mesh.get_slice(8, global_rank=rank)] for rank in (4, 5, 6, 7)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert mesh.get_collect_ranks() == [4, 5, 6, 7]
    with pytest.raises(RankError, match="rank 0 is not in this mesh"):
        mesh.get_data_rank_from_global_rank(0)


def test_b16_a_mesh_smaller_than_the_world_is_refused() -> None:
    assert DeviceMesh.from_sizes(world_size=16, fsdp_size=8).shape == (8, 2)
    wrong: list[tuple[dict[str, Any], str]] = [({"dp_size": 1, "fsdp_size": 8}, "8"), ({"fsdp_size": 6}, "6")]
    for sizes, size in wrong:
        with pytest.raises(MeshError) as refusal:
            DeviceMesh.from_sizes(world_size=16, **sizes)
        assert size in str(refusal.value)
        assert "16" in str(refusal.value)


# C. Sizes that do not fit.


@pytest.mark.parametrize("size", [0, -2, -100, True, 2.0, "2", None])
def test_b18_a_size_is_at_least_one_or_left_open(size: Any) -> None:
    if size is None:
        assert DeviceMesh.from_sizes(dp_size=None).shape == (1,)
    else:
        with pytest.raises(MeshError, match="dp_size"):
            DeviceMesh.from_sizes(dp_size=size)
    with pytest.raises(MeshError, match="give world_size"):
        DeviceMesh.from_sizes(dp_size=-1)
    with pytest.raises(MeshError, match="world_size is 8, but dp=2 = 2"):
        DeviceMesh.from_sizes(world_size=8, dp_size=2)


def test_b19_cp_is_counted_in_the_product() -> None:
    with pytest.raises(
        MeshError, match=r"world_size is 8, but .* = 64; cp ranks are counted in the product, unlike ulysses"
    ):
        DeviceMesh.from_sizes(world_size=8, fsdp_size=8, cp_size=8, dp_size=1)


def test_b20_axes_of_size_one_are_there_to_be_asked() -> None:
    mesh = DeviceMesh.from_axes({"tp": 2})
    for axes in ("dp", "cp", ("dp", "cp")):
        assert list(mesh.group_of(axes, 1)) == [1]
        assert mesh.index_in_group(axes, 1) == 0
    assert mesh.dp_world_size == mesh.cp_world_size == 1
    assert not mesh.has_dim("dp")
    assert mesh.dp_rank is None
    assert mesh.submesh(("dp", "cp"), 1).shape == (1, 1)


@pytest.mark.parametrize("data_rank", [4, 7, -1])
def test_b22_a_data_rank_outside_is_refused(data_rank: int) -> None:  # D12
    with pytest.raises(RankError, match=rf"data rank {data_rank} is not in 0\.\.4"):
        DeviceMesh.from_sizes(dp_size=4).get_slice(10, data_rank)
    with pytest.raises(MeshError, match="dp_size is 0"):
        DeviceMesh.from_sizes(dp_size=0).get_slice(10, data_rank)


@pytest.mark.parametrize("ep", [3, 16])
def test_b23_experts_fill_the_world_or_are_refused(ep: int) -> None:
    with pytest.raises(MeshError, match=rf"1 \* {ep} \* 1 = {ep} does not divide the world size 8"):
        DeviceMesh.from_sizes(dp_size=8, ep_size=ep)
    experts = DeviceMesh.from_sizes(dp_size=16, ep_size=2).expert_mesh()
    assert experts.groups("ep").tolist() == [[rank, rank + 1] for rank in range(0, 16, 2)]
    assert experts.groups("dp").tolist() == [list(range(0, 16, 2)), list(range(1, 16, 2))]


def test_b25_ulysses_peers_share_rows_and_the_groups_say_who_they_are() -> None:
    mesh = DeviceMesh.from_sizes(dp_size=8, ulysses_size=2)
    assert mesh.data_world_size == 4
    assert mesh.slices(64).tolist() == [[0, 16], [16, 32], [32, 48], [48, 64]]
    assert mesh.data_ranks().tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    with pytest.raises(MeshError, match="ulysses_size 3 does not divide"):
        DeviceMesh.from_sizes(dp_size=8, ulysses_size=3)
    trap = DeviceMesh.from_sizes(fsdp_size=4, dp_size=2, ulysses_size=2)
    assert trap.data_ranks().tolist() == [0, 2, 0, 2, 1, 3, 1, 3]
    assert sorted(trap.groups("ulysses").tolist()) == sorted([[0, 2], [4, 6], [1, 3], [5, 7]])
    for group in trap.groups("ulysses").tolist():
        assert len({trap.data_rank_of(rank) for rank in group}) == 1


# L. Small reports.


def test_b57a_a_mesh_is_a_value_that_travels_small_and_quietly(recwarn: pytest.WarningsRecorder) -> None:
    mesh = DeviceMesh(np.arange(4096).reshape(64, 64), ("dp", "tp"))
    assert len(pickle.dumps(mesh)) <= 400
    assert pickle.loads(pickle.dumps(mesh)) == mesh == copy.deepcopy(mesh)
    assert len({mesh, copy.copy(mesh)}) == 1
    assert DeviceMesh([0, 1, 2, 3]) != DeviceMesh([3, 2, 1, 0])
    assert not recwarn.list


def test_b57b_a_repr_shows_names_sizes_and_device_type_and_no_table() -> None:
    table = np.random.default_rng(3).permutation(4096).reshape(64, 64)
    mesh = DeviceMesh(table, ("dp", "tp"), device_type="npu")
    assert repr(mesh) == f"DeviceMesh(dp=64, tp=64, ranks=<table>, offset={table[0, 0]}, device_type='npu')"
    assert repr(mesh) == repr(copy.copy(mesh)) == str(mesh)
    assert f"rank {table[3, 5]} of " in mesh.explain(int(table[3, 5]))


def test_b57c_importing_the_mesh_loads_no_framework() -> None:
    code = """
import sys
import twinkle
from twinkle import DeviceMesh, DeviceGroup, Platform
print(sorted({"numpy", "torch", "ray", "torch_npu", "typer"} & {name.partition(".")[0] for name in sys.modules}))
"""
    assert run_python(code).strip() == "[]"


def test_b57d_documented_keywords_are_accepted_and_missing_stages_refused_clearly() -> None:  # D13
    group = DeviceGroup("g", [4, 5], "cuda", visible_devices="4,5", gpus_per_worker=1)
    assert group.visible_devices == ("4", "5")
    assert DeviceMesh([0, 1], None) == DeviceMesh([0, 1], mesh_dim_names=None) == DeviceMesh([0, 1])
    with pytest.raises(RankError, match=r"stage 1 is not in 0\.\.1 \(pp is not declared\)"):
        DeviceMesh([0, 1]).get_pp_stage_ranks(1)
