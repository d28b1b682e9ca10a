"""Iterable data: which part of a source a rank reads, and what a torch worker does with a ticket for it."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

from twinkle.dataloader.course import Course
from twinkle.dataloader.lane import Bad, Lane, SourceDied, is_bad
from twinkle.dataloader.reader import in_worker
from twinkle.dataloader.repair import Replaced, drawn, reason_of
from twinkle.dataloader.seeds import Randomness, hashed, sow
from twinkle.dataloader.tickets import Delivery, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinkle.dataloader.cut import Cut
    from twinkle.dataloader.repair import Limits
    from twinkle.dataloader.tickets import Ticket

__all__ = ["StreamReader"]


class _Piece(NamedTuple):
    # A part of the source that is read: how many rows of each batch, and which of them are this rank's own.
    lane: int
    each: int
    own: slice


class _Found(NamedTuple):
    # The rows of every piece; whether they are all that were asked for, and the last; and how much was read so far:
    # how many rows, and how many batches have any.
    parts: list[list[Any]]
    full: bool
    ended: bool
    taken: tuple[int, int]


class StreamReader:
    """An iterable data set that is asked by ticket; it reads on, or begins again where a ticket lies behind it."""

    def __init__(
        self,
        source: Any,
        collate: Callable[[list[Any]], Any],
        *,
        batch_size: int,
        cut: Cut,
        limits: Limits,
        shard: int | None,
    ) -> None:
        self.source, self.collate, self.batch_size, self.cut, self.limits = source, collate, batch_size, cut, limits
        self.shard = shard
        self.course = Course(1, batch_size)
        self._lanes: list[Lane] | None = None
        self._at = (-1, -1)
        self._randomness: Randomness | None = None
        #: Of a stream in parts: the rows of batches that are made but may yet be asked for, by the place of the first.
        self._kept: dict[int, Any] = {}
        layout = cut.whole(self.batch_size)
        rows = range(batch_size) if self.shard is None else layout.rows(self.shard).tolist()
        self._span = (rows[0], rows[-1] + 1)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lanes": None, "_at": (-1, -1), "_randomness": None, "_kept": {}}

    @property
    def dataset(self) -> Any:
        """The source, by the name that both readers have for what they read."""
        return self.source

    def __getitems__(self, ticket: Ticket) -> Delivery:
        """What torch's fetcher calls."""
        return self.read(ticket)

    @property
    def pieces(self) -> list[_Piece]:
        """What this rank reads."""
        lanes, each, split, apart = self.course
        first, stop = self._span
        if split:
            return [_Piece(0, stop - first, slice(None))]
        if not apart:
            return [_Piece(lane, each, slice(None)) for lane in range(lanes)]
        mine = range(first // each, -(-stop // each))
        return [_Piece(lane, each, slice(max(first - lane * each, 0), stop - lane * each)) for lane in mine]

    def read(self, ticket: Ticket, attempts: Sequence[int] | None = None) -> Delivery:
        """Reads a batch; with `attempts`, takes rows as the lead of the shard did and not otherwise."""
        delivery = self._read(ticket, attempts)
        for first in [first for first in self._kept if first < ticket.since]:
            del self._kept[first]
        if ticket.raw and self._kept:
            delivery = delivery._replace(earlier=list(self._kept.items()))
            self._kept.clear()
        if not in_worker():
            return delivery
        try:
            return delivery._replace(
                part=None if delivery.part is None else pickle.dumps(delivery.part),
                earlier=[(first, pickle.dumps(values)) for first, values in delivery.earlier],
            )
        except Exception as error:
            words = f"rows behind row {ticket.first} of the stream cannot leave their worker: {reason_of(error)}"
            return Delivery(None, failure=Failure(words, error, row=ticket.first, epoch=ticket.epoch))

    def _read(self, ticket: Ticket, attempts: Sequence[int] | None) -> Delivery:
        group = self.limits.group
        try:
            found = self._find(ticket)
        except SourceDied as died:
            words = (
                f"the source died at row {died.row} ({reason_of(died.error)}), and what a generator would have given "
                "after it is lost; catch the error in the generator, or give an iterator that can go on"
            )
            return Delivery(None, failure=Failure(words, died.error, row=died.row, epoch=ticket.epoch))
        torn = next((len(part) for part in found.parts if len(part) % group), None)
        if torn is not None:
            words = f"the stream ended inside a group: {torn} rows are no multiple of {group}"
            return Delivery(None, failure=Failure(words, rows=torn, group=group))
        values = [value for part in found.parts for value in part]
        told = Delivery(None, found=len(values), full=found.full, ended=found.ended, taken=found.taken)
        if self.course.in_parts:
            if ticket.raw or not found.full:
                return told._replace(part=values)
            self._kept[ticket.first] = values
        made = self.made(ticket, self._share(ticket, values, full=found.full), attempts)
        return told._replace(batch=made.batch, attempts=made.attempts, replaced=made.replaced, failure=made.failure)

    def made(self, ticket: Ticket, rows: list[tuple[int, Any]], attempts: Sequence[int] | None = None) -> Delivery:
        """The batch of these rows, each with its position; without rows there is none."""
        if not rows:
            return Delivery(None)
        mended, failure = self._mended(ticket, rows, attempts)
        if failure is not None:
            return Delivery(None, failure=failure)
        return self._collated(ticket, *mended)

    def _find(self, ticket: Ticket) -> _Found:
        """What the next batch has of every piece."""
        if ticket.course != self.course:
            self.course, self._lanes = ticket.course or Course(1, self.batch_size), None
        pieces = self.pieces
        self._reach(ticket, pieces)
        assert self._lanes is not None
        both = list(zip(self._lanes, pieces, strict=True))
        # Where reading fails half-way, the next ticket begins anew.
        self._at = (-1, -1)
        parts = [lane.take(piece.each) for lane, piece in both]
        self._at = (ticket.epoch, ticket.first + self.batch_size)
        full = all(len(part) == piece.each for part, piece in zip(parts, pieces, strict=True))
        # A lane that several ranks read counts where it begins.
        rows = sum(lane.taken for lane, piece in both if not piece.own.start)
        batches = max(-(-lane.taken // piece.each) for lane, piece in both)
        own = [part[piece.own] for part, piece in zip(parts, pieces, strict=True)]
        return _Found(own, full, all(lane.ended for lane in self._lanes), (rows, batches))

    def _share(self, ticket: Ticket, values: list[Any], *, full: bool) -> list[tuple[int, Any]]:
        """What of the rows that were found is this shard's, each with its position."""
        if self.course.apart:
            return list(enumerate(values, ticket.first + self._span[0]))
        rows = list(enumerate(values, ticket.first))
        layout = self.cut.whole(len(rows)) if full else self.cut.short(len(rows))
        if layout is None:
            return []
        if self.shard is None:
            return rows
        return [rows[place] for place in (*layout.rows(self.shard).tolist(), *layout.pads(self.shard).tolist())]

    def _reach(self, ticket: Ticket, pieces: list[_Piece]) -> None:
        """Opens the lanes, or skips in them, so that the next row is the ticket's first."""
        if self._lanes is None or self._at[0] != ticket.epoch or self._at[1] > ticket.first:
            seeds = [hashed(self.limits.seed, ticket.epoch, piece.lane) for piece in pieces]
            sources = [self._source(piece.lane) for piece in pieces]
            self._kept = {}
            self._lanes = [Lane(*opened, ticket.epoch) for opened in zip(sources, seeds, strict=True)]
        # Of several pieces a ticket asks for whole batches.
        whole, rest = divmod(ticket.first, self.batch_size)
        for lane, piece in zip(self._lanes, pieces, strict=True):
            lane.skip(whole * piece.each + rest - lane.taken)

    def _source(self, lane: int) -> Any:
        return self.source if self.course.lanes == 1 else self.source.shard(num_shards=self.course.lanes, index=lane)

    def _mended(
        self, ticket: Ticket, rows: list[tuple[int, Any]], attempts: Sequence[int] | None
    ) -> tuple[tuple[list[Any], list[int], list[Replaced]], Failure | None]:
        """The values, with good ones of the batch repeated where bad ones were: a stream cannot be read elsewhere."""
        group = self.limits.group
        groups = [rows[start : start + group] for start in range(0, len(rows), group)]
        spoilt = [any(is_bad(value) for _, value in members) for members in groups]
        tries = list(attempts or [0] * len(groups))
        if attempts is None:
            bad = next(((position, value) for position, value in rows if is_bad(value)), None)
            if bad is not None and (not self.limits.max_bad or all(spoilt)):
                why = "max_bad=0 replaces no bad row" if not self.limits.max_bad else "so is every row of its share"
                return ([], [], []), self._bad(ticket, *bad, why)
            for index in (index for index, is_spoilt in enumerate(spoilt) if is_spoilt):
                tries[index] = next(
                    attempt
                    for attempt in range(1, len(groups))
                    if not spoilt[self._choice(ticket, rows, index, attempt, len(groups))]
                )
        values: list[Any] = []
        replaced: dict[int, Replaced] = {}
        for index, attempt in enumerate(tries):
            chosen = groups[self._choice(ticket, rows, index, attempt, len(groups)) if attempt else index]
            for (position, own), (other, value) in zip(groups[index], chosen, strict=True):
                if is_bad(value):
                    why = "the lead of its shard could read it, so this replica must too"
                    return ([], [], []), self._bad(ticket, other, value, why)
                values.append(value)
                if attempt:
                    replaced[position] = Replaced(position, position, other, _why(own, attempts))
        return (values, tries if any(tries) else [], list(replaced.values())), None

    def _choice(self, ticket: Ticket, rows: list[tuple[int, Any]], index: int, attempt: int, choices: int) -> int:
        position = rows[index * self.limits.group][0]
        return drawn((self.limits.seed, ticket.epoch, position), attempt=attempt, own=index, choices=choices)

    def _bad(self, ticket: Ticket, position: int, value: Any, why: str) -> Failure:
        bad = value if isinstance(value, Bad) else Bad(None)
        words = f"row {position} of the stream in epoch {ticket.epoch} is bad ({bad.reason}); {why}"
        return Failure(words, bad.error, row=position, position=position, epoch=ticket.epoch)

    def _collated(self, ticket: Ticket, values: list[Any], attempts: list[int], replaced: list[Replaced]) -> Delivery:
        if in_worker():
            sow(ticket.seed)
            return Delivery(self.collate(values), attempts, replaced)
        self._randomness = self._randomness or Randomness()
        with self._randomness:
            sow(ticket.seed)
            return Delivery(self.collate(values), attempts, replaced)


def _why(value: Any, attempts: Sequence[int] | None) -> str | None:
    """Why a row is replaced, in the terms of `Replaced`."""
    if isinstance(value, Bad):
        return value.reason
    return reason_of(None) if value is None else None if attempts else ""
