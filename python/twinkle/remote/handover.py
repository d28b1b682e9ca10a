"""Hand-over: how the rows of a handle become the shards of the next call, as reads of stored pieces."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.plan import Layout

__all__ = ["HandOver", "Read", "hand_over"]

#: A stored shard and the rows of its piece from start up to stop, exclusive.
Read = tuple[int, int, int]
#: How many rows may be fetched for each one needed before producers cut their pieces themselves.
_WASTE = 1.5


@dataclass(frozen=True)
class HandOver:
    """For each target shard, what to read in order, and what its pads are: a local row, or a read of their own."""

    reads: list[list[Read]]
    pads: list[list[int | Read]]
    #: Whether the producers cut, because whole pieces would carry too many rows that nobody needs.
    cut_at_source: bool
    #: How many rows all target workers fetch.
    fetched: int


def hand_over(source: Layout, target: Layout, members: Sequence[int]) -> HandOver:
    """Plans the reads that turn the pieces of one layout into the shards of another.

    `members[shard]` is how many workers get each target shard. Whole pieces are passed on where at most half as many
    rows again are fetched as are needed; else the producers cut.
    """
    import numpy

    moves, stored, counts = source.reshard(target), source.stored_sizes, numpy.asarray(members)
    shard, start, to, _, length = moves.T
    listed = list(zip(shard.tolist(), start.tolist(), (start + length).tolist(), strict=True))
    borders = numpy.searchsorted(to, numpy.arange(target.shards + 1)).tolist()
    reads: list[list[Read]] = [listed[at:end] for at, end in pairwise(borders)]
    pads = _pads(source, target)
    fetched = [(at, pad[0]) for at, those in enumerate(pads) for pad in those if isinstance(pad, tuple)]
    pieces = numpy.array([at * source.shards + piece for at, piece in fetched], dtype=numpy.int64)
    touched = numpy.unique(numpy.concatenate([to * source.shards + shard, pieces]))
    at, piece = numpy.divmod(touched, max(source.shards, 1))
    whole = int((counts[at] * stored[piece]).sum())
    needed = int((counts[to] * length).sum()) + sum(members[at] for at, _ in fetched)
    cut = whole > _WASTE * needed
    return HandOver(reads, pads, cut, needed if cut else whole)


def _pads(source: Layout, target: Layout) -> list[list[int | Read]]:
    """The pads of each target shard: the local row that each repeats, or where to read a row it does not hold."""
    sizes, real = target.sizes.tolist(), target.real_sizes.tolist()
    pads: list[list[int | Read]] = [[] for _ in real]
    if sizes == real:
        return pads
    fetched: dict[tuple[int, int], Read] = {}
    for shard, start, to, at, length in source.pad_moves(target).tolist():
        fetched |= {(to, at + step): (shard, start + step, start + step + 1) for step in range(length)}
    for shard, size in enumerate(real):
        if sizes[shard] > size:
            local = {row: at for at, row in enumerate(target.rows(shard).tolist())}
            for at, row in enumerate(target.pads(shard).tolist(), start=size):
                pads[shard].append(fetched[shard, at] if (shard, at) in fetched else local[row])
    return pads
