"""Hand-over: how the rows of a handle become the shards of the next call, as bundles of stored pieces."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinkle.plan import Layout

__all__ = ["Cuts", "HandOver", "Read", "hand_over"]

#: A piece, and its rows from start up to stop, exclusive.
Read = tuple[int, int, int]
#: Rows of one piece, as ascending (start, stop) that neither meet nor overlap.
Cuts = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class HandOver:
    """What each target shard fetches, and how it puts that together.

    `bundles[shard]` says per stored piece which of its rows are fetched, each once however often it is asked for. The
    reads and the reads among the pads count rows of these bundles; a pad that is a number repeats a local row.
    """

    bundles: list[dict[int, Cuts]]
    reads: list[list[Read]]
    pads: list[list[int | Read]]

    def rows(self, shard: int) -> int:
        """How many rows one target shard fetches."""
        return sum(stop - start for cuts in self.bundles[shard].values() for start, stop in cuts)


def hand_over(source: Layout, target: Layout) -> HandOver:
    """Plans the reads that turn the pieces of one layout into the shards of another; no row is fetched in vain.

    A shard without rows fetches an empty bundle of the first piece, which has the type of its rows.
    """
    import numpy

    shard, start, to, _, length = source.reshard(target).T
    pieces, starts, stops = shard.tolist(), start.tolist(), (start + length).tolist()
    borders = numpy.searchsorted(to, numpy.arange(target.shards + 1)).tolist()
    over = HandOver([], [], _pads(source, target))
    # Where every piece is read once, as between shards of neighbours, a read begins where its bundle does.
    bundled = list(zip(pieces, zip(zip(starts, stops, strict=True)), strict=True))
    inside = list(zip(pieces, [0] * len(pieces), length.tolist(), strict=True))
    for at, (first, last) in enumerate(pairwise(borders)):
        bundles: dict[int, Cuts] = dict(bundled[first:last])
        reads: list[Read] = inside[first:last]
        pads = over.pads[at]
        if pads or not 0 < len(bundles) == len(reads):
            reads = list(zip(pieces[first:last], starts[first:last], stops[first:last], strict=True))
            wanted = reads + [pad for pad in pads if isinstance(pad, tuple)]
            if not wanted:
                reads = wanted = [(0, 0, 0)]
            bundles = _bundled(wanted)
            place = _Positions(bundles)
            reads = [place(read) for read in reads]
            over.pads[at] = [pad if isinstance(pad, int) else place(pad) for pad in pads]
        over.bundles.append(bundles)
        over.reads.append(reads)
    return over


def _bundled(reads: Iterable[Read]) -> dict[int, Cuts]:
    """Per piece, the rows that any of the reads needs."""
    found: dict[int, list[tuple[int, int]]] = {}
    for piece, start, stop in sorted(set(reads)):
        cuts = found.setdefault(piece, [])
        if cuts and start <= cuts[-1][1]:
            cuts[-1] = (cuts[-1][0], max(cuts[-1][1], stop))
        else:
            cuts.append((start, stop))
    return {piece: tuple(cuts) for piece, cuts in found.items()}


class _Positions:
    """Where the rows of a read are in the bundle that holds them."""

    def __init__(self, bundles: dict[int, Cuts]) -> None:
        self.starts = {piece: [start for start, _ in cuts] for piece, cuts in bundles.items()}
        self.places = {
            piece: list(accumulate((stop - start for start, stop in cuts), initial=0))
            for piece, cuts in bundles.items()
        }

    def __call__(self, read: Read) -> Read:
        """The same rows, counted in the bundle."""
        piece, start, stop = read
        at = bisect_right(self.starts[piece], start) - 1
        first = self.places[piece][at] + start - self.starts[piece][at]
        return piece, first, first + stop - start


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
