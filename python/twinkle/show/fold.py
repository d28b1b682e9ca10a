"""Ranks in few words: `0-7`, `0-56 step 8`, `0-3, 8, 10-12`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["folded", "runs"]

_PIECES = 8


def folded(ranks: Sequence[int], *, pieces: int = _PIECES) -> str:
    """Ranks as ranges; above `pieces` ranges, the first ones, the last one and how many ranks there are."""
    if isinstance(ranks, range):
        return _piece(ranks)
    found = [_piece(run) for run in runs(ranks)]
    if len(found) <= pieces:
        return ", ".join(found)
    return f"{', '.join(found[: pieces - 1])}, ..., {found[-1]} ({len(ranks)} ranks)"


def runs(ranks: Sequence[int]) -> Iterator[range]:
    """The ranks, in their order, as the fewest ranges of consecutive numbers."""
    start = stop = None
    for rank in ranks:
        if start is not None and rank == stop:
            stop = rank + 1
            continue
        if start is not None and stop is not None:
            yield range(start, stop)
        start, stop = rank, rank + 1
    if start is not None and stop is not None:
        yield range(start, stop)


def _piece(ranks: range) -> str:
    if len(ranks) == 1:
        return str(ranks[0])
    if len(ranks) == 2 and ranks.step != 1:
        return f"{ranks[0]}, {ranks[1]}"
    step = "" if ranks.step == 1 else f" step {ranks.step}"
    return f"{ranks[0]}-{ranks[-1]}{step}"
