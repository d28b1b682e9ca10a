"""Rows flowing from shards to shards, as one page for a browser."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import takewhile
from typing import TYPE_CHECKING

from twinkle.show.flow import Move, Moves, Side
from twinkle.show.fold import folded
from twinkle.show.page import asset, filled
from twinkle.show.svg import COLOURS
from twinkle.show.text import rows_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.plan import CollectFrom

__all__ = ["flow_page", "flow_svg"]

#: Shards that are drawn on either side, before the rest is counted.
_SHOWN = 32
_WIDTH, _BOX, _TOP, _GAP, _LEAST = 900, 250, 40, 8, 34


@dataclass(frozen=True)
class _Drawn:
    """A shard's box: its rows, and where it stands."""

    start: int
    stop: int
    top: float
    height: float

    def edge(self, row: int) -> float:
        """The height at which a row begins."""
        return self.top + self.height * (row - self.start) / max(self.stop - self.start, 1)


def flow_page(batch: int, source: Side, target: Side, *, collect_from: CollectFrom = "pp_last") -> str:
    """The page: boxes of shards, bands of rows between them; a band that is pointed at says who sends what to whom."""
    moves = _shown_moves(batch, source, target)
    told = [
        {
            "rows": [move.rows[0], move.rows[-1]],
            "what": _sentence(move.rows),
            "source": move.source,
            "target": move.target,
            "from": _named("worker", source.holders(move.source, collect_from)),
            "to": _named("worker", target.workers(move.target)),
        }
        for move in moves
    ]
    body = asset("flow.html").replace("@@SVG@@", flow_svg(batch, source, target, collect_from=collect_from))
    return filled(
        title=f"{batch} rows: {source.mesh!r} to {target.mesh!r}",
        facts=f"{len(source.shares)} shards to {len(target.shares)} shards",
        body=body,
        data={"moves": told, "batch": batch},
        script="flow.js",
    )


def flow_svg(batch: int, source: Side, target: Side, *, collect_from: CollectFrom = "pp_last") -> str:
    """The picture of the page alone."""
    moves = _shown_moves(batch, source, target)
    sides = (source, target)
    shown = [1 + max((getattr(move, end) for move in moves), default=-1) for end in ("source", "target")]
    room = max(*(_LEAST * count for count in shown), 160)
    boxes = [_stacked(side, batch, count, room) for side, count in zip(sides, shown, strict=True)]
    bottom = max((box.top + box.height for side in boxes for box in side), default=_TOP) + _GAP
    rest = [len(side.shares) - count for side, count in zip(sides, shown, strict=True)]
    height = bottom + (36 if any(rest) else 4)
    parts = []
    for number, move in enumerate(moves):
        parts.append(_band(number, move, boxes[0][move.source], boxes[1][move.target]))
    for place, (side, word) in enumerate(zip(sides, ("from", "to"), strict=True)):
        x = 0 if place == 0 else _WIDTH - _BOX
        parts.append(_text(x, 24, f"{word} {side.mesh!r}"[:38], size=13, weight=600))
        for shard, box in enumerate(boxes[place]):
            workers = source.holders(shard, collect_from) if place == 0 else target.workers(shard)
            parts.append(_shard(place, shard, box, x, _named("worker", workers)))
        if rest[place]:
            plural = "" if rest[place] == 1 else "s"
            parts.append(_text(x + 8, bottom + 22, f"{rest[place]} more shard{plural}", size=12, ink="soft"))
    label = escape(f"{batch} rows from {source.mesh!r} to {target.mesh!r}", quote=True)
    size = f'width="{_WIDTH}" height="{height:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_WIDTH} {height:g}" '
        f'role="img" aria-label="{label}" font-family="system-ui, sans-serif">'
        f'<rect class="paper" {size} fill="#ffffff"/>{"".join(parts)}</svg>'
    )


def _shown_moves(batch: int, source: Side, target: Side) -> list[Move]:
    moves = Moves(batch, source, target)
    return list(takewhile(lambda move: move.source < _SHOWN and move.target < _SHOWN, moves))


def _stacked(side: Side, batch: int, count: int, room: int) -> list[_Drawn]:
    """Boxes below each other, as high as they have rows, but high enough for their words."""
    rows = [side.shares.rows(batch, shard) for shard in range(count)]
    total = max(sum(stop - start for start, stop in rows), 1)
    drawn, top = [], float(_TOP)
    for start, stop in rows:
        height = max((room - count * _GAP) * (stop - start) / total, _LEAST - _GAP)
        drawn.append(_Drawn(start, stop, top, height))
        top += height + _GAP
    return drawn


def _band(number: int, move: Move, source: _Drawn, target: _Drawn) -> str:
    left, right, middle = _BOX, _WIDTH - _BOX, _WIDTH / 2
    first, last = move.rows[0], move.rows[-1] + 1
    a, b, c, d = source.edge(first), target.edge(first), target.edge(last), source.edge(last)
    path = (
        f"M{left} {a:.1f}C{middle:g} {a:.1f} {middle:g} {b:.1f} {right} {b:.1f}"
        f"V{c:.1f}C{middle:g} {c:.1f} {middle:g} {d:.1f} {left} {d:.1f}Z"
    )
    fill = COLOURS[move.source % len(COLOURS)]
    title = f"{_sentence(move.rows)}: shard {move.source} to shard {move.target}"
    drawn = f'd="{path}" fill="{fill}" fill-opacity=".6"'
    return f'<path class="band" data-move="{number}" {drawn}><title>{title}</title></path>'


def _shard(side: int, shard: int, box: _Drawn, x: int, workers: str) -> str:
    fill = COLOURS[shard % len(COLOURS)] if side == 0 else "#DDDDDD"
    y = box.top + box.height / 2
    words = f"shard {shard}: {rows_in([box.start, box.stop])}"
    low = y + 4 if box.height < 30 else y - 3
    lines = [_text(x + 8, low, words, size=12, ink="rank")]
    if box.height >= 30:
        lines.append(_text(x + 8, y + 12, workers[:40], size=11, ink="index"))
    end = "source" if side == 0 else "target"
    return (
        f'<g class="shard" data-side="{end}" data-shard="{shard}"><title>{escape(f"{words}; {workers}")}</title>'
        f'<rect x="{x}" y="{box.top:.1f}" width="{_BOX}" height="{box.height:.1f}" rx="4" fill="{fill}"/>'
        f"{''.join(lines)}</g>"
    )


def _text(x: float, y: float, text: str, *, size: int, weight: int = 400, ink: str = "text") -> str:
    fill = {"text": "#1b1f24", "soft": "#57606a", "rank": "#1b1f24", "index": "#333a42"}[ink]
    font = f'font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x:g}" y="{y:.1f}" {font} fill="{fill}" class="{ink}">{escape(text)}</text>'


def _sentence(rows: range) -> str:
    return rows_in([rows.start, rows.stop])


def _named(what: str, workers: Sequence[int]) -> str:
    return f"{what}{'' if len(workers) == 1 else 's'} {folded(workers, pieces=4)}"
