"""Handles: rows that stay where they were made until somebody asks for them.

A `Sharded` is a sequence of rows: it has a length, and `select`, `repeat`, `expand`, `minibatch` and `zip` renumber
its rows without moving any. Passed to another component, in whatever depth of an argument, its rows go from shard to
shard. Only iterating, indexing by a number and `gather()` pull rows into this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

from twinkle.errors import PlanError, TwinkleError
from twinkle.remote import rows as row_tools

if TYPE_CHECKING:
    from twinkle.plan import Layout

__all__ = ["Sharded", "Store", "Zipped"]

#: How many rows iterating pulls at once.
_PULLED_ROWS = 256


@dataclass(frozen=True, eq=False)
class Store:
    """One stored piece per shard, where a call left them.

    `keeper` reads them: `read(store, shard, leaf, cuts)` and `mapped(store, leaf, function)`. `holders[shard]` lists
    who has the piece, as the keeper understands it, and `identity` is the fingerprint of the layout the pieces were
    made for.
    """

    keeper: Any
    holders: tuple[tuple[Any, ...], ...]
    identity: int
    #: Per leaf and shard, how long each stored row is, where rows have a length.
    lengths: tuple[tuple[list[int] | None, ...], ...] = ()


class _RowsBase(Sequence[Any]):
    """What a handle and a zip of handles have in common."""

    def __twinkle_rows__(self) -> int:
        return len(self)

    def select(self, rows: Any) -> Any:
        """The rows of these numbers, in this order; a row may come more than once. Nothing is moved."""
        raise NotImplementedError

    def gather(self, *, timeout: float | None = None) -> Any:
        """All rows in order, pulled into this process."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.select(range(len(self))[index])
        if not hasattr(index, "__index__"):
            return self.select(index)
        at = index.__index__()
        if not -len(self) <= at < len(self):
            raise IndexError(f"row {at} of {len(self)} rows")
        return next(iter(self.select([at % len(self)])))

    def repeat(self, times: int) -> Any:
        """Every row `times` times, the copies of a row next to each other. Nothing is moved."""
        return self.select([row for row in range(len(self)) for _ in range(times)])

    def expand(self, counts: Sequence[int]) -> Any:
        """Row i `counts[i]` times. Nothing is moved."""
        if len(counts) != len(self):
            raise PlanError(f"{len(counts)} counts for {len(self)} rows", counts=len(counts), rows=len(self))
        return self.select([row for row, count in enumerate(counts) for _ in range(count)])

    def zip(self, *others: Any) -> Zipped:
        """Rows that are tuples, one part of each: other handles, or lists of as many rows. Nothing is moved."""
        return Zipped((self, *others))

    def __reduce__(self) -> Any:
        raise TwinkleError(
            f"{self!r} is not pickled: pass it to a remote method, anywhere in an argument, or gather() its rows"
        )

    def __call__(self) -> Any:
        """The same as `gather()`."""
        return self.gather()


