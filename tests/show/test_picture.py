"""What a picture of a mesh holds, and what it folds away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.meshes import meshes
from twinkle import DeviceMesh
from twinkle.show.picture import arranged, ascending


@given(meshes(), st.none() | st.integers(1, 20), st.integers(1, 80))
def test_every_rank_is_drawn_once_or_counted_once(mesh: DeviceMesh, per: int | None, limit: int) -> None:
    boxes = [box for stage in arranged(mesh, nproc_per_node=per, limit=limit) for box in stage.boxes]
    drawn = [rank for box in boxes for rank in box.ranks]
    assert len(drawn) == len(set(drawn)) == mesh.world_size - sum(box.folded for box in boxes)
    assert all(rank in mesh for rank in drawn)
    if mesh.world_size <= limit:
        assert len(drawn) == mesh.world_size


@given(meshes())
def test_a_stage_s_ranks_ascend(mesh: DeviceMesh) -> None:
    for stage in range(mesh.pp_world_size):
        assert list(ascending(mesh, stage)) == mesh.get_pp_stage_ranks(stage)


def test_a_box_is_a_node_of_one_stage() -> None:
    stages = arranged(DeviceMesh.from_sizes(pp_size=2, dp_size=2, tp_size=2), nproc_per_node=4)
    assert [(stage.title, [(box.title, box.ranks) for box in stage.boxes]) for stage in stages] == [
        ("stage 0", [("node 0", (0, 1, 2, 3))]),
        ("stage 1", [("node 1", (4, 5, 6, 7))]),
    ]


def test_rows_of_a_box_hold_whole_groups_of_the_fastest_axis() -> None:
    (stage,) = arranged(DeviceMesh.from_sizes(dp_size=8, tp_size=8))
    assert stage.boxes[0].columns == 8
    (stage,) = arranged(DeviceMesh.from_sizes(dp_size=1024))
    assert stage.boxes[0].columns == 32


def test_huge_meshes_are_folded_with_counts() -> None:
    stages = arranged(DeviceMesh.from_axes({"pp": 100, "dp": 2**30, "tp": 8}), nproc_per_node=8)
    assert [stage.title for stage in stages] == [*(f"stage {number}" for number in range(7)), "", "stage 99"]
    assert stages[7].boxes[0].title == f"92 more stages, {92 * 2**33} ranks"
    assert stages[0].boxes[-1].title == f"{2**33 - 128} more ranks, up to {2**33 - 1}"
    assert sum(len(box.ranks) for stage in stages for box in stage.boxes) == 1024


def test_a_node_that_does_not_fit_is_folded_inside() -> None:
    (stage,) = arranged(DeviceMesh.from_sizes(dp_size=1500), nproc_per_node=2000, limit=100)
    assert [(box.title, len(box.ranks)) for box in stage.boxes] == [("node 0", 100), ("1400 more ranks, up to 1499", 0)]
