"""What travels between the loop and the torch workers: a ticket for a batch of one shard, and its delivery."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

from twinkle.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.dataloader.course import Course
    from twinkle.dataloader.repair import Replaced

__all__ = ["Delivery", "Failure", "Ticket", "as_is"]


class Ticket(NamedTuple):
    """One batch of one shard, as the loop orders it."""

    epoch: int
    #: The position of the global batch's first row.
    first: int
    #: What the random numbers of this batch come from; the same for all replicas.
    seed: int
    #: The position of the shard's first row, the rows of the shard (pads last), the positions that pads copy. A stream
    #: has none of these, its rows are what it gives; it has a course instead.
    start: int = 0
    rows: Sequence[Any] = ()
    pads: Sequence[int] = ()
    course: Course | None = None
    #: Whether the rows themselves are wanted of a stream that is read in parts, and no batch of them.
    raw: bool = False
    #: Of such a stream: the oldest batch whose rows may still be asked for.
    since: int = 0

    @property
    def positions(self) -> list[int]:
        """The position of every row."""
        return [*range(self.start, self.start + len(self.rows) - len(self.pads)), *self.pads]


class Failure:
    """An error on its way from a worker to the loop, so that the batches before it arrive first."""

    def __init__(self, message: str, cause: BaseException | None = None, **fields: Any) -> None:
        self.message, self.fields, self.cause = message, fields, cause
        self.trace = "" if cause is None else "".join(traceback.format_exception(cause))

    def __getstate__(self) -> dict[str, Any]:
        # An exception of a worker may not survive pickling; its words do.
        return {**self.__dict__, "cause": None}

    def error(self) -> PlanError:
        """The error to raise."""
        error = PlanError(self.message, **self.fields)
        error.__cause__ = self.cause
        if self.cause is None and self.trace:
            error.add_note(self.trace)
        return error


class Delivery(NamedTuple):
    """What comes back for a ticket."""

    batch: Any
    #: How often each group of the shard was drawn again; empty where no row was bad.
    attempts: Sequence[int] = ()
    replaced: Sequence[Replaced] = ()
    failure: Failure | None = None
    #: Whether the loop must read the batch itself, since only it knows the rows that may come instead of bad ones.
    again: bool = False
    #: Of a stream: how many rows were found, of the batch or (where only its own part is read) of the shard.
    found: int = 0
    #: Of a stream: whether they are all that were asked for, and whether nothing is left behind them.
    full: bool = True
    ended: bool = False
    #: Of a stream: how many rows were read of it so far, and of how many batches.
    taken: tuple[int, int] = (0, 0)
    #: Of a stream that is read in parts: the rows that were found of a batch that is not full, as a list, or pickled by
    #: a worker. They are collated when it is known what the others found.
    part: Any = None
    #: Of such a stream, with the first rows asked for: those of the batches that were made already, by their places.
    earlier: Sequence[tuple[int, Any]] = ()


def as_is(delivery: Delivery) -> Delivery:
    """The collate function that torch is given: collating is done already, under the batch's seed."""
    return delivery
