"""Positions by one number: the rows delivered since the beginning of epoch 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinkle.dataloader.state import Cursor
from twinkle.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Consumed"]

#: Of so many epochs at most the rows are counted one by one, where they differ.
_MOST = 1000


class Consumed:
    """The rows of each epoch added up. `rows_in` counts one epoch; all are alike where `steady`."""

    def __init__(self, rows_in: Callable[[int], int], *, steady: bool) -> None:
        self._rows_in, self._steady = rows_in, steady
        self._known: dict[int, int] = {}

    def at(self, cursor: Cursor) -> int:
        """The rows before a cursor. The inverse of `cursor`."""
        epoch, next_row = cursor
        if not epoch:
            return next_row
        if self._steady:
            return epoch * self._rows_in(epoch) + next_row
        self._check(epoch)
        before = sum(self._rows(past) for past in range(epoch))
        # An order is held for one epoch, which is to be the present one.
        self._rows_in(epoch)
        return before + next_row

    def cursor(self, consumed: int) -> Cursor:
        """The cursor behind so many rows. The inverse of `at`."""
        epoch, left = 0, consumed
        while left and left >= (rows := self._rows(epoch)):
            if not rows:
                raise PlanError(
                    f"an epoch yields no rows, so {consumed} samples cannot have been consumed", samples=consumed
                )
            if self._steady:
                return Cursor(*divmod(consumed, rows))
            epoch, left = epoch + 1, left - rows
            self._check(epoch)
        return Cursor(epoch, left)

    def _rows(self, epoch: int) -> int:
        if epoch not in self._known:
            self._known[epoch] = self._rows_in(epoch)
        return self._known[epoch]

    def _check(self, epochs: int) -> None:
        if epochs > _MOST:
            raise PlanError(
                f"the epochs of this sampler may differ in length and {epochs} are past, of which at most {_MOST} are "
                "counted; keep state_dict(), which needs no count",
                epochs=epochs,
                most=_MOST,
            )
