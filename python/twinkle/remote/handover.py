"""Hand-over: how the rows of a handle become the shards of the next call, as reads of stored pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

    `members[shard]` is how many workers get each target shard. Whole pieces are passed on where at most half as many rows
    again are fetched as are needed; else the producers cut.
    """
    reads: list[list[Read]] = [[] for _ in range(target.shards)]
    for shard, start, to, _, length in source.reshard(target).tolist():
        reads[to].append((shard, start, start + length))
    pads = _pads(source, target)
    stored = source.stored_sizes.tolist()
    whole = needed = 0
    for shard, count in enumerate(members):
        touched = {read[0] for read in reads[shard]} | {pad[0] for pad in pads[shard] if isinstance(pad, tuple)}
        whole += count * sum(stored[piece] for piece in touched)
        needed += count * (sum(stop - start for _, start, stop in reads[shard]) + sum(type(p) is tuple for p in pads[shard]))
    cut = whole > _WASTE * needed
    return HandOver(reads, pads, cut, needed if cut else whole)


def _pads(source: Layout, target: Layout) -> list[list[int | Read]]:
    """The pads of each target shard: the local row that each repeats, or where to read a row that the shard does not hold."""
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
