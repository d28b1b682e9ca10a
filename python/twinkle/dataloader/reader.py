"""Map-style data: what a torch worker does with a ticket. It reads the rows, mends bad ones, and collates."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

from twinkle.dataloader.epochs import set_epoch
from twinkle.dataloader.repair import NOT_OF_A_ROW, Repair, reason_of
from twinkle.dataloader.seeds import Randomness, sow
from twinkle.dataloader.tickets import Delivery, Failure
from twinkle.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinkle.dataloader.order import Order
    from twinkle.dataloader.repair import Limits
    from twinkle.dataloader.tickets import Ticket

__all__ = ["RowReader", "in_worker"]


def in_worker() -> bool:
    """Whether this is a worker process of a torch loader."""
    return _worker_info()() is not None


@cache
def _worker_info() -> Callable[[], Any]:
    # Looked up once: every batch asks.
    from torch.utils.data import get_worker_info

    return get_worker_info


class RowReader:
    """A map-style data set that is asked by ticket. What it answers depends on the ticket and on nothing else."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any], order: Order, limits: Limits) -> None:
        self.dataset, self.collate, self.order, self.limits = dataset, collate, order, limits
        self._epoch = -1
        self._many = getattr(dataset, "__getitems__", None)
        self._randomness: Randomness | None = None
        self._told = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_randomness": None, "_many": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._many = getattr(self.dataset, "__getitems__", None)

    def __getitems__(self, ticket: Ticket) -> Delivery:
        """What torch's fetcher calls."""
        return self.read(ticket)

    def read(self, ticket: Ticket, attempts: Sequence[int] | None = None) -> Delivery:
        """Reads a batch; with `attempts`, draws as the lead of the shard did and not otherwise."""
        if ticket.epoch != self._epoch:
            set_epoch(self.dataset, ticket.epoch, own=in_worker())
            self._epoch = ticket.epoch
        if in_worker():
            return self._read(ticket, attempts)
        if self._randomness is None:
            self._randomness = Randomness()
        with self._randomness:
            return self._read(ticket, attempts)

    def _read(self, ticket: Ticket, attempts: Sequence[int] | None) -> Delivery:
        repair, rows = None, ticket.rows
        if attempts:
            repair = Repair(ticket, self.order, self.limits, attempts)
            rows = repair.rows()
        while True:
            # Each time from the start, so that random numbers do not depend on how often a bad row was tried.
            values, bad = self._fetch(rows, ticket.seed)
            if not bad:
                batch = self.collate(values)
                return Delivery(batch) if repair is None else Delivery(batch, repair.attempts, repair.replaced())
            if attempts is not None:
                return self._refused(ticket, rows, bad, "the lead of its shard could read it, so this replica must too")
            if not self.limits.max_bad:
                return self._refused(ticket, rows, bad, "max_bad=0 replaces no bad row")
            if not self.order.known(ticket.epoch):
                return Delivery(None, again=True)
            repair = repair or Repair(ticket, self.order, self.limits)
            spent = repair.draw_again(bad)
            if spent is not None:
                tried, most = repair.attempts[spent // self.limits.group], self.limits.max_retries
                why = f"it was the last of {tried} drawn for row {ticket.rows[spent]!r} (max_retries={most})"
                if not tried:
                    why = "there is no other row to draw" if most else "max_retries=0 draws no other row"
                return self._refused(ticket, rows, {spent: bad[spent]}, why)
            rows = repair.rows()

    def _fetch(self, rows: Sequence[Any], seed: int) -> tuple[list[Any], dict[int, Exception | None]]:
        """The values of the rows, and the places of bad ones with their reasons: an exception, or None for None."""
        sow(seed)
        if self._many is None:
            return self._fetch_singly(rows)
        try:
            values = list(self._many(list(rows)))
        except NOT_OF_A_ROW:
            raise
        except Exception as error:
            # Any row may have raised anything: asked one by one, each answers for itself.
            sow(seed)
            singly, bad = self._fetch_singly(rows)
            if not bad and not self._told:
                self._told = True
                words = f"__getitems__ of {type(self.dataset).__name__} failed ({reason_of(error)}), but each of its "
                warnings.warn(f"{words}{len(rows)} rows can be read: they are read one by one", stacklevel=2)
            return singly, bad
        if len(values) != len(rows):
            words = f"__getitems__ was asked for {len(rows)} rows and gave {len(values)}"
            raise PlanError(words, asked=len(rows), given=len(values))
        # By identity: a row may be falsy, or have no truth of its own.
        return values, {slot: None for slot, value in enumerate(values) if value is None}

    def _fetch_singly(self, rows: Sequence[Any]) -> tuple[list[Any], dict[int, Exception | None]]:
        dataset = self.dataset
        values: list[Any] = []
        bad: dict[int, Exception | None] = {}
        for row in rows:
            try:
                value = dataset[row]
            except NOT_OF_A_ROW:
                raise
            except Exception as error:
                value = None
                bad[len(values)] = error
            if value is None:
                bad.setdefault(len(values), None)
            values.append(value)
        return values, bad

    def _refused(self, ticket: Ticket, rows: Sequence[Any], bad: dict[int, Exception | None], why: str) -> Delivery:
        slot, reason = next(iter(bad.items()))
        position, row = ticket.positions[slot], rows[slot]
        words = f"row {row!r} at position {position} of epoch {ticket.epoch} is bad ({reason_of(reason)}); {why}"
        return Delivery(None, failure=Failure(words, reason, row=row, position=position, epoch=ticket.epoch))
