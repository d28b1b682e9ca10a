"""Rows on their way from the shards of one mesh to those of another: which move where, in the words of a table."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
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

__all__ = ["Move", "Side", "about_flow", "flow_text", "moves_between"]


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


def moves_between(batch: int, source: Side, target: Side) -> Iterator[Move]:
    """What `Layout.even(...).reshard(...)` answers, one move at a time, in the order of the rows."""
    here, there = 0, 0
    while here < len(source.shares) and there < len(target.shares):
        (start, stop), (other_start, other_stop) = source.shares.rows(batch, here), target.shares.rows(batch, there)
        rows = range(max(start, other_start), min(stop, other_stop))
        if rows:
            yield Move(rows, here, rows.start - start, there, rows.start - other_start)
        here, there = here + (stop <= other_stop), there + (other_stop <= stop)


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

    rows = some_rows(moves_between(batch, source, target), row, "moves", everything=everything)
    return "\n".join([*lines, "", table(headings, rows, width=width, right=" rr rr")])
