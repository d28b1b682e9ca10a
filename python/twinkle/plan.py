"""Plans: which rows go where, on one mesh and from one mesh to another.

A `Layout` says which rows sit in which shard, a `Placement` which worker holds which shard. Both are values: equal
when they say the same, hashable, and pickled in few bytes. All arithmetic is the core's; nothing here looks at a row.

>>> from twinkle.plan import Layout
>>> layout = Layout.even(10, 4)
>>> parts = [layout.take(list("abcdefghij"), shard) for shard in range(4)]
>>> parts
[['a', 'b', 'c'], ['d', 'e', 'f'], ['g', 'h'], ['i', 'j']]
>>> "".join(layout.collect(parts))
'abcdefghij'

Arrays are int64 unless they hold worker numbers, which are int32. Numbers that count (n, shards, group, ...) are
anything with `__index__` except a bool. Every refusal is a `twinkle.errors.PlanError`, or a `PlacementError` where
workers do not fit a mesh.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar

from twinkle._batch import cut, cut_at, join, length_of
from twinkle._core import Layout as CoreLayout
from twinkle._core import pack as core_pack
from twinkle._placement import CollectFrom, Placement, route
from twinkle.errors import PlanError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Bin", "CollectFrom", "Fill", "Layout", "Method", "Placement", "pack", "route"]

Batch = TypeVar("Batch")
Fill = Literal["refuse", "pad"]
Method = Literal["greedy", "refined"]


class Layout:
    """Which rows sit in which shard, in which order; then the pads, which are copies of rows.

    Made by `even`, `padded`, `balanced`, `minibatched`, `chunked` and `explicit`; equal when the same rows sit in the
    same places, whatever they weigh. `group=k` keeps k neighbouring rows (pairs, rollouts of one prompt) together
    everywhere; a number of rows that is no multiple of it is refused.

    `select`, `slice`, `repeat`, `expand`, `minibatch` and `concat` *derive* a layout: they number new rows and move
    none. A derived layout reads what is stored: `take` the stored batch, `collect`, `copies` and `reshard` the stored
    pieces. `settled()` is the layout of the pieces that `take` makes.
    """

    __slots__ = ("_core",)
    _core: CoreLayout

    def __init__(self) -> None:
        raise PlanError("a layout is made by Layout.even, padded, balanced, minibatched, chunked or explicit")

    @classmethod
    def _of(cls, core: CoreLayout) -> Layout:
        layout = object.__new__(cls)
        layout._core = core
        return layout

    @classmethod
    def _from_bytes(cls, data: bytes) -> Layout:
        return cls._of(CoreLayout.from_bytes(data))

    @staticmethod
    def even(n: SupportsIndex, shards: SupportsIndex, *, group: SupportsIndex = 1) -> Layout:
        """Deals out n rows in order, sizes within one group of each other, never increasing, perhaps 0."""
        return Layout._of(CoreLayout.even(n, shards, group))

    @staticmethod
    def padded(
        n: SupportsIndex, shards: SupportsIndex, *, multiple: SupportsIndex = 1, group: SupportsIndex = 1
    ) -> Layout:
        """The even split with every shard filled up to one size, a multiple of `multiple` and of `group`.

        A short shard repeats its own last group; a shard without rows repeats group `shard % groups`. No rows at all
        are refused, and so are more than 2**24 pads.
        """
        return Layout._of(CoreLayout.padded(n, shards, multiple, group))

    @staticmethod
    def balanced(
        weights: ArrayLike,
        shards: SupportsIndex,
        *,
        equal: bool = True,
        group: SupportsIndex = 1,
        method: Method = "greedy",
    ) -> Layout:
        """One row per weight, dealt out so that the shards weigh about the same; rows ascend inside a shard.

        Groups go by falling weight, then index, each to the lightest shard, of equals the lowest. With `equal` no
        shard takes more groups than the even split gives it. `method='refined'` then swaps groups between the
        heaviest shard and light ones while that helps. Weights are whole numbers from 0 (token counts); their sum
        stays below 2**63.
        """
        equal = _flag("equal", equal)
        return Layout._of(CoreLayout.balanced(weights, shards, equal, group, method))

    @staticmethod
    def minibatched(
        n: SupportsIndex,
        shards: SupportsIndex,
        minibatches: SupportsIndex,
        *,
        rotate: bool = False,
        pad: bool = False,
        group: SupportsIndex = 1,
    ) -> Layout:
        """Cuts n rows into mini-batches, each dealt out evenly: mini-batch m is the same rows whatever the shards.

        `rotate` starts the spare rows of a mini-batch at the shard after the last one that got a spare, so that sizes
        differ by at most one. A shard without a row in a mini-batch is refused; `pad` gives it one pad (with
        `rotate`, only in the last mini-batch). The borders are `cuts(shard)`.
        """
        rotate, pad = _flag("rotate", rotate), _flag("pad", pad)
        return Layout._of(CoreLayout.minibatched(n, shards, minibatches, rotate, pad, group))

    @staticmethod
    def chunked(n: SupportsIndex, size: SupportsIndex, *, group: SupportsIndex = 1) -> Layout:
        """Cuts n rows into shards of `size` rows, the last one shorter; no rows are no shards."""
        return Layout._of(CoreLayout.chunked(n, size, group))

    @staticmethod
    def explicit(
        rows: Sequence[ArrayLike], pads: Sequence[ArrayLike] | None = None, *, group: SupportsIndex = 1
    ) -> Layout:
        """The rows of each shard as listed: 0, 1, 2, ... each once; `pads` lists, per shard, the rows that it copies.

        A `range` of neighbouring rows costs nothing, whatever its length.
        """
        return Layout._of(CoreLayout.explicit(rows, pads, group))

    @property
    def n(self) -> int:
        """How many rows there are, pads not counted."""
        return self._core.n

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return self._core.shards

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many rows each shard holds, pads included: (shards,)."""
        return self._core.sizes()

    @property
    def real_sizes(self) -> NDArray[np.int64]:
        """How many rows each shard holds, pads not counted: (shards,)."""
        return self._core.real_sizes()

    @property
    def loads(self) -> NDArray[np.int64]:
        """What each shard weighs: the sum of its weights if it was balanced, else its rows without pads: (shards,)."""
        return self._core.loads()

    @property
    def id(self) -> int:
        """A 128-bit fingerprint of which rows sit where, the same in every process and on every machine."""
        return self._core.id

    @property
    def derived(self) -> bool:
        """Whether rows are read through pieces that another layout stored."""
        return self._core.is_derived

    @property
    def stored_rows(self) -> int:
        """How many rows the batch that `take` cuts must have: n unless derived."""
        return self._core.stored_rows

    @property
    def stored_sizes(self) -> NDArray[np.int64]:
        """How long the parts that `collect` joins must be: `sizes` unless derived."""
        return self._core.stored_sizes()

    def rows(self, shard: SupportsIndex) -> NDArray[np.int64]:
        """The rows of one shard in local order, without pads; refused above 2**30 of them."""
        return self._core.rows(shard)

    def pads(self, shard: SupportsIndex) -> NDArray[np.int64]:
        """The rows that the pads of one shard copy; they follow its rows."""
        return self._core.pads(shard)

    def is_pad(self, shard: SupportsIndex) -> NDArray[np.bool_]:
        """For every local row of one shard, whether it is a pad: (size,)."""
        return self._core.is_pad(shard)

    def loss_scale(self, shard: SupportsIndex) -> float:
        """What a loss that is the mean over the real rows of one shard counts: shards * real / n.

        The mean over shards of `loss_scale * loss` is the mean over all rows. Refused without rows.
        """
        return self._core.loss_scale(shard)

    def cuts(self, shard: SupportsIndex) -> NDArray[np.int64] | None:
        """Where the mini-batches of one shard start and stop, in local rows: (minibatches, 2), or None."""
        return self._core.cuts(shard)

    def require_rows(self) -> None:
        """Refuses a layout with an empty shard, naming the shards, and one without rows."""
        self._core.require_rows()

    def take(self, batch: Batch, shard: SupportsIndex) -> Batch:
        """What one shard gets of a batch: its rows, then its pads, in the type of the batch.

        A list, tuple, range, NumPy array, torch tensor, or a mapping whose columns are these. Neighbouring rows of an
        array or a tensor are a view, not a copy. A range whose rows are not evenly spaced becomes a list. Refused: a
        batch that does not have `stored_rows` rows, a column that has another length, and text, which is never cut.
        """
        reads = self._core.reads(shard)
        self._fit(batch)
        result: Batch = cut(batch, reads)
        return result

    def collect(self, parts: Iterable[Any]) -> Any:
        """Puts rows back in order: one part per shard, pads included, in shard order; pads are dropped.

        The result has the type of the parts. Refused: a number of parts that is not `shards`, a part whose length is
        not the one in `stored_sizes`, parts of different types, dtypes, row shapes or columns; each names the shard.

        A derived layout collects the stored pieces, and cannot tell them from pieces that `take` made of it where those
        are as long: `settled().collect` is for these.
        """
        if isinstance(parts, str | bytes | dict) or not isinstance(parts, Iterable):
            raise PlanError(f"parts must be a list with one part per shard, not a {type(parts).__name__}")
        listed = list(parts)
        if len(listed) != self.shards:
            raise PlanError(
                f"{self.shards} parts expected, one per shard, {len(listed)} found",
                expected=self.shards,
                found=len(listed),
            )
        try:
            return join(listed, self._core.stored_sizes().tolist(), self._core.copies())
        except PlanError as error:
            if not self.derived:
                raise
            hint = (
                "this layout is derived and collects the stored pieces; settled() collects those that take made of it"
            )
            raise PlanError(f"{error} ({hint})", **error.fields) from None

    def dispatch(self, batch: Batch, placement: Placement) -> list[Batch]:
        """What every worker gets, in worker order: one object per shard, shared by the workers of a shard.

        Refused: an empty shard (`require_rows`), a placement over another number of shards, and what `take` refuses.
        """
        if not isinstance(placement, Placement):
            raise PlanError(
                f"dispatch needs a Placement, as DeviceMesh.placement makes it, not a {type(placement).__name__}"
            )
        if placement.shards != self.shards:
            raise PlanError(
                f"a layout of {self.shards} shards does not fit a placement of {placement.shards} shards",
                shards=self.shards,
                other=placement.shards,
            )
        self._core.require_rows()
        self._fit(batch)
        spans = self._core.spans()
        if spans is None:
            pieces = [cut(batch, self._core.reads(shard)) for shard in range(self.shards)]
        else:
            pieces = cut_at(batch, spans)
        return [pieces[shard] for shard in placement.shard_of_worker.tolist()]

    def _fit(self, batch: Any) -> None:
        found, expected = length_of(batch), self._core.stored_rows
        if found != expected:
            stored = " (the stored batch that this layout is derived from)" if self.derived else ""
            raise PlanError(
                f"the batch has {found} rows, and the layout is for {expected}{stored}", found=found, expected=expected
            )

    def copies(self) -> NDArray[np.int64]:
        """Where to read every row: (k, 4) of shard, local, global, length, by global row; pads are never read."""
        return self._core.copies()

    def reshard(self, other: Layout) -> NDArray[np.int64]:
        """The moves that turn pieces of this layout into pieces of another over the same rows, as few as can be.

        (k, 5): source shard, start in its stored piece, target shard, start in its new piece, length; by target
        shard, then start. Real rows only; see `pad_moves`.
        """
        return self._core.reshard(_layout("other", other)._core)

    def pad_moves(self, other: Layout) -> NDArray[np.int64]:
        """The further moves for pads of `other` whose row their shard does not hold, as after a reshard: (k, 5).

        These are the pads of shards that hold only pads; any other pad repeats a row that its shard has.
        """
        return self._core.pad_moves(_layout("other", other)._core)

    def select(self, rows: ArrayLike) -> Layout:
        """Derives the layout whose row j is row `rows[j]`; rows may repeat and stay in the shard that stores them."""
        return Layout._of(self._core.select(rows))

    def slice(self, start: SupportsIndex, stop: SupportsIndex) -> Layout:
        """Derives the layout of the rows from `start` up to `stop`, exclusive; 0 <= start <= stop <= n."""
        return Layout._of(self._core.slice(start, stop))

    def repeat(self, times: SupportsIndex) -> Layout:
        """Derives the layout with every row `times` times, copies next to each other: `group=times` keeps them so."""
        return Layout._of(self._core.repeat(times))

    def expand(self, counts: ArrayLike) -> Layout:
        """Derives the layout with row i `counts[i]` times, copies next to each other."""
        return Layout._of(self._core.expand(counts))

    def minibatch(self, index: SupportsIndex) -> Layout:
        """Derives the layout of the rows of one mini-batch, in order; refused without mini-batches."""
        return Layout._of(self._core.minibatch(index))

    def concat(self, other: Layout) -> Layout:
        """The rows of this layout, then those of another over as many shards; a shard's two pieces are end to end."""
        return Layout._of(self._core.concat(_layout("other", other)._core))

    def rebalance(
        self, weights: ArrayLike, *, equal: bool = True, group: SupportsIndex = 1, method: Method = "greedy"
    ) -> Layout:
        """A target layout of the same rows over the same shards, `balanced` by one weight per row: `reshard` to it."""
        return Layout._of(self._core.rebalance(weights, _flag("equal", equal), group, method))

    def settled(self) -> Layout:
        """The same rows in the same shards as pieces of their own: what `take` makes of a derived layout."""
        return Layout._of(self._core.settled())

    def pack(
        self,
        lengths: ArrayLike,
        cap: SupportsIndex,
        align: SupportsIndex = 1,
        row_multiple: SupportsIndex = 1,
        fill: Fill = "refuse",
    ) -> list[list[Bin]]:
        """The micro-batches of every shard, pads included, inside its mini-batches, as `twinkle.plan.pack` makes them.

        `lengths` has the token count of every row: (n,).
        """
        return _bins(self._core.pack(lengths, cap, align, row_multiple, fill))

    def __eq__(self, other: object) -> bool:
        return self._core == other._core if isinstance(other, Layout) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._core)

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout._from_bytes, (self._core.to_bytes(),)

    def __copy__(self) -> Layout:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Layout:
        return self

    def __repr__(self) -> str:
        derived = f", derived from {self.stored_rows} rows" if self.derived else ""
        return f"<Layout of {self.n} rows over {self.shards} shards{derived}>"

    def __str__(self) -> str:
        return str(self._core)


