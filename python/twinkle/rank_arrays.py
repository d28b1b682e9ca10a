"""Rank tables from callers: array-likes of any kind, read as whole numbers or refused before they reach the core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twinkle._core import Mesh as CoreMesh
from twinkle.errors import MeshError, RankError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["core_of", "flat_ranks"]

_TABLE_LIMIT = 2**28
#: The most ranks whose coordinates are asked for at once: 2**33 bytes of int64.
_QUESTION_LIMIT = 2**30


def core_of(ranks: Any, names: Any, options: dict[str, Any]) -> CoreMesh:
    """The core mesh of an array-like of ranks; an evenly spaced `range` of any length makes no array."""
    if isinstance(ranks, range):
        single = [names] if isinstance(names, str) else list(names) if isinstance(names, Sequence) else names
        if isinstance(single, list) and len(single) == 1 and isinstance(single[0], str):
            length = max(0, -(-(ranks.stop - ranks.start) // ranks.step))
            return CoreMesh.from_range(single[0], ranks.start, ranks.step, length, options)
    table = _whole_numbers(ranks, "mesh", _TABLE_LIMIT)
    if table.ndim == 0:
        raise MeshError(f"mesh must have at least one dimension, not be the single number {table}")
    return CoreMesh.from_table(names, table.shape, table.reshape(-1), options)


def flat_ranks(ranks: Any) -> NDArray[np.int64]:
    """A list of ranks as a flat array, in the order given."""
    flat = _whole_numbers(ranks, "ranks", _QUESTION_LIMIT)
    if flat.ndim != 1:
        raise RankError(f"ranks must have one dimension, not {flat.ndim}")
    return flat


def _whole_numbers(values: Any, what: str, limit: int) -> NDArray[np.int64]:
    import numpy as np

    if isinstance(values, range):
        values = _bounded_range(values, what, limit)
    elif isinstance(values, (list, tuple)):
        _refuse_bools(values, what)
    elif isinstance(values, (str, bytes, dict, set, frozenset)) or values is None:
        raise RankError(f"{what} must be an array of ranks, not a {type(values).__name__}")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise RankError(f"{what} must be an array of ranks: {error}") from None
    if array.size > limit:
        raise MeshError(f"{what} has {array.size} ranks, more than the {limit} that are accepted", count=array.size)
    if array.size == 0:
        # An empty list has no type of its own; the core refuses the empty axis.
        array = array.astype(np.int64)
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and int(array.max(initial=0)) >= 2**63:
        raise RankError(f"rank {array.max()} is too large: ranks are below 2**63")
    if array.dtype.kind not in "iu":
        raise RankError(f"{what} must be whole numbers below 2**63, not {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64).reshape(array.shape)


def _bounded_range(values: range, what: str, limit: int) -> range:
    length = max(0, -(-(values.stop - values.start) // values.step))
    if length > limit:
        raise MeshError(f"{what} has {length} ranks, more than the {limit} that are accepted", count=length)
    return values


def _refuse_bools(values: Sequence[Any], what: str, depth: int = 0) -> None:
    """NumPy would read True as 1."""
    for value in values:
        if isinstance(value, bool):
            raise RankError(f"{what} must be whole numbers, not {value}")
        if isinstance(value, (list, tuple)) and depth < 32:
            _refuse_bools(value, what, depth + 1)
