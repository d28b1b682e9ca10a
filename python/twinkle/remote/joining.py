"""Joining: the rows of several handles as one handle, without moving any.

The pieces of all parts lie side by side, as the shards of one stored layout; the joined layout selects from it the rows
that each part reads. The planner then sees the rows of many calls as it sees those of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError
from twinkle.remote import rows as row_tools
from twinkle.remote.handle import Piece, Sharded, Zipped, is_handle
from twinkle.remote.split import side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["joined"]


def joined(parts: Sequence[Any]) -> Any:
    """The rows of every part, one part after another, as one handle; zips are joined column by column.

    A part without rows counts for nothing. Refused: what is no handle, a zip beside a handle that is none, zips of
    different columns, rows of different types, dtypes or numbers of dimensions, and rows that this process keeps beside
    rows that workers keep.
    """
    for part in parts:
        if not is_handle(part):
            raise PlanError(
                f"a {type(part).__name__} cannot be joined to a handle: only handles and zips of them are, since no "
                "row of theirs is moved; zip a list, or pass it to a method whose result is a handle",
                found=type(part).__name__,
            )
    filled = [part for part in parts if len(part)] or list(parts[:1])
    if len(filled) == 1:
        return filled[0]
    if all(isinstance(part, Sharded) for part in filled):
        return _sharded(filled)
    widths = [len(part.parts) if isinstance(part, Zipped) else 1 for part in filled]
    if not all(isinstance(part, Zipped) for part in filled) or len(set(widths)) > 1:
        told = ", ".join(repr(part) for part in filled[:8])
        raise PlanError(
            f"the rows of {told} cannot be joined: they are not tuples of equally many parts", widths=widths
        )
    return Zipped([_column(at, [part.parts[at] for part in filled]) for at in range(widths[0])])


def _column(at: int, column: list[Any]) -> Any:
    if all(is_handle(part) for part in column):
        return joined(column)
    if any(is_handle(part) for part in column):
        kinds = ["handle" if is_handle(part) else type(part).__name__ for part in column]
        raise PlanError(
            f"part {at} of the zips is {' and '.join(sorted(set(kinds)))}: rows that are here and rows that workers "
            "have cannot be joined",
            part=at,
            found=kinds,
        )
    return row_tools.join(column, None, f"part {at} of the zips")


def _sharded(parts: list[Sharded]) -> Sharded:
    engines = {type(piece.store.keeper) for part in parts for piece in part.pieces}
    if len(engines) > 1:
        raise PlanError(
            "rows that this process keeps and rows that workers keep cannot be joined without moving them: gather() "
            "both, or make both in remote groups"
        )
    kinds = list(dict.fromkeys(piece.kind for part in parts for piece in part.pieces if piece.kind is not None))
    if len(kinds) > 1:
        told = "; ".join(kinds)
        raise PlanError(f"handles of different rows cannot be joined: {told}; map them to one type first", kinds=kinds)
    # Where each piece that is read lies among them all, a piece of two parts once.
    sizes: dict[Piece, int] = {}
    numbers: dict[Piece, int] = {}
    reads: list[tuple[int, int, int]] = []
    for part in parts:
        stored = part.layout.stored_sizes.tolist()
        for shard, local, _, length in part.layout.copies().tolist():
            piece = part.pieces[shard]
            sizes[piece] = stored[shard]
            reads.append((numbers.setdefault(piece, len(numbers)), local, local + length))
    return Sharded(side_by_side(list(sizes.values()), reads), tuple(sizes), parts[0].name, parts[0].pad_values)