class Bin(list[int]):
    """One micro-batch: local rows, ascending. `pad`: it only fills up and must not count in a loss."""

    __slots__ = ("pad",)

    def __init__(self, rows: Iterable[int] = (), *, pad: bool = False) -> None:
        super().__init__(rows)
        self.pad = pad

    def __repr__(self) -> str:
        return f"Bin({list(self)}, pad=True)" if self.pad else list.__repr__(self)


def pack(  # noqa: PLR0917 - the contract's order
    lengths_by_shard: Sequence[ArrayLike],
    cap: SupportsIndex,
    align: SupportsIndex = 1,
    cuts: Sequence[ArrayLike] | None = None,
    row_multiple: SupportsIndex = 1,
    fill: Fill = "refuse",
) -> list[list[Bin]]:
    """Packs the rows of every shard into micro-batches of at most `cap` tokens, equally many on all shards.

    `lengths_by_shard` has the token count of each local row of each shard, `cuts` per shard the (start, stop) of its
    mini-batches; the result has, per shard, a list of bins of local rows, the bins of mini-batch 0 first. A row
    longer than `cap` is alone in its bin. Lengths count as the next multiple of `row_multiple`; the number of bins of
    a mini-batch is a multiple of `align`. A shard with fewer rows than bins is refused; `fill='pad'` gives it bins of
    one repeated row, the last of its mini-batch (of the shard, where the mini-batch has none), last in the mini-batch
    and marked `pad`.
    """
    return _bins(core_pack(lengths_by_shard, cap, align, cuts, row_multiple, fill))


def _bins(shards: list[list[tuple[list[int], bool]]]) -> list[list[Bin]]:
    return [[Bin(rows, pad=pad) for rows, pad in bins] for bins in shards]


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise PlanError(f"{name} must be True or False, not {value!r}"[:200])
    return value


def _layout(name: str, value: Any) -> Layout:
    if not isinstance(value, Layout):
        raise PlanError(f"{name} must be a Layout, not a {type(value).__name__}")
    return value