class Sharded(_RowsBase):
    """Rows that stay with the workers that made them, in order whatever the shape of the mesh.

    Made by remote methods that collect rows (`collect='flatten'` or `'last_pp'`), not by hand. It is a sequence, so
    `len(handle)`, `handle[3]` and `for row in handle` work; a slice of it is a handle again.
    """

    __slots__ = ("_leaf", "_name", "_pad_values", "_store", "layout")

    def __init__(self, layout: Layout, store: Store, leaf: int = 0, name: str = "rows", pad_values: Any = None) -> None:
        #: Which rows sit in which shard.
        self.layout = layout
        self._store, self._leaf, self._name, self._pad_values = store, leaf, name, pad_values

    @property
    def keeper(self) -> Any:
        """What reads the rows where they are."""
        return self._store.keeper

    def _viewed(self, layout: Layout) -> Sharded:
        return Sharded(layout, self._store, self._leaf, self._name, self._pad_values)

    def __len__(self) -> int:
        return self.layout.n

    def select(self, rows: Any) -> Sharded:
        """The rows of these numbers, in this order; a row may come more than once. Nothing is moved."""
        return self._viewed(self.layout.select(rows))

    def repeat(self, times: int) -> Sharded:
        """Every row `times` times, the copies of a row next to each other. Nothing is moved."""
        return self._viewed(self.layout.repeat(times))

    def expand(self, counts: Sequence[int]) -> Sharded:
        """Row i `counts[i]` times. Nothing is moved."""
        return self._viewed(self.layout.expand(counts))

    def minibatch(self, index: int, count: int | None = None) -> Sharded:
        """The rows of one mini-batch: of `count` even ones, or of those the call's split made. Nothing is moved."""
        if count is None:
            return self._viewed(self.layout.minibatch(index))
        from twinkle.plan import Layout

        shares = Layout.even(len(self), count)
        return self._viewed(self.layout.select(shares.rows(index)))

    @property
    def local(self) -> Any:
        """The stored rows that this very process holds, pads included; None where it holds none, as on a driver."""
        held = [those[0][1] for those in self._store.holders if those and isinstance(those[0][1], list)]
        return held[0][self._leaf] if held else None

    @property
    def lengths(self) -> list[int] | None:
        """How long each row is (its `input_ids`, its items), without pulling any; None where rows have no length."""
        stored = self._store.lengths[self._leaf] if self._store.lengths else ()
        if not stored or any(known is None for known in stored):
            return None
        found: list[int] = []
        for shard, local, _, length in self.layout.copies().tolist():
            found += stored[shard][local : local + length]
        return found

    def map(self, function: Callable[[Any], Any], *, timeout: float | None = None) -> Sharded:
        """`function` of every row, run where the rows are; the results stay there. `timeout` is as of `gather`."""
        store = self._store.keeper.mapped(self._store, self._leaf, function, timeout)
        return Sharded(self.layout, store, 0, self._name, self._pad_values)

    def gather(self, *, timeout: float | None = None) -> Any:
        """All rows in order, pulled into this process, in the type the workers returned.

        A worker hands its rows out between two calls. `timeout` is how many seconds workers on Ray may take, all
        together; None waits for as long as they live.
        """
        copies = self.layout.copies().tolist()
        wanted: dict[int, list[tuple[int, int]]] = {}
        for shard, local, _, length in copies:
            wanted.setdefault(shard, []).append((local, local + length))
        wanted = wanted or {0: [(0, 0)]}
        found = self._store.keeper.read(self._store, self._leaf, wanted, timeout)
        parts: dict[int, Iterator[Any]] = {shard: iter(pieces) for shard, pieces in found.items()}
        pieces = [next(parts[shard]) for shard, *_ in copies] or [next(parts[0])]
        return row_tools.join(pieces, self._pad_values, self._name)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), _PULLED_ROWS):
            yield from self._viewed(self.layout.slice(start, min(start + _PULLED_ROWS, len(self)))).gather()

    def __repr__(self) -> str:
        return f"<Sharded {self._name}: {len(self)} rows over {self.layout.shards} shards>"


class Zipped(_RowsBase):
    """Rows that are tuples of the rows of several handles or lists; made by `zip`."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Any]) -> None:
        counts = [row_tools.count(part) for part in parts]
        if None in counts or len(set(counts)) != 1:
            told = ", ".join("no rows" if found is None else str(found) for found in counts)
            raise PlanError(f"zip needs parts of as many rows each, not {told}", lengths=counts)
        self.parts = tuple(parts)

    def __len__(self) -> int:
        return row_tools.count(self.parts[0]) or 0

    def select(self, rows: Any) -> Zipped:
        """The rows of these numbers, in this order. Nothing is moved."""
        numbers = [int(row) for row in rows]
        return Zipped(
            [
                part.select(numbers)
                if isinstance(part, _RowsBase)
                else row_tools.take(part, [(r, r + 1) for r in numbers])
                for part in self.parts
            ]
        )

    def gather(self, *, timeout: float | None = None) -> list[tuple[Any, ...]]:
        """All rows in order, as a list of tuples; `timeout` holds for each part."""
        whole = [part.gather(timeout=timeout) if isinstance(part, _RowsBase) else part for part in self.parts]
        return list(zip(*whole, strict=True))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(zip(*self.parts, strict=True))

    def __repr__(self) -> str:
        return f"<Zipped: {len(self)} rows of {len(self.parts)} parts>"


def with_lengths(store: Store, lengths: tuple[tuple[list[int] | None, ...], ...]) -> Store:
    """The same pieces, with what is known about the length of their rows."""
    return replace(store, lengths=lengths)
