"""One pass over an iterable source: rows by count, bad ones marked, in a world of random numbers of its own."""

from __future__ import annotations

from contextlib import contextmanager
from inspect import isgenerator
from typing import TYPE_CHECKING, Any

from twinkle.dataloader.seeds import Randomness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Bad", "Lane", "SourceDied", "is_bad"]


class Bad:
    """Stands where a source raised instead of giving a row."""

    def __init__(self, error: Exception) -> None:
        self.error = error


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
        with self._randomness, as_only_worker():
            if callable(getattr(source, "set_epoch", None)):
                source.set_epoch(epoch)  # type: ignore[attr-defined]
            self._rows = iter(source)

    def skip(self, count: int) -> None:
        """Reads rows and forgets them."""
        self.take(count, keep=False)

    def take(self, count: int, *, keep: bool = True) -> list[Any]:
        """The next rows, fewer at the end, with `Bad` where the source raised. SourceDied when it then cannot go on."""
        values: list[Any] = []
        if self.ended or not count:
            return values
        with self._randomness, as_only_worker():
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
        except Exception as error:
            self._failed = SourceDied(self.taken, error)
            if isgenerator(self._rows):
                # A generator that raised is finished: asking again would look like the end of the data.
                raise self._failed from error
            return Bad(error)
        self._failed = None
        return value


@contextmanager
def as_only_worker() -> Iterator[None]:
    """While a source is read it sees no torch worker but the first of one.

    A source that shares its rows out among the workers would be cut twice: every worker reads the whole source and
    takes every so-many-th batch of it, so that rows depend on no number of workers.
    """
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    if info is None:
        yield
        return
    before = {"id": info.id, "num_workers": info.num_workers}
    _rewrite(info, {"id": 0, "num_workers": 1})
    try:
        yield
    finally:
        _rewrite(info, before)


def _rewrite(info: object, facts: dict[str, int]) -> None:
    # Frozen, and there is no other way to tell a source in a worker that it is alone.
    for name, value in facts.items():
        object.__setattr__(info, name, value)
