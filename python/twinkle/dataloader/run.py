"""One iteration of a loader: it orders tickets, and takes deliveries until the epoch is over."""

from __future__ import annotations

from collections import deque
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
        return PlanError(
            f"making the batch at position {ticket.first} of epoch {self.epoch} raised StopIteration, which is no end "
            "of the data",
            position=ticket.first,
            epoch=self.epoch,
        )

    def agreed(self, ticket: Ticket, delivery: Delivery, width: int) -> Delivery:
        """The delivery as all replicas of the shard have it: the lead decides which rows are bad, its peers follow."""
        if delivery.again:
            delivery = self.reader.read(ticket)
        peers = self.setting.peers
        if peers.replicas > 1 and self.setting.max_bad:
            if peers.connected:
                return self._followed(ticket, delivery, width)
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

    def _followed(self, ticket: Ticket, delivery: Delivery, width: int) -> Delivery:
        tries = [int(delivery.failure is not None), *delivery.attempts]
        own = tries + [0] * (1 + width - len(tries))
        told = self.setting.peers.lead_decides(own)
        if told[0]:
            if delivery.failure is not None:
                raise delivery.failure.error()
            raise PlanError(
                f"the lead of data rank {self.setting.place.shard} could not read its batch at position "
                f"{ticket.first} of "
                f"epoch {self.epoch}; its own error says why",
                position=ticket.first,
                epoch=self.epoch,
            )
        if told != own:
            found, full = delivery.found, delivery.full
            delivery = self.reader.read(ticket, told[1:])
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
        group = self.setting.cut.group
        for delivery in deliveries:
            ticket, layout, stop = self._waiting.popleft()
            agreed = self.agreed(ticket, delivery, len(ticket.rows) // group)
            yield Arrival(ticket, agreed, layout, stop, stop == self.end)
        if self._waiting:
            raise self.cut_off(self._waiting[0][0])

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
        """The batches, as all replicas have them; all ranks end together."""
        setting, size = self.setting, self.reader.batch_size
        whole = setting.cut.whole(size)
        width = max(whole.sizes.tolist()) // setting.cut.group
        for delivery in deliveries:
            ticket = self._waiting.popleft()
            agreed = self.agreed(ticket, delivery, width)
            together = setting.peers.all(agreed.full) if setting.peers.connected else agreed.full
            if together:
                self._counted(ticket.first + size, ended=False)
                yield Arrival(ticket, agreed, whole, ticket.first + size, last=False)
                continue
            layout, found = self._end(agreed)
            self._counted(ticket.first + found, ended=True)
            if layout is not None and agreed.batch is not None:
                yield Arrival(ticket, agreed, layout, ticket.first + found, last=True)
            else:
                self.dropped = found
            return
        raise self.cut_off(self._waiting[0])

    def _end(self, delivery: Delivery) -> tuple[Layout | None, int]:
        """The layout of the last batch, None where it is dropped, and how many rows it has."""
        setting, found = self.setting, delivery.found
        cut, peers = setting.cut, setting.peers
        told = peers.of_each_shard(found) if peers.connected else [[found]]
        differing = [numbers for numbers in told if len(set(numbers)) > 1]
        if differing or (not self.course.apart and len({numbers[0] for numbers in told}) > 1):
            raise PlanError(
                f"the ranks read different streams: at the end of epoch {self.epoch} the ranks of each data rank "
                f"found {told} "
                "rows; a stream must give the same rows in every process",
                found=told,
            )
        if not self.course.apart:
            return cut.short(found), found
        real = [numbers[0] for numbers in told]
        total = sum(real)
        enough = min(real) >= cut.group and (cut.tail == "pad" or total >= cut.min_batch_size)
        if cut.tail == "drop" or not enough:
            return None, total
        return self._uneven(real), total

    def _uneven(self, real: list[int]) -> Layout:
        """The layout of what the lanes still had: each shard its own rows, in the order of the shards."""
        cut = self.setting.cut
        rows = [range(start, stop) for start, stop in pairwise(accumulate(real, initial=0))]
        if cut.tail != "pad":
            return Layout.explicit(rows)
        sizes = cut.whole(self.reader.batch_size).sizes.tolist()
        pads = [
            list(own[-cut.group :]) * ((size - len(own)) // cut.group) for own, size in zip(rows, sizes, strict=True)
        ]
        return Layout.explicit(rows, pads)

    def _counted(self, seen: int, *, ended: bool) -> None:
        """PlanError where the source has other rows than its length says."""
        if self.rows is not None and not self.course.apart and (seen > self.rows or (ended and seen < self.rows)):
            found = f"ended after {seen}" if ended else f"gave {seen} or more"
            raise PlanError(
                f"the length of the stream is {self.rows} rows, but in epoch {self.epoch} it {found}",
                rows=self.rows,
                found=seen,
            )


class Tickets:
    """The batch sampler that torch sees: the tickets of the iteration that is beginning."""

    run: RowRun | StreamRun | None = None

    def __iter__(self) -> Iterator[Ticket]:
        return iter(()) if self.run is None else self.run.tickets()

    def __getstate__(self) -> dict[str, Any]:
        # An iteration that is going on stays with the process that began it.
        return {}
