"""How a global batch becomes the shares of the data ranks, and what becomes of a last batch that is short."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from twinkle.errors import PlanError
from twinkle.plan import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Cut", "EvenGrid", "GivenGrid", "Grid", "Span", "Tail", "dropped_words", "nominal_size"]

Tail = Literal["keep", "drop", "pad"]


@dataclass(frozen=True, slots=True)
class Cut:
    """The rule by which batches are cut: into how many shards, in which groups, and what a short last batch becomes."""

    shards: int
    group: int = 1
    tail: Tail = "keep"
    min_batch_size: int = 0

    @property
    def least(self) -> int:
        """The rows that a short batch needs to be kept: a group for every shard, and what the caller asks for."""
        return max(self.min_batch_size, self.shards * self.group)

    def whole(self, size: int) -> Layout:
        """The layout of a batch that is not short; PlanError where a shard would be empty."""
        layout = Layout.even(size, self.shards, group=self.group)
        layout.require_rows()
        return layout

    def short(self, size: int) -> Layout | None:
        """The layout of a short last batch, None where it is dropped."""
        if size == 0 or self.tail == "drop":
            return None
        if self.tail == "pad":
            # One size for all shards; below the minimum it is the size that reaches it.
            multiple = 1 if size >= self.min_batch_size else -(-self.min_batch_size // self.shards)
            return Layout.padded(size, self.shards, multiple=multiple, group=self.group)
        return Layout.even(size, self.shards, group=self.group) if size >= self.least else None

    def of(self, span: Span) -> Layout | None:
        """The layout of a batch, None where it is dropped."""
        return self.short(span.stop - span.first) if span.short else self.whole(span.stop - span.first)


class Span(NamedTuple):
    """One global batch: its half-open positions in the order, and whether it is a short last one."""

    first: int
    stop: int
    short: bool


class EvenGrid:
    """Batches of one size; the last may be short."""

    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, size

    def end(self, start: int, cut: Cut) -> int:
        """Where the last batch that is yielded stops, of those that begin at `start`."""
        rest = max(self.rows - start, 0) % self.size
        return self.rows - rest if rest and cut.short(rest) is None else max(self.rows, start)

    def count(self, start: int, cut: Cut) -> int:
        """How many batches are yielded from `start` on."""
        return -(-(self.end(start, cut) - start) // self.size)

    def spans(self, start: int, end: int) -> Iterator[Span]:
        """The batches from `start` up to `end`."""
        for first in range(start, end, self.size):
            stop = first + self.size
            yield Span(first, min(stop, self.rows), stop > self.rows)


class GivenGrid:
    """Batches of the sizes that a batch sampler gave.

    From a start inside a batch, the sizes begin again with that batch's, so nothing is lost and nothing is repeated.
    """

    def __init__(self, sizes: Sequence[int], nominal: int | None, cut: Cut) -> None:
        self.sizes = sizes
        self.bounds = [0, *accumulate(sizes)]
        self.rows = self.bounds[-1]
        self._last_is_short = bool(sizes) and nominal is not None and sizes[-1] < nominal
        least = cut.shards * cut.group
        for index, size in enumerate(sizes):
            last = index == len(sizes) - 1
            if size % cut.group or (size < least and not last):
                raise PlanError(
                    f"batch {index} of the batch sampler has {size} rows; over {cut.shards} data ranks in groups of "
                    f"{cut.group} a batch needs at least {least} rows and a multiple of {cut.group}",
                    batch=index,
                    size=size,
                    least=least,
                    group=cut.group,
                )
        if sizes and sizes[-1] < cut.least:
            self._last_is_short = True

    def _all(self, start: int) -> Iterator[Span]:
        index = bisect_right(self.bounds, start) - 1
        if index >= len(self.sizes):
            return
        shift = start - self.bounds[index]
        for number, (first, stop) in enumerate(pairwise(self.bounds[index:]), index):
            if first + shift >= self.rows:
                return
            final = number == len(self.sizes) - 1
            short = stop + shift > self.rows or (final and self._last_is_short)
            yield Span(first + shift, min(stop + shift, self.rows), short)

    def end(self, start: int, cut: Cut) -> int:
        """Where the last batch that is yielded stops, of those that begin at `start`."""
        end = start
        for span in self._all(start):
            end = span.first if span.short and cut.short(span.stop - span.first) is None else span.stop
        return end

    def count(self, start: int, cut: Cut) -> int:
        """How many batches are yielded from `start` on."""
        end = self.end(start, cut)
        return sum(span.stop <= end for span in self._all(start))

    def spans(self, start: int, end: int) -> Iterator[Span]:
        """The batches from `start` up to `end`."""
        return (span for span in self._all(start) if span.stop <= end)


Grid = EvenGrid | GivenGrid


def nominal_size(sizes: Sequence[int], declared: object) -> int | None:
    """The size that a batch sampler's last batch should have: what it declares, or what all others have; else None."""
    if isinstance(declared, int) and not isinstance(declared, bool):
        return declared
    others = set(sizes[:-1])
    return others.pop() if len(others) == 1 else None


def dropped_words(rows: int, cut: Cut) -> str:
    """What to say when a last batch is too short to be kept."""
    return (
        f"the last {rows} rows of the epoch are dropped on all ranks: a batch needs {cut.least} rows "
        f"(min_batch_size={cut.min_batch_size or None}, {cut.shards} data ranks, groups of {cut.group}); tail='pad' "
        "keeps them"
    )
