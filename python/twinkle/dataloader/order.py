"""The order of the rows in an epoch: from seed and epoch alone, or as a sampler gives it."""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from twinkle._core import permuted
from twinkle.dataloader.owned import generators_of, parts_of
from twinkle.dataloader.repair import number
from twinkle.dataloader.seeds import Randomness, hashed
from twinkle.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Listed", "Order", "Permuted", "Sequential", "declared_length"]

#: Samplers that do not say how long they are may not be longer than this, those that do not than that.
_UNSIZED_LIMIT, _SIZED_LIMIT = 2**24, 2**30


class Order(Protocol):
    """Which row stands at each position of an epoch."""

    #: Whether every epoch is as long as every other.
    steady: bool

    def length(self, epoch: int) -> int:
        """How many positions an epoch has."""

    def rows(self, epoch: int, start: int, stop: int) -> Sequence[Any]:
        """The rows at these positions."""

    def name(self, epoch: int) -> str:
        """What a saved cursor must find again to mean the same rows."""

    def known(self, epoch: int) -> bool:
        """Whether a worker can tell this epoch's rows as well as the loop can."""


class Sequential:
    """Rows 0, 1, 2, ... in every epoch."""

    steady = True

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def length(self, epoch: int) -> int:
        """How many rows there are."""
        return self._rows

    def rows(self, epoch: int, start: int, stop: int) -> Sequence[int]:
        """The positions themselves."""
        return range(start, stop)

    def name(self, epoch: int) -> str:
        """`sequential`."""
        return "sequential"

    def known(self, epoch: int) -> bool:
        """Always."""
        return True


class Permuted:
    """A permutation of the rows for each (seed, epoch), in whole groups; no list of it exists anywhere."""

    steady = True

    def __init__(self, rows: int, seed: int, group: int = 1) -> None:
        self._rows, self._seed, self._group = rows, seed, group

    def length(self, epoch: int) -> int:
        """How many rows there are."""
        return self._rows

    def rows(self, epoch: int, start: int, stop: int) -> Sequence[int]:
        """The rows at these positions, each in constant time."""
        group = self._group
        if group == 1:
            rows: list[int] = permuted(self._seed, epoch, self._rows, start, stop).tolist()
            return rows
        first = start // group
        groups = permuted(self._seed, epoch, self._rows // group, first, -(-stop // group)).tolist()
        rows = [group * number + place for number in groups for place in range(group)]
        return rows[start - first * group : stop - first * group]

    def name(self, epoch: int) -> str:
        """`permuted`, and the size of the groups."""
        return "permuted" if self._group == 1 else f"permuted in groups of {self._group}"

    def known(self, epoch: int) -> bool:
        """Always."""
        return True


class Listed:
    """The order that a sampler or a list gives: read once an epoch, and known by its hash.

    Where the sampler draws, it draws from (seed, epoch): the global generators are exchanged while it is read; one of
    its own begins where it stood, after the first epoch seeded with the epoch too, and is left as it was. So all ranks
    read one order, and a resumed run reads it again.
    """

    def __init__(self, sampler: Iterable[Any], seed: int, *, batches: bool = False) -> None:
        self._sampler, self._seed, self._batches = sampler, seed, batches
        self.steady = _steady(sampler, batches=batches)
        self._epoch = -1
        self._list: list[Any] = []
        self._sizes: list[int] = []
        self._name = ""
        self._generators = generators_of(sampler)

    def __getstate__(self) -> dict[str, Any]:
        # A worker is sent the list, never the sampler: torch's workers know no samplers, and not every one can travel.
        return {**self.__dict__, "_sampler": None, "_generators": []}

    def known(self, epoch: int) -> bool:
        """Whether this epoch was read here; a worker that lives on has the list of the epoch that it began in."""
        return epoch == self._epoch

    def length(self, epoch: int) -> int:
        """How many rows the sampler gives in an epoch."""
        self._read(epoch)
        return len(self._list)

    def sizes(self, epoch: int) -> list[int]:
        """The sizes of the batches of a batch sampler."""
        self._read(epoch)
        return self._sizes

    def rows(self, epoch: int, start: int, stop: int) -> Sequence[Any]:
        """The rows at these positions."""
        self._read(epoch)
        return self._list[start:stop]

    def name(self, epoch: int) -> str:
        """`listed`, and the hash of the list of this epoch."""
        self._read(epoch)
        if not self._name:
            digest = blake2b(repr((_told(self._list), self._sizes)).encode(), digest_size=16)
            self._name = f"listed {digest.hexdigest()}"
        return self._name

    def _read(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        sampler = self._sampler
        with Randomness(hashed(self._seed, epoch)):
            for place, generator in enumerate(self._generators):
                generator.renew(epoch, place)
            for part in parts_of(sampler):
                if callable(getattr(part, "set_epoch", None)):
                    part.set_epoch(epoch)
            declared = declared_length(sampler)
            limit = _UNSIZED_LIMIT if declared is None else _SIZED_LIMIT
            if (declared or 0) > limit:
                raise _too_many(limit)
            given = list(islice(iter(sampler), limit + 1))
            for generator in self._generators:
                generator.restore()
        if len(given) > limit:
            raise _too_many(limit)
        if self._batches:
            batches = [_batch(number, batch) for number, batch in enumerate(given)]
            self._sizes = [len(batch) for batch in batches]
            given = [row for batch in batches for row in batch]
        self._list, self._name, self._epoch = given, "", epoch


def _steady(sampler: Any, *, batches: bool) -> bool:
    """Whether a sampler says that its epochs are of one length: a batch sampler's length is no number of rows."""
    from torch.utils.data import BatchSampler

    inner = sampler.sampler if type(sampler) is BatchSampler else sampler
    listed = isinstance(sampler, (list, tuple))
    return listed or ((inner is not sampler or not batches) and declared_length(inner) is not None)


def _told(rows: list[Any]) -> list[Any]:
    """Rows as every process tells them: what is an address or hangs on a hash seed is left out."""
    return rows if set(map(type, rows)) <= {int} else [_told_row(row) for row in rows]


def _told_row(row: Any) -> Any:
    if isinstance(row, (set, frozenset)):
        return sorted(repr(_told_row(part)) for part in row)
    if isinstance(row, (list, tuple)):
        return [_told_row(part) for part in row]
    words: Any = type(row).__repr__
    return f"a {type(row).__qualname__}" if words is object.__repr__ else number(row)


def _too_many(limit: int) -> PlanError:
    return PlanError(f"a sampler may give at most {limit} indices in an epoch, and this one gives more", limit=limit)


def declared_length(rows: Any) -> int | None:
    """How long a sampler or a data set says it is, None where it does not; some have a `__len__` that only raises."""
    try:
        return len(rows)
    except (TypeError, NotImplementedError):
        return None
    except OverflowError:
        most = 2**63 - 1
        words = f"a {type(rows).__name__} has more than {most} rows; at most so many can be counted"
        raise PlanError(words, most=most) from None


def _batch(number: int, batch: Any) -> list[Any]:
    try:
        return list(batch)
    except TypeError:
        raise PlanError(
            f"a batch sampler gives lists of indices; its batch {number} is {batch!r}", batch=number
        ) from None
