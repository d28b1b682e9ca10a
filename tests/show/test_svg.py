"""The picture of a mesh as SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.meshes import meshes
from twinkle import DeviceMesh
from twinkle.errors import AxisError, MeshError
from twinkle.show.svg import COLOURS

SVG = "{http://www.w3.org/2000/svg}"
ACTOR = DeviceMesh.from_sizes(pp_size=2, dp_size=2, tp_size=2)


def fills(svg: str) -> dict[int, str]:
    """The colour of every rank that is drawn."""
    cells = (group for group in ElementTree.fromstring(svg).iter(f"{SVG}g") if group.get("class") == "cell")
    return {int(cell.get("data-rank", "")): cell.find(f"{SVG}rect").get("fill", "") for cell in cells}  # type: ignore[union-attr]


@settings(max_examples=30)
@given(meshes(), st.none() | st.integers(1, 20), st.integers(1, 100), st.booleans())
def test_a_picture_is_well_formed_and_draws_inside_itself(
    mesh: DeviceMesh, per: int | None, limit: int, dark: bool
) -> None:
    root = ElementTree.fromstring(mesh.to_svg(nproc_per_node=per, limit=limit, dark=dark))
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    for box in root.iter(f"{SVG}rect"):
        left, top = float(box.get("x", "0")), float(box.get("y", "0"))
        assert 0 <= left <= left + float(box.get("width", "")) <= width
        assert 0 <= top <= top + float(box.get("height", "")) <= height


@pytest.mark.parametrize("axis", ["pp", "dp", "tp"])
def test_ranks_are_coloured_by_their_index_along_an_axis(axis: str) -> None:
    found = fills(ACTOR.to_svg(color_by=axis))
    assert found == {rank: COLOURS[ACTOR.index_in_group(axis, rank) or 0] for rank in range(8)}


def test_ranks_are_coloured_by_data_rank_and_by_ulysses() -> None:
    mesh = DeviceMesh.from_sizes(dp_size=8, ulysses_size=2)
    assert fills(mesh.to_svg(color_by="data")) == {rank: COLOURS[rank // 2] for rank in range(8)}
    assert fills(mesh.to_svg(color_by="ulysses")) == {rank: COLOURS[rank % 2] for rank in range(8)}


def test_left_open_the_colour_is_tp_else_the_innermost_axis_above_one() -> None:
    assert "coloured by tp" in DeviceMesh.from_axes({"tp": 2, "dp": 2}).to_svg()
    assert "coloured by cp" in DeviceMesh.from_axes({"dp": 2, "cp": 2, "pp": 1}).to_svg()
    assert "coloured by dp" in DeviceMesh.from_sizes(dp_size=1).to_svg()


def test_colours_repeat_and_the_legend_says_so() -> None:
    svg = DeviceMesh.from_sizes(dp_size=20).to_svg()
    assert fills(svg)[9] == COLOURS[1]
    assert ">1, 9 ...<" in svg


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(AxisError, match=r"color_by must be one of \['pp', 'dp', 'tp', 'data'\], not 'cp'"):
        ACTOR.to_svg(color_by="cp")
    with pytest.raises((AxisError, MeshError)):
        DeviceMesh.from_sizes(dp_size=4, ep_size=2).expert_mesh().to_svg(color_by="data")
    with pytest.raises(MeshError, match="limit must be an integer >= 1, not 0"):
        ACTOR.to_svg(limit=0)


def test_a_picture_of_a_trillion_ranks_is_small() -> None:
    svg = DeviceMesh.from_axes({"dp": 2**40}).to_svg(nproc_per_node=8)
    assert len(fills(svg)) == 1024
    assert "1099511626752 more ranks, up to 1099511627775" in svg


def test_a_notebook_shows_the_picture() -> None:
    assert ACTOR.to_svg() in ACTOR._repr_html_()
    assert "<svg" in DeviceMesh(np.array([4, 2, 9]))._repr_html_()
