"""Rows: how many a value holds, cutting them out, and putting pieces together again with their type kept.

Rows are the items of a list, tuple or range, or the first dimension of an array or tensor. Joining widens the other
dimensions where pieces differ, with a value per column.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twinkle._batch import concatenated, cut, retyped, torch_layout, typed_as
from twinkle.errors import PlanError
from twinkle.remote.widening import BARE, pad_value

__all__ = ["UNCUT", "count", "each", "join", "kind", "leaf", "lengths", "shape_of", "take"]


Cut = tuple[int, int]
#: In the kind of rows that lie together, sparse or nested, and are not cut.
UNCUT = "whose rows cannot be cut"
#: Dtypes of texts, by their NumPy letter.
_TEXTS = {"U": "str", "S": "bytes"}


def count(value: Any) -> int | None:
    """How many rows a value holds; None for what holds none: numbers, texts, mappings, arrays of no dimension."""
    if type(value) is list:
        return len(value)
    if isinstance(value, (list, tuple, range)):
        # A named tuple is a record, whose fields may be columns.
        return None if hasattr(value, "_fields") else len(value)
    if _is_array(value):
        shape = shape_of(value) or ()
        return int(shape[0]) if shape else None
    rows = getattr(value, "__twinkle_rows__", None)
    return None if rows is None or isinstance(value, type) else int(rows())


def shape_of(value: Any) -> tuple[Any, ...] | None:
    """The shape of an array or tensor, of which a nested one knows the first dimension; None for what has none."""
    if _is_nested(value):
        return (int(value.size(0)),) * int(value.dim())
    shape = getattr(value, "shape", None)
    return tuple(shape) if isinstance(shape, tuple) else None


def take(value: Any, cuts: Sequence[Cut]) -> Any:
    """The rows of these cuts one after another, in a value of the same type; a tensor without its graph."""
    if len(cuts) == 1 and tuple(cuts[0]) == (0, count(value)):
        return leaf(value)
    if isinstance(value, range):
        value = list(value)
    import numpy

    return leaf(cut(value, numpy.array(cuts, dtype=numpy.int64).reshape(-1, 2)))


def leaf(value: Any) -> Any:
    """A tensor without its graph, on the same memory, that wants a gradient if it did; anything else as it is."""
    if isinstance(value, _tensor_type()) and value.grad_fn is not None:
        return value.detach().requires_grad_()
    return value


def each(value: Any) -> Iterator[Any]:
    """The rows one by one; those of a tensor without a graph that leads back to it."""
    return map(leaf, value)


def join(pieces: Sequence[Any], pad_values: Mapping[str, Any] | None = None, name: str = BARE) -> Any:
    """The rows of all pieces as one value of their type; `pad_values` says per column what widens a short row."""
    if len(pieces) > 1:
        # A range that was cut unevenly is a list in one piece and a range in another.
        pieces = [list(piece) if isinstance(piece, range) else piece for piece in pieces]
    kinds = {_kind(piece) for piece in pieces}
    if len(kinds) > 1:
        told = ", ".join(sorted(kinds))
        raise PlanError(f"{name}: the pieces are of different types: {told}; workers must return one type", key=name)
    first = pieces[0]
    if len(pieces) == 1:
        return leaf(first)
    if isinstance(first, (list, tuple)):
        return retyped([row for piece in pieces for row in piece], first)
    if _is_array(first):
        return _joined_arrays(pieces, pad_value(first, name, pad_values))
    raise PlanError(f"{name}: a {type(first).__name__} holds no rows", key=name)


def lengths(value: Any) -> list[int] | None:
    """How long each row is, where rows have a length: the ids of a sample, the items of a list; else None."""
    if isinstance(value, Mapping):
        ids = value.get("input_ids")
        return None if ids is None else lengths(ids)
    if _is_array(value):
        return None if torch_layout(value) or len(value.shape) < 2 else [int(value.shape[1])] * int(value.shape[0])
    if not isinstance(value, (list, tuple)):
        return None
    found = []
    for row in value:
        ids = row.get("input_ids") if isinstance(row, Mapping) else row
        size: int | None
        if ids is not None and _is_array(ids):
            size = int(ids.shape[-1]) if not _is_nested(ids) and len(ids.shape) else None
        else:
            size = len(ids) if isinstance(ids, (list, tuple)) else None
        if size is None:
            return None
        found.append(size)
    return found


def kind(value: Any) -> str:
    """What rows are, in the words by which rows that can be joined are alike."""
    if type(value) is list or isinstance(value, range):
        return "list"
    layout = torch_layout(value)
    if layout is not None:
        return f"{_kind(value)} of layout {layout}, {UNCUT}"
    return f"{_kind(value)} with {len(value.shape)} dimensions" if _is_array(value) else _kind(value)


def _is_array(value: object) -> bool:
    """Whether this is a NumPy array or a torch tensor, where those are loaded at all."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return (numpy is not None and isinstance(value, numpy.ndarray)) or (
        torch is not None and hasattr(torch, "Tensor") and isinstance(value, torch.Tensor)
    )


def _is_nested(value: Any) -> bool:
    """Whether this is a torch tensor of tensors, which has no shape, or one with unknown sizes."""
    return (torch_layout(value) or "").startswith("nested")


def _kind(value: Any) -> str:
    if not _is_array(value):
        return type(value).__name__
    # Texts of different width are one type: NumPy widens them.
    kind = getattr(value.dtype, "kind", "")
    return f"{type(value).__name__} of {_TEXTS.get(kind, value.dtype)}"


def _joined_arrays(pieces: Sequence[Any], value: Any) -> Any:
    """Pieces end to end along the first dimension, the other dimensions as wide as the widest."""
    first = pieces[0]
    if len({len(piece.shape) for piece in pieces}) > 1:
        told = ", ".join(str(tuple(piece.shape)) for piece in pieces[:8])
        raise PlanError(f"pieces of shapes {told} have different numbers of dimensions and cannot be put together")
    tensors = isinstance(first, _tensor_type())
    gradient = tensors and any(piece.requires_grad for piece in pieces)
    if tensors:
        pieces = [piece.detach() for piece in pieces]
    wide = tuple(max(piece.shape[dim] for piece in pieces) for dim in range(1, len(first.shape)))
    if all(tuple(piece.shape[1:]) == wide for piece in pieces):
        made = sys.modules["torch"].cat(list(pieces)) if tensors else concatenated(pieces)
    else:
        shape = (sum(int(piece.shape[0]) for piece in pieces), *wide)
        made = pieces[0].new_full(shape, value) if tensors else _full(pieces, shape, value)
        at = 0
        for piece in pieces:
            made[(slice(at, at + piece.shape[0]), *(slice(0, size) for size in piece.shape[1:]))] = piece
            at += int(piece.shape[0])
        made = made if tensors else typed_as(made, first)
    return made.requires_grad_() if gradient else made


def _full(pieces: Sequence[Any], shape: tuple[int, ...], value: Any) -> Any:
    """An array of one value; a masked one takes in the masks of what is written to it."""
    numpy = sys.modules["numpy"]
    made = numpy.full(shape, value, dtype=numpy.result_type(*pieces))
    return made.view(type(pieces[0])) if isinstance(pieces[0], numpy.ma.MaskedArray) else made


def _tensor_type() -> Any:
    torch = sys.modules.get("torch")
    return getattr(torch, "Tensor", ())
