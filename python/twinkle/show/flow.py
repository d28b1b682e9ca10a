"""Rows on their way from the shards of one mesh to those of another: which move where, in the words of a table."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import TYPE_CHECKING, Any

from twinkle.errors import MeshError
from twinkle.platform.checks import whole
from twinkle.show.answers import Shares
from twinkle.show.fold import folded
from twinkle.show.table import table, wrapped
from twinkle.show.text import some_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinkle.mesh import DeviceMesh
    from twinkle.plan import CollectFrom

__all__ = ["Move", "Moves", "Side", "about_flow", "flow_text"]


@dataclass(frozen=True)
class Move:
    """Neighbouring rows that go from one shard to another: the rows, and where they begin in either shard."""

    rows: range
    source: int
    source_start: int
    target: int
    target_start: int


class Side:
    """One end of a flow: a mesh whose workers are positions, or blocks of positions."""

    def __init__(self, mesh: DeviceMesh, gpus_per_worker: int = 1) -> None:
        self.mesh, self.width = mesh, whole(gpus_per_worker, "gpus_per_worker", MeshError, least=1)
        if self.width > 1:
            # Refused here, where a worker would span two shards.
            mesh.placement(gpus_per_worker=self.width)
        self.shares = Shares(mesh)
        #: Whether worker r is rank r, so that ranks need not be looked up.
        self.by_rank = mesh.offset == 0 and mesh.strides == _row_major(mesh.shape)

    def workers(self, shard: int) -> Sequence[int]:
        """The workers of a shard, ascending."""
        return self._workers(self.shares.ranks(shard))

    def holders(self, shard: int, collect_from: CollectFrom) -> Sequence[int]:
        """The workers of a shard that have the output of a call."""
        if collect_from in ("any", "all"):
            return self.workers(shard)
        return self._workers((self.shares.collected_from(shard, first_stage=collect_from == "pp_first"),))

    def _workers(self, ranks: Sequence[int]) -> Sequence[int]:
        if self.width == 1 and self.by_rank:
            return ranks
        return sorted({(self.mesh.position_of(rank) or 0) // self.width for rank in ranks})


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a mesh whose ranks are its positions."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


class Moves:
    """What `Layout.even(...).reshard(...)` answers, in the order of the rows: counted at once, walked one by one."""

    def __init__(self, batch: int, source: Side, target: Side) -> None:
        self.batch, self.shares = batch, (source.shares, target.shares)

    def __len__(self) -> int:
        if not self.batch:
            return 0
        here, there = (_borders(self.batch, len(shares)) for shares in self.shares)
        common = sum(_common(one, other) for one in here for other in there)
        return 1 + sum(map(len, (*here, *there))) - common

    def __iter__(self) -> Iterator[Move]:
        source, target = self.shares
        here = there = 0
        while here < len(source) and there < len(target):
            move = self._move(here, there)
            if move.rows:
                yield move
            stop, other_stop = source.rows(self.batch, here)[1], target.rows(self.batch, there)[1]
            here, there = here + (stop <= other_stop), there + (other_stop <= stop)

    @property
    def last(self) -> Move:
        """The move of the last row."""
        return self._move(*(min(len(shares), max(self.batch, 1)) - 1 for shares in self.shares))

    def _move(self, here: int, there: int) -> Move:
        (start, stop), (other_start, other_stop) = (
            shares.rows(self.batch, shard) for shares, shard in zip(self.shares, (here, there), strict=True)
        )
        rows = range(max(start, other_start), min(stop, other_stop))
        return Move(rows, here, rows.start - start, there, rows.start - other_start)


def _borders(batch: int, shards: int) -> list[range]:
    """Where one shard's rows end and the next one's begin: the larger shares come first."""
    size, larger = divmod(batch, shards)
    if not size:
        return [range(1, batch)]
    return [range(size + 1, larger * (size + 1) + 1, size + 1), range(larger * (size + 1) + size, batch, size)]


def _common(one: range, other: range) -> int:
    """How many numbers two ascending ranges share."""
    shared = gcd(one.step, other.step)
    if not one or not other or (other.start - one.start) % shared:
        return 0
    step = one.step // shared * other.step
    turns = (other.start - one.start) // shared * pow(one.step // shared, -1, other.step // shared)
    first = one.start + one.step * (turns % (other.step // shared))
    low, high = max(one.start, other.start), min(one[-1], other[-1])
    # The first common number that neither range begins after.
    first += max(0, -((first - low) // step)) * step
    return max(0, (high - first) // step + 1)


def about_flow(batch: int, source: Side, target: Side, collect_from: CollectFrom = "pp_last") -> dict[str, Any]:
    """The moves between shards and between workers, as `twinkle.plan` answers them."""
    from twinkle.plan import Layout, route

    layouts = [Layout.even(batch, len(side.shares)) for side in (source, target)]
    held = source.mesh.placement(source.width, collect_from=collect_from)
    wanted = target.mesh.placement(target.width)
    shard_moves = layouts[0].reshard(layouts[1])
    return {
        "batch": batch,
        "from": {"mesh": repr(source.mesh), "shards": held.shards, "workers": held.workers},
        "to": {"mesh": repr(target.mesh), "shards": wanted.shards, "workers": wanted.workers},
        "collect_from": collect_from,
        "shard_moves": shard_moves.tolist(),
        "moves": route(shard_moves, held, wanted).tolist(),
    }


def flow_text(
    batch: int,
    source: Side,
    target: Side,
    *,
    collect_from: CollectFrom = "pp_last",
    everything: bool = False,
    width: int = 80,
) -> str:
    """The moves between shards in a table, with the workers that are read from and those that get the rows."""
    lines = []
    for word, side in (("from", source), ("to", target)):
        count = len(side.shares)
        workers = side.mesh.world_size // side.width
        empty = f"; shards {batch} to {count - 1} are empty" if batch < count else ""
        shards = f"{count} shard{'' if count == 1 else 's'} on {workers} worker{'' if workers == 1 else 's'}"
        lines += wrapped(f"{word:<4}  {side.mesh!r}: {shards}{empty}", width)
    headings = ["rows", "from shard", "at", "worker", "to shard", "at", "workers"]

    def row(move: Move) -> list[object]:
        return [
            f"{move.rows[0]}-{move.rows[-1]}" if len(move.rows) > 1 else str(move.rows[0]),
            move.source,
            move.source_start,
            folded(source.holders(move.source, collect_from), pieces=3),
            move.target,
            move.target_start,
            folded(target.workers(move.target), pieces=3),
        ]

    moves = Moves(batch, source, target)
    rows = some_rows(moves, row, what="moves", count=len(moves), last=moves.last, everything=everything)
    return "\n".join([*lines, "", table(headings, rows, width=width, right=" rr rr")])
