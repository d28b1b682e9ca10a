"""One iteration of a loader: it orders tickets, and takes deliveries until the epoch is over."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from twinkle.dataloader.seeds import hashed_after
from twinkle.dataloader.tickets import Delivery, Ticket
from twinkle.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinkle.dataloader.course import Course
    from twinkle.dataloader.cut import Cut, Grid, Span
    from twinkle.dataloader.order import Order
    from twinkle.dataloader.place import Peers, Place
    from twinkle.dataloader.reader import RowReader
    from twinkle.dataloader.streams import StreamReader
    from twinkle.plan import Layout

__all__ = ["Arrival", "RowRun", "Setting", "StreamRun", "Tickets"]

#: Makes the batch of a ticket, with attempts as the lead of the shard made it.
Read = Callable[[Ticket, Sequence[int] | None], Delivery]

#: What a replica says of a batch: it is read, a row of it cannot be, or nothing comes any more.
_READ, _SPOILT, _GONE = range(3)

#: What a rank has of a batch of a stream: all of its part; that, but no batch can be made of it; less; an error.
_FULL, _UNMADE, _SHORT, _FAILED = range(4)


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
        #: Whether the loop has come to the end, and what stopped it before.
        self.is_over, self.failure = False, ""
        #: The seed of the batch that begins at a position: the same for all replicas and after any restart.
        self.seed = hashed_after(setting.seed, epoch, setting.place.shard or 0)

    def outcome(self) -> None:
        """Nothing where the iteration is over; PlanError where it has failed, however often it is asked."""
        if not self.is_over:
            raise PlanError(
                f"this iteration has failed ({self.failure or 'its batch was not accepted'}); begin another"
            )

    def cut_off(self, ticket: Ticket) -> PlanError:
        """The error for a ticket that nothing came for: an iterator stopped, which would look like the end."""
        return self._about(ticket, "making the {} raised StopIteration, which is no end of the data")

    def _about(self, ticket: Ticket, words: str) -> PlanError:
        """An error about the batch of a ticket, which its words name where they have a place for it."""
        batch = f"batch at position {ticket.first} of epoch {self.epoch}"
        return PlanError(words.format(batch), position=ticket.first, epoch=self.epoch)

    def refused(self, arrival: Arrival) -> None:
        """Hears that a batch is not delivered, since the loader has refused it."""

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
            try:
                delivery = read(ticket, None)
            except Exception:
                self._gone(width)
                raise
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
            self._gone(width())
            raise

    def _gone(self, width: int) -> None:
        """Tells the replicas, which wait for what this one has to say of a batch, that whatever it is goes on here."""
        peers = self.setting.peers
        if peers.replicas > 1 and self.setting.max_bad and peers.connected:
            peers.of_each_replica([_GONE] + [0] * width)

    def _followed(self, ticket: Ticket, delivery: Delivery, width: int, read: Read) -> Delivery:
        tries = [_SPOILT if delivery.failure is not None else _READ, *delivery.attempts]
        own = tries + [0] * (1 + width - len(tries))
        peers = self.setting.peers
        told = peers.of_each_replica(own)
        # A peer whose own rows are spoilt may still read those that the lead has.
        lead, *others = (state for state, *_ in told)
        self._heard(ticket, delivery, [lead, *(state if state == _GONE else _READ for state in others)])
        if all(one == told[0] for one in told):
            return delivery
        # All of them know now that one reads again, and wait to hear whether it can.
        try:
            if told[0] != own:
                delivery = self._read_as(ticket, delivery, told[0][1:], read)
        except Exception:
            self._gone(0)
            raise
        said = peers.of_each_replica([_READ if delivery.failure is None else _SPOILT])
        self._heard(ticket, delivery, [one[0] for one in said])
        return delivery

    def _read_as(self, ticket: Ticket, delivery: Delivery, attempts: Sequence[int], read: Read) -> Delivery:
        """The delivery of a ticket as the lead of the shard made it."""
        again = read(ticket, attempts)
        if ticket.course is not None and (delivery.found, delivery.full) != (again.found, again.full):
            raise PlanError(f"the stream of epoch {self.epoch} reads differently a second time at row {ticket.first}")
        return again

    def _heard(self, ticket: Ticket, delivery: Delivery, said: Sequence[int]) -> None:
        """The error that ends all replicas of a shard alike where one of them says that it cannot go on."""
        worst = max(said)
        if worst == _READ:
            return
        if delivery.failure is not None:
            raise delivery.failure.error()
        place = said.index(worst)
        who = f"replica {place}" if place else "the lead"
        shard = self.setting.place.shard
        raise self._about(ticket, f"{who} of data rank {shard} could not read its {{}}; its own error says why")


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
        #: Rows of a stream in parts that wait for a batch to be full, on every rank all of them, each with its place.
        self._held: list[tuple[int, Any]] = []
        #: How many rows of the first batch that is read in parts lie before the start.
        self._before = start % reader.batch_size if course.in_parts else 0
        self._raw, self._since = self._before > 0, start
        #: Deliveries that came while rows of an earlier batch were asked for; and such rows.
        self._ahead: deque[Delivery] = deque()
        self._earlier: dict[int, Any] = {}
        self._width = max(setting.cut.whole(reader.batch_size).sizes.tolist()) // setting.cut.group

    def refused(self, arrival: Arrival) -> None:
        """Tells the other ranks, which ask next how the batch behind this one is."""
        if not arrival.last and self.setting.peers.connected:
            self.setting.peers.worst(_FAILED)

    def tickets(self) -> Iterator[Ticket]:
        """Batches without end; those past the end of the stream come back empty."""
        for first in count(self.start - self._before, self.reader.batch_size):
            ticket = Ticket(self.epoch, first, self.seed(first), course=self.course, raw=self._raw, since=self._since)
            self._waiting.append(ticket)
            yield ticket

    def arrivals(self, deliveries: Iterator[Delivery]) -> Iterator[Arrival]:
        """The batches, as all replicas have them; all ranks end together.

        Where the source is read in several parts, one that is not full does not end it: the longer ones go on.
        """
        size, peers, parts = self.reader.batch_size, self.setting.peers, self.course.in_parts
        whole = self.setting.cut.whole(size)
        # Of parts it shows first whether this batch is one; only then there is something to follow.
        follow = parts and peers.replicas > 1 and self.setting.max_bad > 0
        while True:
            with self._told_of_failure():
                delivery = self._next(deliveries)
                if delivery is None:
                    break
                ticket = self._waiting.popleft()
                self._since = ticket.first
                if not parts:
                    delivery = self.agreed(ticket, delivery, self._width)
                elif delivery.failure is not None and not delivery.found:
                    raise delivery.failure.error()
            full = delivery.full and delivery.part is None
            unmade = delivery.failure is not None and not follow
            worst = self._worst(ticket, _UNMADE if unmade else _FULL if full else _SHORT)
            if worst == _FULL:
                if follow:
                    delivery = self._made(ticket, iter([delivery]), self.read)
                elif parts:
                    delivery = self.agreed(ticket, delivery, self._width)
                self._counted(ticket.first + size, ended=False)
                yield Arrival(ticket, delivery, whole, ticket.first + size, last=False)
            elif worst == _UNMADE:
                raise self._failed_elsewhere(ticket) if delivery.failure is None else delivery.failure.error()
            elif parts:
                ended = self._hold(ticket, delivery, deliveries)
                yield from self._joined(ticket, ended=ended)
                if ended:
                    return
            else:
                yield from self._last(ticket, delivery)
                return
        raise self.cut_off(self._waiting[0])

    def _next(self, deliveries: Iterator[Delivery]) -> Delivery | None:
        if self._ahead:
            return self._ahead.popleft()
        return next(deliveries, None) if self.course.in_parts else self.taken(deliveries, lambda: self._width)

    def _made(self, ticket: Ticket, deliveries: Iterator[Delivery], read: Read) -> Delivery:
        """The batch that is delivered, as all replicas have it and when no rank has failed with it."""
        with self._told_of_failure():
            delivery = self.taken(deliveries, lambda: self._width)
            if delivery is None:
                raise self.cut_off(ticket)
            agreed = self.agreed(ticket, delivery, self._width, read)
        self._worst(ticket, _FULL)
        return agreed

    def _last(self, ticket: Ticket, delivery: Delivery) -> Iterator[Arrival]:
        """The short batch at the end of a stream that every rank reads whole."""
        found, peers = delivery.found, self.setting.peers
        self._check_alike(peers.of_each_shard(found) if peers.connected else [[found]], apart=False)
        self._check_reached(delivery.taken[0], beyond=delivery.taken[0] < self.start)
        self._counted(ticket.first + found, ended=True)
        layout = self.setting.cut.short(found)
        if layout is not None:
            yield Arrival(ticket, delivery, layout, ticket.first + found, last=True)
        else:
            self.dropped += found

    def _rows(self, ticket: Ticket, delivery: Delivery, deliveries: Iterator[Delivery]) -> Any:
        """The rows that this rank has for a batch, as a list or pickled by a worker.

        Where it made the batch already, since it had its part of it whole, they come with what is delivered next by who
        made it: from now on it is asked for rows.
        """
        self._raw = True
        if delivery.part is not None:
            return delivery.part
        while ticket.first not in self._earlier:
            ahead = next(deliveries, None)
            if ahead is None:
                raise self.cut_off(ticket)
            if ahead.failure is not None and not ahead.earlier:
                raise ahead.failure.error()
            self._ahead.append(ahead)
            self._earlier.update(ahead.earlier)
        return self._earlier.pop(ticket.first)

    def _hold(self, ticket: Ticket, delivery: Delivery, deliveries: Iterator[Delivery]) -> bool:
        """Takes the rows that all ranks have for a batch that not all have full; whether they are the last."""
        found, ended, taken = delivery.found, delivery.ended, delivery.taken
        if not self.course.apart:
            values = _values(self._rows(ticket, delivery, deliveries))
        else:
            peers = self.setting.peers
            part: Any
            try:
                part = self._rows(ticket, delivery, deliveries)
                part = part if isinstance(part, bytes) else pickle.dumps(part)
            except Exception as error:  # the others wait for this part
                part = error
            rows = part if peers.is_lead and isinstance(part, bytes) else None
            told = peers.of_each_shard((rows, isinstance(part, Exception), found, ended, taken))
            if isinstance(part, Exception):
                raise part
            said = [one for replicas in told for one in replicas]
            if any(failed for _, failed, *_ in said):
                raise self._failed_elsewhere(ticket)
            self._check_alike([[one[2] for one in replicas] for replicas in told], apart=True)
            leads = [replicas[0] for replicas in told]
            values = [value for rows, *_ in leads for value in pickle.loads(rows)]
            ended = all(one[3] for one in said)
            taken = sum(one[4][0] for one in leads), max(one[4][1] for one in leads)
        if ticket.first == self.start - self._before:
            batches = self.start // self.reader.batch_size
            beyond = len(values) < self._before or (not values and taken[1] < batches)
            self._check_reached(taken[0], beyond=beyond)
            values = values[self._before :]
            self._held = list(enumerate(values, self.start))
        else:
            self._held += enumerate(values, ticket.first)
        return ended

    def _joined(self, ticket: Ticket, *, ended: bool) -> Iterator[Arrival]:
        """The batches of the rows that are held, whole ones first; a short one only at the end."""
        size, after = self.reader.batch_size, ticket.first + self.reader.batch_size
        while len(self._held) >= size or (self._held and ended):
            rows, self._held = self._held[:size], self._held[size:]
            stop = self._held[0][0] if self._held else after
            cut = self.setting.cut
            layout = cut.whole(size) if len(rows) == size else cut.short(len(rows))
            if layout is None:
                self.dropped += len(rows)
                return
            own = rows
            if (shard := self.setting.place.shard) is not None:
                own = [rows[place] for place in (*layout.rows(shard).tolist(), *layout.pads(shard).tolist())]
            first = rows[0][0]
            about = Ticket(self.epoch, first, self.seed(first), course=self.course)

            def made(ticket: Ticket, attempts: Sequence[int] | None = None, own: Any = own) -> Delivery:
                return self.reader.made(ticket, own, attempts)

            batch = self._made(about, map(made, [about]), made)
            yield Arrival(about, batch, layout, stop, last=ended and not self._held)

    @contextmanager
    def _told_of_failure(self) -> Iterator[None]:
        """Tells the other ranks, which wait to hear how this batch is, of whatever is raised and goes on from here."""
        try:
            yield
        except Exception:
            peers = self.setting.peers
            if peers.connected:
                peers.worst(_FAILED)
            raise

    def _worst(self, ticket: Ticket, state: int) -> int:
        """The worst state that any rank is in with a batch; PlanError where it failed on another."""
        peers = self.setting.peers
        worst = peers.worst(state) if peers.connected else state
        if worst == _FAILED:
            raise self._failed_elsewhere(ticket)
        return worst

    def _failed_elsewhere(self, ticket: Ticket) -> PlanError:
        return self._about(ticket, "another rank could not read its part of the {}; its own error says why")

    def _check_alike(self, told: list[list[int]], *, apart: bool) -> None:
        """PlanError where replicas, or ranks that read the same source, found other numbers of rows."""
        differing = [numbers for numbers in told if len(set(numbers)) > 1]
        if differing or (not apart and len({numbers[0] for numbers in told}) > 1):
            raise PlanError(
                f"the ranks read different streams: at the end of epoch {self.epoch} the ranks of each data rank "
                f"found {told} rows; a stream must give the same rows in every process",
                found=told,
            )

    def _check_reached(self, rows: int, *, beyond: bool) -> None:
        """PlanError where the stream ended before the start, which nobody can have seen of it."""
        if beyond:
            raise PlanError(
                f"the cursor is at row {self.start} of epoch {self.epoch}, but there the stream ends after {rows} rows",
                next_row=self.start,
                rows=rows,
            )

    def _counted(self, seen: int, *, ended: bool) -> None:
        """PlanError where the source has other rows than its length says."""
        if self.rows is not None and (seen > self.rows or (ended and seen < self.rows)):
            found = f"ended after {seen}" if ended else f"gave {seen} or more"
            raise PlanError(
                f"the length of the stream is {self.rows} rows, but in epoch {self.epoch} it {found}",
                rows=self.rows,
                found=seen,
            )


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
