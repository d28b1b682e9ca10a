"""Bad rows: which row comes instead is drawn from the seed, the epoch and the position, and from nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from twinkle._core import permuted
from twinkle.dataloader.seeds import hashed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.dataloader.order import Order
    from twinkle.dataloader.tickets import Ticket

__all__ = ["NOT_OF_A_ROW", "Limits", "Repair", "Replaced", "drawn", "number", "reason_of"]


class Limits(NamedTuple):
    """How many bad rows are replaced, with how many tries each, in which groups, and the seed of the draws."""

    max_bad: int
    max_retries: int
    group: int
    seed: int


class Replaced(NamedTuple):
    """A row that was not delivered and the row that came in its place."""

    position: int
    row: Any
    by: Any
    #: Why it is bad; empty where it only stands beside a bad one, None where the lead of its shard decided.
    reason: str | None = None


def drawn(key: tuple[int, int, int], *, attempt: int, own: int, choices: int) -> int:
    """What attempt 1, 2, ... draws out of 0..choices: every number but `own` once.

    The key is seed, epoch and position, so replicas draw alike and other shards are not asked.
    """
    draws: list[int] = permuted(hashed(*key), 0, choices, 0, attempt + 1).tolist()
    return [draw for draw in draws if draw != own][attempt - 1]


def reason_of(reason: Exception | None) -> str:
    """Why a row is bad, in a few words."""
    return "it is None" if reason is None else f"{type(reason).__name__}: {reason}"


#: Errors that say nothing of a row: they are raised, whatever `max_bad` allows.
NOT_OF_A_ROW = (MemoryError, SystemError)


def number(value: Any) -> Any:
    """A number of Python for one of NumPy or torch, as samplers may give; everything else as it is."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


class Repair:
    """The groups of one batch and shard, and how often each was drawn again.

    A group with a bad row is replaced whole, by another group of the order: pairs stay pairs, and a row that a sampler
    leaves out never comes in.
    """

    def __init__(self, ticket: Ticket, order: Order, limits: Limits, attempts: Sequence[int] = ()) -> None:
        self._ticket, self._order, self._limits = ticket, order, limits
        self._positions = ticket.positions
        self._choices = order.length(ticket.epoch) // limits.group
        self._reasons: dict[int, str] = {}
        self._follows = bool(attempts)
        self.attempts = list(attempts) or [0] * (len(self._positions) // limits.group)

    def rows(self) -> list[Any]:
        """The rows to read now."""
        group, rows, epoch = self._limits.group, list(self._ticket.rows), self._ticket.epoch
        for index, attempt in enumerate(self.attempts):
            if attempt:
                position = self._positions[index * group]
                draw = drawn(
                    (self._limits.seed, epoch, position),
                    attempt=attempt,
                    own=position // group,
                    choices=self._choices,
                )
                chosen = self._order.rows(epoch, draw * group, (draw + 1) * group)
                rows[index * group : (index + 1) * group] = chosen
        return rows

    def draw_again(self, bad: dict[int, Exception | None]) -> int | None:
        """Draws the groups of these places again; the first place for which no try is left, else None."""
        allowed = min(self._limits.max_retries, self._choices - 1)
        first: dict[int, int] = {}
        for slot, reason in bad.items():
            first.setdefault(slot // self._limits.group, slot)
            if not self.attempts[slot // self._limits.group]:
                self._reasons[slot] = reason_of(reason)
        for index, slot in first.items():
            if self.attempts[index] >= allowed:
                return slot
            self.attempts[index] += 1
        return None

    def replaced(self) -> list[Replaced]:
        """The rows that are not delivered and what came instead; one entry a position, though pads may copy it too."""
        group, rows, now = self._limits.group, self._ticket.rows, self.rows()
        listed: dict[int, Replaced] = {}
        for slot in (slot for slot in range(len(rows)) if self.attempts[slot // group]):
            reason = None if self._follows else self._reasons.get(slot, "")
            position = self._positions[slot]
            listed[position] = Replaced(position, number(rows[slot]), number(now[slot]), reason)
        return list(listed.values())
