"""How the rows of a call are dealt out: the layout that a method's declaration asks for."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from twinkle.errors import PlanError
from twinkle.plan import Layout
from twinkle.remote.one_row import OneRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.mesh import DeviceMesh
    from twinkle.remote.signature import Declaration

__all__ = ["alike", "end_to_end", "layout_of", "side_by_side"]


def layout_of(declaration: Declaration, rows: int | None, shards: int) -> Layout | None:
    """The layout of a call's rows; None without rows.

    Refused: empty shards, pads that nothing masks, and for many shards a mapping that may be columns or one row.
    """
    if rows is None:
        return None
    ways = f"; {rows.ways}" if isinstance(rows, OneRow) else ""
    split = declaration.split
    if callable(split):
        layout = split(rows, shards)
        if not isinstance(layout, Layout) or layout.n != rows or layout.shards != shards:
            raise PlanError(
                f"{declaration.name}: split({rows}, {shards}) must return a Layout of {rows} rows over {shards} "
                f"shards, not {layout!r}"
            )
        layout = layout.settled()
    elif split == "pad":
        layout = Layout.padded(rows, shards, group=declaration.group)
    else:
        layout = Layout.even(rows, shards, group=declaration.group)
    if not declaration.allow_empty:
        try:
            layout.require_rows()
        except PlanError as error:
            raise PlanError(f"{declaration.name}: {error}{ways}", **error.fields) from None
    if isinstance(rows, OneRow) and rows.columns is not None and shards > 1:
        raise PlanError(f"{declaration.name}: 1 row over {shards} data shards{ways}", rows=1, shards=shards)
    pads = int((layout.sizes - layout.real_sizes).sum())
    if pads and declaration.loss_mask is None:
        raise PlanError(
            f"{declaration.name}: {rows} rows over {shards} data shards need {pads} pads, and the method declares no "
            "loss_mask, so they would count as rows: declare loss_mask='labels', or the key that masks a row",
            rows=rows,
            shards=shards,
            pads=pads,
        )
    return layout


def end_to_end(counts: Sequence[int]) -> Layout:
    """The layout of shards of these sizes whose rows follow one another in shard order."""
    return Layout.explicit([range(start, stop) for start, stop in pairwise(accumulate(counts, initial=0))])


def side_by_side(sizes: Sequence[int], reads: Sequence[tuple[int, int, int]]) -> Layout:
    """The layout of rows that are read, in this order, from pieces of these sizes: (piece, start, stop) each."""
    import numpy

    stored = end_to_end(sizes)
    if not reads:
        return stored.select(numpy.empty(0, numpy.int64))
    piece, start, stop = numpy.array(reads, numpy.int64).T
    first = numpy.cumsum([0, *sizes])[piece] + start
    ends = numpy.cumsum(stop - start)
    return stored.select(numpy.arange(ends[-1]) + numpy.repeat(first - (ends - (stop - start)), stop - start))


def alike(mesh: DeviceMesh, members: Sequence[int], holders: Sequence[int], width: int) -> list[int]:
    """The workers of a shard that return what its holder returns: those of the holder's pipeline stage.

    `width` is how many positions of the mesh a worker has.
    """

    def stage(worker: int) -> int | None:
        coordinates = mesh.coordinates(mesh.rank_at(worker * width))
        return None if coordinates is None else coordinates.get("pp")

    stages = {stage(worker) for worker in holders}
    return [worker for worker in members if stage(worker) in stages]
