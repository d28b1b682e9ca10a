"""Handles: rows that stay where they were made until somebody asks for them.

A `Sharded` is a sequence of rows: it has a length, and `select`, `repeat`, `expand`, `minibatch`, `concat` and `zip`
renumber its rows without moving any. Passed to another component, in whatever depth of the lists, tuples, mappings and
dataclasses of an argument, its rows go from shard to shard. Only iterating, indexing by a number and `gather()` pull
rows into this process.

A handle is one layout over pieces that some calls have stored, of one call or of several: `concat` puts the pieces of
all its parts under one layout, so that whatever holds for the rows of one call holds for those of many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from twinkle.errors import PlanError, TwinkleError
from twinkle.platform.checks import shown
from twinkle.remote import rows as row_tools
from twinkle.remote.ownership import distinct
from twinkle.remote.split import side_by_side
from twinkle.remote.widening import BARE, rule_as_given

if TYPE_CHECKING:
    from twinkle.plan import Layout
    from twinkle.remote.handover import Cuts, Read

__all__ = ["Piece", "Sharded", "Store", "Zipped", "is_handle", "replaced"]

#: How many rows iterating pulls at once.
_PULLED_ROWS = 256


@dataclass(frozen=True, eq=False)
class Store:
    """One stored piece per shard, where a call left them.

    `keeper` reads them: `read([(piece, cuts), ...], timeout)` and `mapped([(piece, cuts), ...], function, timeout)`,
    which makes pieces of the named rows. `holders[shard]` lists who has the piece, as the keeper understands it, and
    `identity` is the fingerprint of the layout that the pieces were made for.
    """

    keeper: Any
    holders: tuple[tuple[Any, ...], ...]
    identity: int
    #: Per leaf and shard, how long each stored row is, where rows have a length.
    lengths: tuple[tuple[list[int] | None, ...], ...] = ()
    #: Per leaf, what its rows are, as `rows.kind` says; empty where nobody has looked.
    kinds: tuple[str, ...] = ()

    def pieces(self, leaf: int = 0) -> tuple[Piece, ...]:
        """The pieces of one leaf, in shard order."""
        return tuple(Piece(self, shard, leaf) for shard in range(len(self.holders)))


class Piece(NamedTuple):
    """One stored piece: what one leaf of a result has in one shard."""

    store: Store
    shard: int
    leaf: int

    @property
    def lengths(self) -> list[int] | None:
        """How long each stored row is, where that is known."""
        return self.store.lengths[self.leaf][self.shard] if self.store.lengths else None

    @property
    def kind(self) -> str | None:
        """What the rows are, where that is known."""
        return self.store.kinds[self.leaf] if self.store.kinds else None


def replaced(
    pieces: Sequence[Piece], holders: Sequence[tuple[Any, ...]], lengths: Sequence[list[int] | None]
) -> list[Piece]:
    """Lists of rows in the place of these pieces: who holds each, and how long its rows are."""
    made: list[Any] = [None] * len(pieces)
    by_leaf: dict[tuple[Store, int], list[int]] = {}
    for at, (store, _, leaf) in enumerate(pieces):
        by_leaf.setdefault((store, leaf), []).append(at)
    for (store, _), places in by_leaf.items():
        held: list[tuple[Any, ...]] = [()] * len(store.holders)
        known: list[list[int] | None] = [None] * len(store.holders)
        for at in places:
            held[pieces[at].shard], known[pieces[at].shard] = holders[at], lengths[at]
        one = Store(store.keeper, tuple(held), store.identity, (tuple(known),), ("list",))
        for at in places:
            made[at] = Piece(one, pieces[at].shard, 0)
    return made


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
        if not hasattr(index, "__index__") or tuple(getattr(index, "shape", ())):
            # Arrays and tensors of any length have `__index__` too.
            return self.select(index)
        at = index.__index__()
        if not -len(self) <= at < len(self):
            raise IndexError(f"row {at} of {len(self)} rows")
        return next(iter(self.select([at % len(self)])))

    def __reversed__(self) -> Iterator[Any]:
        for stop in range(len(self), 0, -_PULLED_ROWS):
            yield from reversed(list(self[max(stop - _PULLED_ROWS, 0) : stop]))

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """The number of the first row that is `value`, from `start` up to `stop`; ValueError where there is none."""
        numbers = range(len(self))[start:stop]
        for at, row in zip(numbers, self.select(numbers), strict=True):
            if row is value or row == value:
                return at
        raise ValueError(f"no row of {self!r} from {numbers.start} up to {numbers.stop} is {shown(value)}")

    def concat(self, *others: Any) -> Any:
        """These rows, then those of the other handles, in order, as one handle. Nothing is moved.

        The parts may come from other components, groups and layouts, and may be joined themselves; a part without rows
        counts for nothing. Refused where the rows are of different types, dtypes or numbers of dimensions; rows that
        differ in width are widened where they meet, by the rule of the first part that has rows.
        """
        from twinkle.remote.joining import joined

        return joined([self, *others])

    def zip(self, *others: Any) -> Zipped:
        """Rows that are tuples, one part of each: other handles, or lists of as many rows. Nothing is moved."""
        return Zipped((self, *others))

    def __reduce__(self) -> Any:
        raise TwinkleError(
            f"{self!r} is not pickled: pass it to a remote method as an argument, or inside the lists, tuples, "
            "mappings and dataclasses of one, which is where handles are looked for, or gather() its rows"
        )

    def __call__(self) -> Any:
        """The same as `gather()`."""
        return self.gather()


class Sharded(_RowsBase):
    """Rows that stay with the workers that made them, in order whatever the shape of the mesh.

    Made by remote methods that collect rows (`collect='flatten'` or `'last_pp'`), not by hand. It is a sequence, so
    `len(handle)`, `handle[3]` and `for row in handle` work; a slice of it is a handle again.
    """

    __slots__ = ("_pieces", "layout", "name", "pad_values")

    def __init__(
        self, layout: Layout, pieces: Sequence[Piece], name: str = BARE, pad_values: Mapping[str, Any] | None = None
    ) -> None:
        #: Which rows sit in which piece.
        self.layout = layout
        #: The key that the rows had in the result that they are of, and the `pad_values` of its method.
        self.name, self.pad_values = name, pad_values
        self._pieces = tuple(pieces)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The stored piece of every shard of the layout."""
        return self._pieces

    @property
    def keeper(self) -> Any:
        """What reads the rows where they are."""
        return self._pieces[0].store.keeper

    def _viewed(self, layout: Layout) -> Sharded:
        return Sharded(layout, self._pieces, self.name, self.pad_values)

    def given_as(self, name: str, declared: Mapping[str, Any] | None) -> Sharded:
        """The same rows, widened as when they are given as `name` to a method whose `pad_values` are `declared`."""
        return Sharded(self.layout, self._pieces, *rule_as_given(self.name, self.pad_values, name, declared))

    def __len__(self) -> int:
        return self.layout.n

    def select(self, rows: Any) -> Sharded:
        """The rows of these numbers, in this order; a row may come more than once. Nothing is moved."""
        return self._viewed(_selected(self.layout, rows))

    def repeat(self, times: int) -> Sharded:
        """Every row `times` times, the copies of a row next to each other. Nothing is moved."""
        return self._viewed(self.layout.repeat(times))

    def expand(self, counts: Sequence[int]) -> Sharded:
        """Row i `counts[i]` times. Nothing is moved."""
        return self._viewed(self.layout.expand(counts))

    def minibatch(self, index: int, count: int | None = None) -> Sharded:
        """The rows of one mini-batch: of `count` even ones, or of those the call's split made. Nothing is moved."""
        if count is None:
            if self.layout.cuts(0) is None:
                raise PlanError(
                    f"these {len(self)} rows were not split into mini-batches: say into how many even ones, as "
                    f"mini-batch {index} of them: minibatch({index}, count)"
                )
            return self._viewed(self.layout.minibatch(index))
        from twinkle.plan import Layout

        shares = Layout.even(len(self), count)
        return self._viewed(self.layout.select(shares.rows(index)))

    @property
    def local(self) -> Any:
        """The stored rows that this very process holds, pads included; None where it holds none, as on a driver."""
        held = []
        for store, shard, leaf in self._pieces:
            those = store.holders[shard]
            if those and isinstance(those[0][1], list):
                held.append(those[0][1][leaf])
        return row_tools.join(held, self.pad_values, self.name) if held else None

    @property
    def lengths(self) -> list[int] | None:
        """How long each row is (its `input_ids`, its items), without pulling any; None where rows have no length."""
        stored = [piece.lengths for piece in self._pieces]
        found: list[int] = []
        for shard, local, _, length in self.layout.copies().tolist():
            known = stored[shard]
            if known is None:
                return None
            found += known[local : local + length]
        return found

    def map(self, function: Callable[[Any], Any], *, timeout: float | None = None) -> Sharded:
        """`function` of every row, run where the rows are, once for each however often it comes; results stay there.

        `timeout` is as of `gather`.
        """
        bundles, reads = self._needed()
        mapped = self.keeper.mapped([(self._pieces[at], cuts) for at, cuts in bundles.items()], function, timeout)
        sizes = [sum(stop - start for start, stop in cuts) for cuts in bundles.values()]
        numbers = {at: number for number, at in enumerate(bundles)}
        layout = side_by_side(sizes, [(numbers[at], start, stop) for at, start, stop in reads])
        return Sharded(layout, mapped, self.name, self.pad_values)

    def gather(self, *, timeout: float | None = None) -> Any:
        """All rows in order, pulled into this process, in the type the workers returned; each is pulled once.

        A worker hands its rows out between two calls. `timeout` is how many seconds workers on Ray may take, all
        together; None waits for as long as they live.
        """
        bundles, reads = self._needed()
        asked = [(self._pieces[at], cuts) for at, cuts in bundles.items()]
        found = dict(zip(bundles, self.keeper.read(asked, timeout), strict=True))
        pieces = [row_tools.take(found[at], [(start, stop)]) for at, start, stop in reads]
        return distinct(row_tools.join(pieces, self.pad_values, self.name), set())

    def _needed(self) -> tuple[dict[int, Cuts], list[Read]]:
        """Per piece the rows that are read, and all rows in order as reads of these."""
        from twinkle.plan import Layout
        from twinkle.remote.handover import hand_over

        over = hand_over(self.layout, Layout.even(len(self), 1))
        return over.bundles[0], over.reads[0]

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), _PULLED_ROWS):
            part = self.layout.slice(start, min(start + _PULLED_ROWS, len(self)))
            yield from row_tools.each(self._viewed(part).gather())

    def __repr__(self) -> str:
        return f"<Sharded {self.name}: {len(self)} rows over {self.layout.shards} shards>"


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
        """The rows of these numbers, in this order; a row may come more than once. Nothing is moved."""
        _selected(self._layout(), rows)
        return self._taken([int(row) for row in rows])

    def repeat(self, times: int) -> Zipped:
        """Every row `times` times, the copies of a row next to each other. Nothing is moved."""
        self._layout().repeat(times)
        return self._taken([row for row in range(len(self)) for _ in range(times)])

    def expand(self, counts: Sequence[int]) -> Zipped:
        """Row i `counts[i]` times. Nothing is moved."""
        self._layout().expand(counts)
        return self._taken([row for row, count in enumerate(counts) for _ in range(count)])

    def minibatch(self, index: int, count: int | None = None) -> Zipped:
        """The rows of one of `count` even mini-batches. Nothing is moved."""
        from twinkle.plan import Layout

        if count is None:
            raise PlanError("the parts of a zip have mini-batches of their own: say of how many even ones, as count")
        return self._taken(Layout.even(len(self), count).rows(index).tolist())

    def _layout(self) -> Layout:
        """What refuses the same as the layout of a handle of as many rows."""
        from twinkle.plan import Layout

        return Layout.even(len(self), 1)

    def _taken(self, numbers: list[int]) -> Zipped:
        cuts = [(row, row + 1) for row in numbers]
        return Zipped(
            [part.select(numbers) if isinstance(part, _RowsBase) else row_tools.take(part, cuts) for part in self.parts]
        )

    def gather(self, *, timeout: float | None = None) -> list[tuple[Any, ...]]:
        """All rows in order, as a list of tuples; `timeout` holds for each part."""
        whole = [part.gather(timeout=timeout) if isinstance(part, _RowsBase) else part for part in self.parts]
        return list(zip(*map(row_tools.each, whole), strict=True))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(zip(*map(row_tools.each, self.parts), strict=True))

    def __repr__(self) -> str:
        return f"<Zipped: {len(self)} rows of {len(self.parts)} parts>"


def _selected(layout: Layout, rows: Any) -> Layout:
    """The layout of these rows of another; refused where they are a mask."""
    first = rows[0] if isinstance(rows, (list, tuple)) and rows else rows
    if isinstance(first, bool) or str(getattr(first, "dtype", "")).endswith("bool"):
        raise PlanError(
            f"rows are picked by their numbers, not by a mask of booleans: numpy.flatnonzero(mask) is the numbers of "
            f"those that {shown(rows)} keeps"
        )
    return layout.select(rows)


def is_handle(value: object) -> bool:
    """Whether a value is a handle, or a zip of some."""
    return isinstance(value, (Sharded, Zipped))
