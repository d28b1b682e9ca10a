"""A mesh as an SVG picture: every rank a cell, boxed by node and pipeline stage, coloured along one axis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING

from twinkle.errors import AxisError
from twinkle.platform.checks import shown
from twinkle.show.answers import group_axes, shares_refused
from twinkle.show.picture import LIMIT, Box, Stage, arranged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from twinkle.mesh import DeviceMesh

__all__ = ["COLOURS", "colour_axis", "to_svg"]

#: Eight fills that stay apart for colour-blind readers and carry dark text: Paul Tol's scheme of light colours.
COLOURS = ("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00")
#: Text on a colour, the same by day and by night.
_INK = {"rank": "#1b1f24", "index": "#333a42"}


@dataclass(frozen=True)
class _Look:
    """Sizes of one picture: fewer ranks have larger cells with more in them."""

    width: int
    height: int
    font: int
    #: Whether a cell shows the index along the colour's axis below the rank.
    labelled: bool


_LOOKS = ((64, _Look(54, 38, 14, labelled=True)), (256, _Look(42, 26, 12, labelled=False)))
_DENSE = _Look(33, 21, 10, labelled=False)
_LINE = 1120
_GAP, _PAD, _TITLE = 10, 8, 18
_FOLDED = 190

_PAPER = {"paper": "#ffffff", "text": "#1b1f24", "soft": "#57606a", "line": "#c3c9d0", "panel": "#f5f7f9"}
_NIGHT = {"paper": "#14181d", "text": "#e8ecf0", "soft": "#a3adb8", "line": "#48525d", "panel": "#1d232a"}


def colour_axis(mesh: DeviceMesh, color_by: str | None) -> str:
    """The axis whose index colours the ranks: the one asked for, else tp, else the innermost one above 1."""
    if color_by is None:
        names = [name for name, size in zip(mesh.mesh_dim_names or (), mesh.shape, strict=True) if size > 1]
        return "tp" if "tp" in names else (names or list(mesh.mesh_dim_names or ()))[-1]
    if not isinstance(color_by, str):
        raise AxisError(f"color_by must be the name of an axis or 'data', not {shown(color_by)}")
    if color_by == "data":
        if (refused := shares_refused(mesh)) is not None:
            raise AxisError(refused)
    elif color_by not in group_axes(mesh):
        raise AxisError(f"color_by must be one of {[*group_axes(mesh), 'data']}, not {shown(color_by)}")
    return color_by


def _indexer(mesh: DeviceMesh, axis: str) -> Callable[[int], int]:
    if axis == "data":
        return mesh.get_data_rank_from_global_rank
    return lambda rank: mesh.index_in_group(axis, rank) or 0


def to_svg(
    mesh: DeviceMesh,
    *,
    color_by: str | None = None,
    nproc_per_node: int | None = None,
    limit: int = LIMIT,
    dark: bool = False,
    titled: bool = True,
) -> str:
    """The picture as one SVG element; see `DeviceMesh.to_svg`."""
    axis = colour_axis(mesh, color_by)
    stages = arranged(mesh, nproc_per_node=nproc_per_node, limit=limit)
    drawn = sum(len(box.ranks) for stage in stages for box in stage.boxes)
    look = next((look for most, look in _LOOKS if drawn <= most), _DENSE)
    longest = max((len(str(rank)) for stage in stages for box in stage.boxes for rank in box.ranks[-1:]), default=1)
    look = replace(look, width=max(look.width, round(longest * look.font * 0.62) + 8))
    painter = _Painter(mesh, axis, look, {**_INK, **(_NIGHT if dark else _PAPER)})
    return painter.picture(stages, repr(mesh) if titled else "")


class _Painter:
    """Draws one picture; positions are in pixels from the top left."""

    def __init__(self, mesh: DeviceMesh, axis: str, look: _Look, paper: dict[str, str]) -> None:
        self.mesh, self.axis, self.look, self.paper = mesh, axis, look, paper
        self.index = _indexer(mesh, axis)
        self.highest = 0
        self.parts: list[str] = []

    def picture(self, stages: list[Stage], title: str) -> str:
        above = _TITLE + 8 if title else 0
        top = above + 44
        sizes = [self._stage_size(stage) for stage in stages]
        places, (width, height) = _flow(sizes, _LINE, _GAP)
        for stage, (x, y), size in zip(stages, places, sizes, strict=True):
            self._stage(stage, x + _GAP, y + top, size)
        width = max(width, 420) + 2 * _GAP
        head = [
            f'<rect width="{width}" height="{height + top + _GAP}" rx="8" fill="{self.paper["paper"]}" class="paper"/>',
            self._text(_GAP, 22, _fitting(title, width), size=14, weight=600) if title else "",
            *self._legend(_GAP, above + 10, width),
        ]
        label = escape(f"{self.mesh!r}: {self.mesh.world_size} ranks coloured by {self.axis}", quote=True)
        whole = f'width="{width}" height="{height + top + _GAP}" viewBox="0 0 {width} {height + top + _GAP}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {whole} role="img" aria-label="{label}" '
            f'font-family="system-ui, sans-serif">{"".join(head)}{"".join(self.parts)}</svg>'
        )

    def _text(
        self, x: float, y: float, text: str, *, size: int, weight: int = 400, ink: str = "text", middle: bool = False
    ) -> str:
        anchor = ' text-anchor="middle"' if middle else ""
        fill = self.paper[ink]
        style = "" if weight == 400 else f' font-weight="{weight}"'
        place = f'x="{x:g}" y="{y:g}" font-size="{size}"{style}{anchor}'
        return f'<text {place} fill="{fill}" class="{ink}">{escape(text)}</text>'

    def _legend(self, x: int, y: int, width: int) -> list[str]:
        """A swatch for every colour that is used, with the indices that have it."""
        name = "data rank" if self.axis == "data" else self.axis
        parts = ['<g class="legend">', self._text(x, y + 13, name, size=12, ink="soft")]
        x += 12 + 7 * len(name)
        for place, colour in enumerate(COLOURS[: self.highest + 1]):
            more = self.highest >= len(COLOURS) + place
            label = f"{place}, {place + len(COLOURS)} ..." if more else str(place)
            if x + 30 + 7 * len(label) > width:
                break
            parts.append(f'<rect x="{x}" y="{y + 2}" width="14" height="14" rx="3" fill="{colour}"/>')
            parts.append(self._text(x + 19, y + 13, label, size=12, ink="soft"))
            x += 34 + 7 * len(label)
        return [*parts, "</g>"]

    def _box_size(self, box: Box) -> tuple[int, int]:
        top = _TITLE if box.title and box.ranks else 0
        if not box.ranks:
            return max(_FOLDED, 30 + 7 * len(box.title)), self.look.height + 2
        rows = -(-len(box.ranks) // box.columns)
        return box.columns * self.look.width + 2, rows * self.look.height + 2 + top

    def _stage_size(self, stage: Stage) -> tuple[int, int]:
        _, (width, height) = _flow(map(self._box_size, stage.boxes), _LINE - 2 * _PAD, _GAP)
        return width + 2 * _PAD, height + 2 * _PAD + (_TITLE if stage.title else 0)

    def _stage(self, stage: Stage, x: int, y: int, size: tuple[int, int]) -> None:
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{size[0]}" height="{size[1]}" rx="6" fill="{self.paper["panel"]}" '
            f'stroke="{self.paper["line"]}" class="panel"/>'
        )
        top = y + _PAD
        if stage.title:
            self.parts.append(self._text(x + _PAD, y + 18, stage.title, size=12, weight=600))
            top += _TITLE
        places, _ = _flow(map(self._box_size, stage.boxes), _LINE - 2 * _PAD, _GAP)
        for box, place in zip(stage.boxes, places, strict=True):
            self._box(box, x + _PAD + place[0], top + place[1])

    def _box(self, box: Box, x: int, y: int) -> None:
        look = self.look
        if not box.ranks:
            width, height = self._box_size(box)
            self.parts.append(
                f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="none" '
                f'stroke="{self.paper["line"]}" stroke-dasharray="4 3" class="line"/>'
            )
            self.parts.append(
                self._text(x + width / 2, y + height / 2 + 4, box.title, size=12, ink="soft", middle=True)
            )
            return
        if box.title:
            self.parts.append(self._text(x, y + 12, box.title, size=11, ink="soft"))
            y += _TITLE
        for place, rank in enumerate(box.ranks):
            row, column = divmod(place, box.columns)
            self._cell(rank, x + 1 + column * look.width, y + 1 + row * look.height)

    def _cell(self, rank: int, x: int, y: int) -> None:
        look, index = self.look, self.index(rank)
        self.highest = max(self.highest, index)
        coordinates = " ".join(f"{name}={at}" for name, at in (self.mesh.coordinates(rank) or {}).items())
        middle = x + look.width / 2 - 1
        baseline = y + look.height / 2 - 1 + (-2 if look.labelled else look.font * 0.36)
        fill = COLOURS[index % len(COLOURS)]
        self.parts.append(
            f'<g class="cell" data-rank="{rank}"><title>{escape(f"rank {rank}: {coordinates}")}</title>'
            f'<rect x="{x}" y="{y}" width="{look.width - 2}" height="{look.height - 2}" rx="3" fill="{fill}"/>'
        )
        self.parts.append(self._text(middle, round(baseline, 1), str(rank), size=look.font, ink="rank", middle=True))
        if look.labelled:
            label = f"{'data' if self.axis == 'data' else self.axis} {index}"
            self.parts.append(self._text(middle, y + look.height - 8, label, size=10, ink="index", middle=True))
        self.parts.append("</g>")


def _flow(sizes: Iterable[tuple[int, int]], line: int, gap: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """Where boxes go that follow each other like words, and the size of all of them."""
    places, x, y, height, widest = [], 0, 0, 0, 0
    for width, tall in sizes:
        if x and x + width > line:
            x, y, height = 0, y + height + gap, 0
        places.append((x, y))
        x, height, widest = x + width + gap, max(height, tall), max(widest, x + width)
    return places, (widest, y + height)


def _fitting(text: str, width: int) -> str:
    most = max(width // 8, 12)
    return text if len(text) <= most else f"{text[: most - 3]}..."
