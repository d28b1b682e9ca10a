"""Rank tables from callers: array-likes of any kind, read as whole numbers or refused before they reach the core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any

from twinkle._core import Mesh as CoreMesh
from twinkle.axis_arguments import axis_name
from twinkle.errors import MeshError, RankError, TwinkleError
from twinkle.platform.checks import LIST_CAP, shown, whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["core_of", "flat_ranks"]

_TABLE_LIMIT = 2**28
#: The most ranks whose coordinates are asked for at once: 2**33 bytes of int64.
_QUESTION_LIMIT = 2**30
#: A mesh has no more axes, so a table has no more dimensions.
_DEPTH_LIMIT = 16
_ARRAY_PROTOCOLS = ("__array__", "__array_interface__", "__array_struct__")


def core_of(ranks: Any, names: Any, options: dict[str, Any]) -> CoreMesh:
    """The core mesh of an array-like of ranks; an evenly spaced `range` of any length makes no array."""
    if isinstance(ranks, range):
        single = names[0] if isinstance(names, (list, tuple)) and len(names) == 1 else names
        if isinstance(single, str):
            return CoreMesh.from_range(axis_name(single), ranks.start, ranks.step, _length(ranks), options)
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
    try:
        return _read(values, what, limit)
    except TwinkleError:
        raise
    except Exception as error:
        # Whatever an array-like of somebody else's raises while it is read.
        raise RankError(f"{what} must be an array of ranks: {shown(error)}") from None


def _read(values: Any, what: str, limit: int) -> NDArray[np.int64]:
    import numpy as np

    if values is None or isinstance(values, (str, bytes, bytearray, Mapping, AbstractSet)):
        raise RankError(f"{what} must be an array of ranks, not a {type(values).__name__}")
    if not isinstance(values, (list, tuple, range)) and not _is_array(values):
        # NumPy would read any length that such a thing claims to have.
        values = list(islice(values, LIST_CAP + 1))
        _check_count(len(values), what, LIST_CAP)
    if isinstance(values, range):
        _check_count(_length(values), what, limit)
    elif isinstance(values, (list, tuple)):
        _check_nested(values, what, limit, _DEPTH_LIMIT)
    if np.ma.is_masked(values):
        raise RankError(f"{what} has masked ranks")
    array = np.asarray(values)
    _check_count(array.size, what, limit)
    if array.size == 0:
        # An empty list has no type of its own; the core refuses the empty axis.
        array = array.astype(np.int64)
    if array.dtype.kind == "O":
        numbers = [whole(value, "a rank", RankError) for value in array.flat]
        array = np.array(numbers, np.int64).reshape(array.shape)
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and int(array.max(initial=0)) >= 2**63:
        raise RankError(f"rank {array.max()} is too large: ranks are below 2**63")
    if array.dtype.kind not in "iu":
        raise RankError(f"{what} must be whole numbers below 2**63, not {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64).reshape(array.shape)


def _is_array(values: Any) -> bool:
    if any(hasattr(values, protocol) for protocol in _ARRAY_PROTOCOLS):
        return True
    try:
        memoryview(values)
    except TypeError:
        return False
    return True


def _length(values: range) -> int:
    # `len` refuses what is beyond a C integer.
    return max(0, -(-(values.stop - values.start) // values.step))


def _check_count(count: int, what: str, limit: int) -> None:
    if count > limit:
        raise MeshError(f"{what} has {count} ranks, more than the {limit} that are accepted", count=count, limit=limit)


def _check_nested(values: Sequence[Any], what: str, limit: int, depth: int) -> int:
    """How many ranks there are inside; refused are those that NumPy would read as a number, and too many of them."""
    if depth == 0:
        raise MeshError(f"{what} has more than {_DEPTH_LIMIT} dimensions")
    count = 0
    for value in values:
        if type(value) is int:
            count += 1
        elif isinstance(value, (list, tuple)):
            count += _check_nested(value, what, limit, depth - 1)
        elif isinstance(value, range):
            count += _length(value)
        elif _is_number(value):
            count += prod(getattr(value, "shape", ()))
        else:
            raise RankError(f"{what} must be whole numbers, not {shown(value)}")
        _check_count(count, what, limit)
    return count


def _is_number(value: Any) -> bool:
    """Whether a value is an int by `__index__`, or an array of numbers; True would be read as 1."""
    if isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b":
        return False
    return hasattr(value, "__index__") or any(hasattr(value, protocol) for protocol in _ARRAY_PROTOCOLS)
