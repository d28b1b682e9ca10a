"""One pass over an iterable source: rows by count, bad ones marked, in a world of random numbers of its own."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from twinkle.dataloader.epochs import set_epoch
from twinkle.dataloader.reader import in_worker
from twinkle.dataloader.repair import NOT_OF_A_ROW, reason_of
from twinkle.dataloader.seeds import Randomness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Bad", "Lane", "SourceDied", "is_bad"]


class Bad:
    """Stands where a source raised instead of giving a row."""

    def __init__(self, error: Exception | None, reason: str = "") -> None:
        self.error, self.reason = error, reason or reason_of(error)

    def __reduce__(self) -> Any:
        # An exception may not survive pickling; its words do.
        return Bad, (None, self.reason)


class SourceDied(Exception):  # noqa: N818 - a source that cannot go on is an event, turned into a refusal by the reader
    """A source ended because it raised, which is no end of the data."""

    def __init__(self, row: int, error: Exception) -> None:
        super().__init__(row, error)
        self.row, self.error = row, error


def is_bad(value: Any) -> bool:
    """Whether a row is unusable: None, or an error in its place. By identity: a row may have no truth of its own."""
    return value is None or isinstance(value, Bad)


class Lane:
    """A source and how far it was read in this epoch. What it gives depends on the seed and on nothing outside."""

    def __init__(self, source: Iterable[Any], seed: int, epoch: int) -> None:
        self.taken = 0
        self.ended = False
        self._randomness = Randomness(seed)
        self._failed: SourceDied | None = None
        own = in_worker()
        with self._randomness, unworked():
            set_epoch(source, epoch, own=own)
            self._rows = iter(source)

    def skip(self, count: int) -> None:
        """Reads rows and forgets them."""
        self.take(count, keep=False)

    def take(self, count: int, *, keep: bool = True) -> list[Any]:
        """The next rows, fewer at the end, with `Bad` where the source raised. SourceDied when it then cannot go on."""
        values: list[Any] = []
        if self.ended or not count:
            return values
        with self._randomness, unworked():
            while count and not self.ended:
                value = self._next()
                if self.ended:
                    break
                count -= 1
                self.taken += 1
                if keep:
                    values.append(value)
        return values

    def _next(self) -> Any:
        try:
            value = next(self._rows)
        except StopIteration:
            if self._failed is not None:
                raise self._failed from self._failed.error
            self.ended = True
            return None
        except NOT_OF_A_ROW:
            raise
        except Exception as error:
            self._failed = SourceDied(self.taken, error)
            if isinstance(self._rows, (GeneratorType, chain)):
                # A generator that raised is finished: asking again would look like the end of the data, or of its part.
                raise self._failed from error
            return Bad(error)
        self._failed = None
        return value


@contextmanager
def unworked() -> Iterator[None]:
    """While a source is read it sees no torch worker, as in the loop itself.

    A source that shares its rows out among the workers would be cut twice, and one that takes its seed from the worker
    would come in another order in each: every worker reads the whole source and takes every so-many-th batch of it.
    """
    from torch.utils.data._utils import worker

    # torch has no public way to say it.
    before, worker._worker_info = worker._worker_info, None
    try:
        yield
    finally:
        worker._worker_info = before
