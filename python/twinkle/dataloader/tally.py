"""The bad rows that were replaced: told once, listed in the state, and counted against `max_bad`."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

from twinkle.dataloader.state import Mended, plain
from twinkle.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinkle.dataloader.repair import Replaced

__all__ = ["Tally"]


class Tally:
    """The replaced rows that this process has met, and those of a loaded state.

    A state is one data rank's and may be loaded on all of them: only entries of the own data rank count.
    """

    def __init__(self, data_rank: int, max_bad: int, group: int) -> None:
        self._data_rank, self._max_bad, self._group = data_rank, max_bad, group
        self._mended: dict[tuple[int, int, int], Mended] = {}

    @property
    def entries(self) -> list[Mended]:
        """What the state lists."""
        return list(self._mended.values())

    def load(self, entries: Iterable[Mended]) -> None:
        """Takes over what a state lists."""
        self._mended = {(entry.data_rank, entry.epoch, entry.replaced.position): entry for entry in entries}

    def add(self, epoch: int, replaced: Iterable[Replaced], *, stacklevel: int) -> None:
        """Warns of the rows of a batch that were not met before; PlanError where they are too many."""
        for one in replaced:
            key = (self._data_rank, epoch, one.position)
            if key not in self._mended:
                self._mended[key] = Mended(epoch, self._data_rank, one)
                where = f"row {one.row!r} at position {one.position} of epoch {epoch}"
                words = f"{where} {self._why(one.reason)}; row {one.by!r} comes in its place"
                warnings.warn(words, stacklevel=stacklevel + 1)
        self._check()

    def _why(self, reason: str | None) -> str:
        beside = "stands beside a bad one in its group"
        if reason is None:
            return f"is bad{'' if self._group == 1 else f' or {beside}'}, as the lead of its shard found"
        return f"is bad ({reason})" if reason else beside

    def _check(self) -> None:
        # A row that is bad in every epoch is one bad row.
        own = [entry.replaced.row for entry in self._mended.values() if entry.data_rank == self._data_rank]
        rows = list({_name(row): row for row in own}.values())
        bad = len(rows) // self._group
        if bad > self._max_bad:
            words = f"{bad} bad rows are more than max_bad={self._max_bad}: {rows[:20]}"
            raise PlanError(words, rows=rows, max_bad=self._max_bad)


def _name(row: Any) -> str:
    """The same for a row and for what comes back when a state has been written down and read."""
    return json.dumps(plain(row), default=repr)
