"""What a loader gives its caller to iterate over: the batches of one epoch, and the truth about how they ended."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Generator

    from twinkle.dataloader.run import RowRun, StreamRun

__all__ = ["Iteration"]


class Iteration(chain[Any]):
    """The batches of a run; PlanError, however often one is asked for, where it has failed.

    A generator that raised looks as if it were at its end. Behind it stands the run, which knows better.
    """

    _run: RowRun | StreamRun | None
    _batches: Generator[Any] | None

    def __new__(cls, run: RowRun | StreamRun | None = None, batches: Generator[Any] | None = None) -> Self:
        """Without a run there are no batches, and nothing that could fail."""
        self = super().__new__(cls, batches or (), () if run is None else iter(run.outcome, None))
        self._run, self._batches = run, batches
        return self

    def close(self) -> None:
        """Leaves the iteration: the workers are free, and there is no further batch."""
        if self._run is not None and self._batches is not None:
            self._batches.close()
            self._run.is_over = True
