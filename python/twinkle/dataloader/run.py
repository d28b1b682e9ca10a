"""One iteration of a loader: it orders tickets, and takes deliveries until the epoch is over."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, count, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from twinkle.dataloader.seeds import hashed_after
from twinkle.dataloader.tickets import Delivery, Ticket
from twinkle.errors import PlanError
from twinkle.plan import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinkle.dataloader.course import Course
    from twinkle.dataloader.cut import Cut, Grid, Span
    from twinkle.dataloader.order import Order
    from twinkle.dataloader.place import Peers, Place
    from twinkle.dataloader.reader import RowReader
    from twinkle.dataloader.streams import StreamReader

__all__ = ["Arrival", "RowRun", "Setting", "StreamRun", "Tickets"]

#: Makes the batch of a ticket, with attempts as the lead of the shard made it.
Read = Callable[[Ticket, Sequence[int] | None], Delivery]

#: What a rank has of a batch of a stream.
_FULL, _SHORT, _FAILED = range(3)


class Setting(NamedTuple):
    """What stays the same in all iterations of a loader."""

    place: Place
    peers: Peers
    cut: Cut
    seed: int
    max_bad: int


class Arrival(NamedTuple):
    """A delivered batch, its layout, where its global batch stops, and whether the epoch is over with it."""

    ticket: Ticket
    delivery: Delivery
    layout: Layout
    stop: int
    last: bool


class _Run:
    """One epoch from a start: `tickets` orders batches, `arrivals` takes what torch's iterator brings for them.

    It never holds that iterator, which holds the tickets: in a cycle it would outlive its use, and a worker of the next
    epoch could inherit it.
    """

    def __init__(self, setting: Setting, reader: Any, epoch: int, start: int) -> None:
        self.setting, self.reader, self.epoch, self.start = setting, reader, epoch, start
        #: How many rows at the end are too few for a batch that is kept.
        self.dropped = 0
        #: The seed of the batch that begins at a position: the same for all replicas and after any restart.
        self.seed = hashed_after(setting.seed, epoch, setting.place.shard or 0)

    def cut_off(self, ticket: Ticket) -> PlanError:
        """The error for a ticket that nothing came for: an iterator stopped, which would look like the end."""
        return self._about(ticket, "making the {} raised StopIteration, which is no end of the data")

    def _about(self, ticket: Ticket, words: str) -> PlanError:
        """An error about the batch of a ticket, which its words name where they have a place for it."""
        batch = f"batch at position {ticket.first} of epoch {self.epoch}"
        return PlanError(words.format(batch), position=ticket.first, epoch=self.epoch)

    def read(self, ticket: Ticket, attempts: Sequence[int] | None = None) -> Delivery:
        """Reads the batch of a ticket in this process; with `attempts`, as the lead of the shard did."""
        delivery: Delivery = self.reader.read(ticket, attempts)
        return delivery

    def agreed(self, ticket: Ticket, delivery: Delivery, width: int, read: Read | None = None) -> Delivery:
        """The delivery as all replicas of the shard have it: the lead decides which rows are bad, its peers follow.

        `read` makes it another time, with attempts, where it is not what the reader makes of the ticket.
        """
        read = read or self.read
        if delivery.again:
            delivery = read(ticket, None)
        peers = self.setting.peers
        if peers.replicas > 1 and self.setting.max_bad:
            if peers.connected:
                return self._followed(ticket, delivery, width, read)
            if delivery.replaced:
                bad = delivery.replaced[0]
                raise PlanError(
                    f"row {bad.row!r} at position {bad.position} of epoch {self.epoch} is bad, and its "
                    f"{peers.replicas} "
                    "replicas cannot agree on another: initialise torch.distributed, or set max_bad=0",
                    row=bad.row,
                    position=bad.position,
                    epoch=self.epoch,
                    replicas=peers.replicas,
                )
        if delivery.failure is not None:
            raise delivery.failure.error()
        return delivery

    def taken(self, deliveries: Iterator[Delivery], width: Callable[[], int]) -> Delivery | None:
        """The next delivery, None where the iterator stops; what is raised in its place is told to the replicas."""
        try:
            return next(deliveries, None)
        except Exception:
            # Whatever it is goes on from here; the replicas wait for what the lead has to say.
            peers = self.setting.peers
            if peers.replicas > 1 and self.setting.max_bad and peers.connected:
                peers.lead_decides([1] + [0] * width())
            raise

    def _followed(self, ticket: Ticket, delivery: Delivery, width: int, read: Read) -> Delivery:
        tries = [int(delivery.failure is not None), *delivery.attempts]
        own = tries + [0] * (1 + width - len(tries))
        told = self.setting.peers.lead_decides(own)
        if told[0]:
            if delivery.failure is not None:
                raise delivery.failure.error()
            who = f"the lead of data rank {self.setting.place.shard}"
            raise self._about(ticket, f"{who} could not read its {{}}; its own error says why")
        if told != own:
            found, full = delivery.found, delivery.full
            delivery = read(ticket, told[1:])
            if ticket.course is not None and (found, full) != (delivery.found, delivery.full):
                raise PlanError(
                    f"the stream of epoch {self.epoch} reads differently a second time at row {ticket.first}"
                )
        if delivery.failure is not None:
            raise delivery.failure.error()
        return delivery


class RowRun(_Run):
    """An iteration over map-style data: every batch is known before it is read."""

    reader: RowReader

    def __init__(self, setting: Setting, reader: RowReader, epoch: int, start: int, grid: Grid) -> None:
        super().__init__(setting, reader, epoch, start)
        self.grid = grid
        self.end = grid.end(start, setting.cut)
        self.dropped = max(grid.rows - self.end, 0)
        self._waiting: deque[tuple[Ticket, Layout, int]] = deque()
        self._part: tuple[tuple[int, bool], tuple[Layout, range, list[int]]] | None = None

    def tickets(self) -> Iterator[Ticket]:
        """The batches to read, in order; torch asks for them ahead of their use."""
        order: Order = self.reader.order
        for span in self.grid.spans(self.start, self.end):
            layout, own, pads = self._cut(span)
            start, copied = span.first + own.start, [span.first + place for place in pads]
            rows = order.rows(self.epoch, start, span.first + own.stop)
            if copied:
                rows = [*rows, *(row for place in copied for row in order.rows(self.epoch, place, place + 1))]
            ticket = Ticket(self.epoch, span.first, self.seed(span.first), start, rows, copied)
            self._waiting.append((ticket, layout, span.stop))
            yield ticket

    def arrivals(self, deliveries: Iterator[Delivery]) -> Iterator[Arrival]:
        """The batches, as all replicas have them."""
        while (delivery := self.taken(deliveries, self._width)) is not None:
            width = self._width()
            ticket, layout, stop = self._waiting.popleft()
            agreed = self.agreed(ticket, delivery, width)
            yield Arrival(ticket, agreed, layout, stop, stop == self.end)
        if self._waiting:
            raise self.cut_off(self._waiting[0][0])

    def _width(self) -> int:
        """How many groups of rows the batch has that is waited for."""
        return len(self._waiting[0][0].rows) // self.setting.cut.group if self._waiting else 0

    def __len__(self) -> int:
        return self.grid.count(self.start, self.setting.cut)

    def _cut(self, span: Span) -> tuple[Layout, range, list[int]]:
        """The layout of a batch, and which of its rows are this process's own."""
        key = (span.stop - span.first, span.short)
        if self._part is None or self._part[0] != key:
            layout = self.setting.cut.of(span)
            assert layout is not None
            shard, own, pads = self.setting.place.shard, range(key[0]), []
            if shard is not None:
                rows, pads = layout.rows(shard).tolist(), layout.pads(shard).tolist()
                own = range(rows[0], rows[-1] + 1) if rows else range(0)
            self._part = key, (layout, own, pads)
        return self._part[1]


