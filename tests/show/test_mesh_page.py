"""The page of a mesh, in a real browser: pointing, tapping, searching, the keyboard, and every rank's groups."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.meshes import CASES, mesh_of, ranks_of
from twinkle import DeviceMesh
from twinkle.errors import MeshError
from twinkle.show.answers import group_axes
from twinkle.show.fold import folded
from twinkle.show.page import mesh_page

if TYPE_CHECKING:
    from tests.show.conftest import Browser

ACTOR = DeviceMesh.from_sizes(pp_size=2, dp_size=2, tp_size=2)
MODEL = """
return mesh.names.length && ranks(arguments[0]);
function ranks(all) {
  return all.map((rank) => {
    const coordinate = coordinateOf(rank);
    if (coordinate === null) return null;
    const groups = mesh.axes.map((name) => {
      const { size, index, at } = groupOf(name, rank);
      return [index, Array.from({ length: size }, (_, place) => at(place)), folded({ size, at })];
    });
    const lit = mesh.axes.map((name) =>
      cells.filter((cell) => together(name, coordinate, cell.coordinate)).map((cell) => cell.rank));
    return [coordinate, rankOf(coordinate), groups, dataRankOf(coordinate), rowsOf(dataRankOf(coordinate)), lit];
  });
}
"""
MESHES = [(case["id"], mesh_of(case)) for case in CASES] + [
    ("descending", DeviceMesh(np.arange(24).reshape(2, 3, 4)[::-1, :, ::-1] * 3 + 5, ("pp", "dp", "tp"))),
    ("ulysses-across-two-axes", DeviceMesh.from_sizes(fsdp_size=3, dp_size=2, tp_size=2, ulysses_size=2)),
    ("shuffled", DeviceMesh(np.array([7, 3, 1, 9, 4, 0]).reshape(3, 2), ("dp", "tp"))),
    ("tp-outside", DeviceMesh.from_sizes(tp_size=2, dp_size=3, cp_size=2, order=("tp", "dp", "cp"))),
]


def lit(browser: Browser) -> dict[int, str]:
    """The ranks that are lit, each with the groups it is lit for."""
    code = (
        "return [...document.querySelectorAll('.cell[data-lit]')].map((cell) => [cell.dataset.rank, cell.dataset.lit])"
    )
    found: Any = browser.run(code)
    return {int(rank): groups for rank, groups in found}


@pytest.mark.parametrize("mesh", [mesh for _, mesh in MESHES], ids=[name for name, _ in MESHES])
def test_the_page_knows_of_every_rank_what_the_mesh_knows(chromium: Browser, mesh: DeviceMesh) -> None:
    chromium.open(mesh_page(mesh, batch=11))
    ranks = ranks_of(mesh)
    outside = [rank for rank in range(max(ranks) + 3) if rank not in mesh]
    found: Any = chromium.run(MODEL, ranks + outside)
    assert found[len(ranks) :] == [None] * len(outside)
    for rank, answer in zip(ranks, found, strict=False):
        groups = [mesh.group_of(name, rank) for name in group_axes(mesh)]
        rows = mesh.get_slice(11, global_rank=rank)
        assert answer[:2] == [list(mesh.coord_of(rank) or ()), rank]
        assert [(index, members) for index, members, _ in answer[2]] == [
            (mesh.index_in_group(name, rank), list(group)) for name, group in zip(group_axes(mesh), groups, strict=True)
        ]
        for (_, _, words), group in zip(answer[2], groups, strict=True):
            assert not isinstance(group, range) or words == folded(group)
        assert answer[3:5] == [mesh.data_rank_of(rank), [rows.start, rows.stop]]
        assert [sorted(each) for each in answer[5]] == [sorted(group) for group in groups]
    assert chromium.complaints() == []


def test_pointing_at_a_rank_lights_its_groups_and_shows_its_rows(chromium: Browser) -> None:
    chromium.open(mesh_page(ACTOR, nproc_per_node=4, batch=10))
    assert lit(chromium) == {}
    chromium.point_at('.cell[data-rank="5"]')
    assert lit(chromium) == {5: "pp dp tp", 1: "pp", 7: "dp", 4: "tp"}
    assert chromium.one("#which").text == "Rank 5"
    assert chromium.one("#place").text == "pp=1 dp=0 tp=1; node 1, local rank 1"
    assert [text.split("\n") or text for text in chromium.texts("#groups tbody tr")] == [
        ["pp 1 of 2 1, 5"],
        ["dp 0 of 2 5, 7"],
        ["tp 1 of 2 4-5"],
    ]
    assert chromium.one("#rows").text == "Data rank 0 of 2; rows 0-4 of 10"
    chromium.point_away()
    assert lit(chromium) == {}


def test_a_tapped_rank_stays_until_it_is_let_go(chromium: Browser) -> None:
    chromium.open(mesh_page(ACTOR))
    chromium.one('.cell[data-rank="2"]').click()
    chromium.point_at('.cell[data-rank="5"]')
    assert chromium.one("#which").text == "Rank 2"
    chromium.type("\ue00c")
    chromium.point_away()
    assert chromium.one("#which").text == "No rank chosen"


def test_a_rank_is_found_by_its_number(chromium: Browser) -> None:
    chromium.open(mesh_page(ACTOR, batch=10))
    chromium.type("/", "6\n")
    assert lit(chromium) == {6: "pp dp tp", 2: "pp", 4: "dp", 7: "tp"}
    assert chromium.one("#rows").text == "Data rank 1 of 2; rows 5-9 of 10"
    box = chromium.one("#rank")
    for wrong, said in (("99", "This rank is not in the mesh."), ("x1", "x1 is no rank")):
        box.clear()
        box.send_keys(f"{wrong}\n")
        assert said in chromium.one("#panel").text
        assert lit(chromium) == {}


def test_a_rank_that_is_folded_away_is_found_too(chromium: Browser) -> None:
    mesh = DeviceMesh.from_sizes(pp_size=8, dp_size=16384, tp_size=8)
    chromium.open(mesh_page(mesh, nproc_per_node=8, batch=1_000_000))
    assert len(chromium.all(".cell")) == 1024
    chromium.one("#rank").send_keys("500000\n")
    rows = mesh.get_slice(1_000_000, global_rank=500_000)
    words = chromium.one("#panel").text
    assert "pp=3 dp=13348 tp=0; node 62500, local rank 0; folded away in the picture" in words
    assert f"rows {rows.start}-{rows.stop - 1} of 1000000" in words
    assert "500000-500007" in words
    drawn: Any = chromium.run("return cells.map((cell) => cell.rank)")
    assert set(lit(chromium)) == set(drawn) & set(mesh.group_of("dp", 500_000)) != set()


def test_arrow_keys_walk_the_ranks_as_they_are_drawn(chromium: Browser) -> None:
    chromium.open(mesh_page(ACTOR))
    chromium.run("document.querySelector('.cell').focus()")
    right, down, end = "\ue014", "\ue015", "\ue010"
    walked = []
    for key in (right, down, right, end):
        chromium.type(key)
        walked.append(chromium.one("#which").text)
    assert walked == ["Rank 1", "Rank 3", "Rank 6", "Rank 7"]
    chromium.type("\n")
    chromium.point_at('.cell[data-rank="0"]')
    assert chromium.one("#which").text == "Rank 7"


def test_the_switch_colours_by_another_axis(chromium: Browser) -> None:
    chromium.open(mesh_page(ACTOR))
    indices = "return [...document.querySelectorAll('.cell')].map((cell) => [cell.dataset.rank, cell.dataset.index])"
    for axis in ("pp", "dp", "tp", "data"):
        chromium.one(f'button[data-axis="{axis}"]').click()
        found: Any = chromium.run(indices)
        ask = ACTOR.data_rank_of if axis == "data" else lambda rank, axis=axis: ACTOR.index_in_group(axis, rank)
        assert {int(rank): int(index) for rank, index in found} == {rank: ask(rank) for rank in range(8)}
        assert [button.text for button in chromium.all('button[aria-checked="true"]')] == [axis]
    chromium.type("\ue014")
    assert [button.text for button in chromium.all('button[aria-checked="true"]')] == ["pp"]


def test_groups_are_told_apart_by_shape_and_not_by_colour_alone(chromium: Browser) -> None:
    chromium.open(mesh_page(DeviceMesh.from_sizes(pp_size=2, dp_size=2, tp_size=2, cp_size=2)))
    chromium.point_at('.cell[data-rank="0"]')
    shapes: Any = chromium.run(
        "return [...document.querySelectorAll('.cell')].map((cell) => [cell.dataset.lit || '', "
        "...[...cell.querySelectorAll('.mark')].map((mark) => mark.getAttribute('d'))])"
    )
    marks = {groups: tuple(drawn) for groups, *drawn in shapes if groups and " " not in groups}
    assert set(marks) == {"pp", "dp", "cp", "tp"}
    assert len(set(marks.values())) == 4


@pytest.mark.parametrize("sizes", [(2, 2, 2), (2, 4, 8), (8, 16, 8)], ids=["8", "64", "1024"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_rank_is_legible(chromium: Browser, sizes: tuple[int, int, int], dark: bool) -> None:
    pp, dp, tp = sizes
    mesh = DeviceMesh.from_sizes(pp_size=pp, dp_size=dp, tp_size=tp)
    chromium.open(mesh_page(mesh, nproc_per_node=8, batch=100), width=1500, dark=dark)
    found: Any = chromium.run(READING)
    assert found["cells"] == mesh.world_size
    assert found["outside"] == [], "texts that leave their cells"
    assert found["overlaps"] == 0
    assert found["smallest"] >= 9, "the height of the smallest letters, in pixels"
    assert found["contrast"] >= 4.5, found
    assert found["wide"] <= 1500


# Where texts are drawn, how high they are, and how they stand out from what is behind them (WCAG's contrast).
READING = r"""
const light = (css) => {
  const linear = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = css.match(/[\d.]+/g).map((part) => linear(Number(part) / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (one, other) => {
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const cells = [...document.querySelectorAll(".cell")];
const boxes = cells.map((cell) => cell.querySelector("rect").getBoundingClientRect());
const fill = (element) => getComputedStyle(element).fill;
const paper = getComputedStyle(document.body).backgroundColor;
const outside = [], heights = [], contrasts = [];
cells.forEach((cell, place) => {
  for (const text of cell.querySelectorAll("text")) {
    const box = text.getBoundingClientRect();
    if (box.left < boxes[place].left - 0.5 || box.right > boxes[place].right + 0.5) outside.push(cell.dataset.rank);
    if (text.classList.contains("rank")) heights.push(box.height);
    contrasts.push(contrast(fill(text), fill(cell.querySelector("rect"))));
  }
});
for (const text of document.querySelectorAll("svg text.text, svg text.soft")) {
  contrasts.push(contrast(fill(text), paper));
}
for (const text of document.querySelectorAll("h1, p, button, label, .name")) {
  const style = getComputedStyle(text);
  contrasts.push(contrast(style.color, text.tagName === "BUTTON" ? style.backgroundColor : paper));
}
const rows = Map.groupBy(boxes, (box) => Math.round(box.top));
let overlaps = 0;
for (const row of rows.values()) {
  const sorted = row.sort((a, b) => a.left - b.left);
  sorted.forEach((box, place) => overlaps += place > 0 && sorted[place - 1].right > box.left + 0.1);
}
return { cells: cells.length, outside, overlaps, smallest: Math.min(...heights), contrast: Math.min(...contrasts),
  wide: document.documentElement.scrollWidth };
"""


def test_the_page_changes_between_day_and_night(chromium: Browser) -> None:
    colour = "return getComputedStyle(document.body).backgroundColor"
    chromium.open(mesh_page(ACTOR), dark=True)
    night = chromium.run(colour)
    chromium.one("#theme").click()
    day = chromium.run(colour)
    chromium.one("#theme").click()
    assert chromium.run(colour) == night != day


def test_a_narrow_window_keeps_everything_reachable(chromium: Browser) -> None:
    chromium.open(mesh_page(DeviceMesh.from_sizes(pp_size=2, dp_size=4, tp_size=8), nproc_per_node=8), width=390)
    assert chromium.run("return document.documentElement.scrollWidth") == 390
    chromium.one("#rank").send_keys("63\n")
    shown: Any = chromium.run(
        "const b = document.querySelector('[data-chosen]').getBoundingClientRect(); return [b.left, b.right]"
    )
    assert 0 <= shown[0] < shown[1] <= 390


def test_a_page_needs_no_network_and_lets_nobody_s_text_in() -> None:
    page = mesh_page(DeviceMesh.from_axes({"dp": 2, "tp": 2}).flatten(("dp", "tp"), "both"), nproc_per_node=2)
    without_names = page.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//[a-z]+\.|src=|href=|url\(|@import", without_names)
    assert "default-src 'none'" in page


def test_a_view_has_groups_and_no_rows(chromium: Browser) -> None:
    view = DeviceMesh.from_sizes(dp_size=4, tp_size=2, ep_size=2).expert_mesh()
    chromium.open(mesh_page(view))
    chromium.one("#rank").send_keys("3\n")
    assert set(lit(chromium)) == {rank for name in group_axes(view) for rank in view.group_of(name, 3)}
    assert chromium.one("#rows").text == ""
    assert chromium.complaints() == []


def test_ranks_that_a_browser_cannot_count_are_refused() -> None:
    with pytest.raises(MeshError, match=r"up to 9007199254740991 .* not 9007199254740994"):
        mesh_page(DeviceMesh.from_axes({"dp": 4}, offset=2**53 - 1))
    with pytest.raises(MeshError, match="batch must be an integer >= 0"):
        mesh_page(ACTOR, batch=-1)
    with pytest.raises(MeshError, match="at most 131072 ranks, not 131073"):
        mesh_page(DeviceMesh(np.roll(np.arange(2**17 + 1), 1)))