class StreamRun(_Run):
    """An iteration over iterable data: where it ends is known when a batch comes back short."""

    reader: StreamReader

    def __init__(
        self, setting: Setting, reader: StreamReader, epoch: int, start: int, *, course: Course, rows: int | None
    ) -> None:
        super().__init__(setting, reader, epoch, start)
        self.course, self.rows = course, rows
        self._waiting: deque[Ticket] = deque()

    def tickets(self) -> Iterator[Ticket]:
        """Batches without end; those past the end of the stream come back empty."""
        for first in count(self.start, self.reader.batch_size):
            ticket = Ticket(self.epoch, first, self.seed(first), course=self.course)
            self._waiting.append(ticket)
            yield ticket

    def arrivals(self, deliveries: Iterator[Delivery]) -> Iterator[Arrival]:
        """The batches, as all replicas have them; all ranks end together.

        Where the source is read in several parts, a batch that is not full does not end it: the longer ones go on.
        """
        setting, size = self.setting, self.reader.batch_size
        whole = setting.cut.whole(size)
        width = max(whole.sizes.tolist()) // setting.cut.group
        while True:
            try:
                delivery = self.taken(deliveries, lambda: width)
                if delivery is None:
                    break
                ticket = self._waiting.popleft()
                agreed = self.agreed(ticket, delivery, width)
            except Exception:
                # Whatever it is goes on from here; the other ranks wait to hear how this batch is.
                self._worst(_FAILED)
                raise
            worst = self._worst(_FULL if agreed.full else _SHORT)
            if worst == _FAILED:
                raise self._failed_elsewhere(ticket)
            if worst == _FULL:
                self._counted(ticket.first + size, ended=False)
                yield Arrival(ticket, agreed, whole, ticket.first + size, last=False)
                continue
            layout, agreed = self._short(ticket, agreed, width)
            # In several parts a cursor counts places, of which a batch that is not full leaves some empty.
            parts = self.course.split or self.course.lanes > 1
            last = agreed.ended or not parts
            self._counted(ticket.first + agreed.found, ended=True)
            if layout is not None and agreed.batch is not None:
                yield Arrival(ticket, agreed, layout, ticket.first + (size if parts else agreed.found), last=last)
            else:
                self.dropped += agreed.found
            if last:
                return
        raise self.cut_off(self._waiting[0])

    def _failed_elsewhere(self, ticket: Ticket) -> PlanError:
        return self._about(ticket, "another rank could not read its part of the {}; its own error says why")

    def _worst(self, state: int) -> int:
        """The worst state that any rank is in with a batch."""
        peers = self.setting.peers
        return peers.worst(state) if peers.connected else state

    def _short(self, ticket: Ticket, delivery: Delivery, width: int) -> tuple[Layout | None, Delivery]:
        """The layout of a batch that is not full on all ranks, None where it is dropped, and what it is here."""
        setting, found, peers = self.setting, delivery.found, self.setting.peers
        if not self.course.apart:
            told = peers.of_each_shard(found) if peers.connected else [[found]]
            self._check_alike(told, apart=False)
            return setting.cut.short(found), delivery
        said = peers.of_each_shard((found, delivery.ended))
        self._check_alike([[number for number, _ in numbers] for numbers in said], apart=True)
        real = [numbers[0][0] for numbers in said]
        known = Delivery(None, found=sum(real), full=False, ended=all(one for numbers in said for _, one in numbers))
        layout = self._cut_of(real)
        if layout is None:
            return None, known
        if min(real) >= setting.cut.group:
            if delivery.part is None:
                # This rank has all of its part.
                return layout, delivery._replace(found=known.found, full=False, ended=known.ended)
            values = _values(delivery.part)
            values += values[-setting.cut.group :] * (
                (int(layout.sizes[shard_of(setting)]) - found) // setting.cut.group
            )
        else:
            values = self._dealt(ticket, delivery, layout)
        own = list(enumerate(values, ticket.first + sum(real[: shard_of(setting)])))

        def made(ticket: Ticket, attempts: Sequence[int] | None) -> Delivery:
            batch = self.reader.made(ticket, own, attempts)
            return batch._replace(found=known.found, full=False, ended=known.ended)

        return layout, self.agreed(ticket, made(ticket, None), width, made)

    def _cut_of(self, real: list[int]) -> Layout | None:
        """The layout of a batch of which the ranks have so many rows each, None where it is dropped.

        Each keeps its own rows where all have some; else the rows of all are dealt out.
        """
        cut, total = self.setting.cut, sum(real)
        if cut.tail == "drop" or not total or (cut.tail == "keep" and total < cut.least):
            return None
        return self._uneven(real) if min(real) >= cut.group else cut.short(total)

    def _dealt(self, ticket: Ticket, delivery: Delivery, layout: Layout) -> list[Any]:
        """This rank's share of the rows of all ranks."""
        part: Any = delivery.part
        try:
            part = self.reader.part(ticket) if part is None else part
            part = part if isinstance(part, bytes) else pickle.dumps(part)
        except Exception as error:  # the others wait for this part
            part = error
        told = part if self.setting.peers.is_lead and isinstance(part, bytes) else None
        said = self.setting.peers.of_each_shard((told, isinstance(part, Exception)))
        if isinstance(part, Exception):
            raise part
        if any(failed for numbers in said for _, failed in numbers):
            raise self._failed_elsewhere(ticket)
        values = [value for (rows, _), *_ in said for value in pickle.loads(rows)]
        shard = shard_of(self.setting)
        return [values[place] for place in (*layout.rows(shard).tolist(), *layout.pads(shard).tolist())]

    def _uneven(self, real: list[int]) -> Layout:
        """The layout of what the ranks still had: each shard its own rows, in the order of the shards."""
        cut = self.setting.cut
        rows = [range(start, stop) for start, stop in pairwise(accumulate(real, initial=0))]
        if cut.tail != "pad":
            return Layout.explicit(rows)
        sizes = cut.whole(self.reader.batch_size).sizes.tolist()
        pads = [
            list(own[-cut.group :]) * ((size - len(own)) // cut.group) for own, size in zip(rows, sizes, strict=True)
        ]
        return Layout.explicit(rows, pads)

    def _check_alike(self, told: list[list[int]], *, apart: bool) -> None:
        """PlanError where replicas, or ranks that read the same source, found other numbers of rows."""
        differing = [numbers for numbers in told if len(set(numbers)) > 1]
        if differing or (not apart and len({numbers[0] for numbers in told}) > 1):
            raise PlanError(
                f"the ranks read different streams: at the end of epoch {self.epoch} the ranks of each data rank "
                f"found {told} rows; a stream must give the same rows in every process",
                found=told,
            )

    def _counted(self, seen: int, *, ended: bool) -> None:
        """PlanError where the source has other rows than its length says."""
        if self.rows is not None and not self.course.apart and (seen > self.rows or (ended and seen < self.rows)):
            found = f"ended after {seen}" if ended else f"gave {seen} or more"
            raise PlanError(
                f"the length of the stream is {self.rows} rows, but in epoch {self.epoch} it {found}",
                rows=self.rows,
                found=seen,
            )


def shard_of(setting: Setting) -> int:
    """This process's shard; ranks that read apart have one each."""
    assert setting.place.shard is not None
    return setting.place.shard


def _values(part: list[Any] | bytes) -> list[Any]:
    return list(pickle.loads(part) if isinstance(part, bytes) else part)


class Tickets:
    """The batch sampler that torch sees: the tickets of the iteration that is beginning."""

    run: RowRun | StreamRun | None = None

    def __iter__(self) -> Iterator[Ticket]:
        return iter(()) if self.run is None else self.run.tickets()

    def __getstate__(self) -> dict[str, Any]:
        # An iteration that is going on stays with the process that began it.
        return {}
