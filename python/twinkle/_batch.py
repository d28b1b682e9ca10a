"""Batches: how a list, tuple, range, array, tensor or mapping of columns is measured, cut and joined.

torch is never imported: only who has a tensor to cut has loaded it. Text is never cut.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from twinkle.errors import PlanError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["concatenated", "cut", "cut_at", "join", "length_of", "retyped", "torch_layout", "typed_as"]


class Kind(NamedTuple):
    """One family of batches: what it is called, how rows are picked from it and how pieces of it become one."""

    name: str
    #: rows `start..stop` of each read, in order, when they are not one slice
    pick: Callable[[Any, NDArray[np.int64]], Any]
    #: pieces end to end; the second argument is a part, for the type
    chain: Callable[[list[Any], Any], Any]
    #: what the rows of two parts must share, as text
    signature: Callable[[Any], str]


def length_of(batch: Any, path: str = "") -> int:
    """How many rows a batch has; refused when it is no batch, or when its columns differ."""
    if isinstance(batch, Mapping):
        return _length_of_columns(batch, path)
    _kind_of(batch, path)
    return len(batch)


def _length_of_columns(batch: Mapping[Any, Any], path: str) -> int:
    first = None
    for key, column in batch.items():
        where = f"{path}[{key!r}]"
        length = length_of(column, where)
        if first is None:
            first = (where, length)
        elif length != first[1]:
            raise PlanError(
                f"column {where} has {length} rows, and column {first[0]} has {first[1]}: columns are equally long",
                column=where,
                found=length,
                expected=first[1],
            )
    if first is None:
        raise PlanError(f"a mapping without columns has no rows{_at(path)}", column=path)
    return first[1]


def cut(batch: Any, reads: NDArray[np.int64]) -> Any:
    """The rows `[start, stop)` of every read, in order, in the type of the batch; one read of an array is a view."""
    if isinstance(batch, Mapping):
        return _mapped(batch, {key: cut(column, reads) for key, column in batch.items()})
    kind = _kind_of(batch, "")
    if len(reads) > 1:
        return kind.pick(batch, reads)
    start, stop = reads[0].tolist() if len(reads) else (0, 0)
    return retyped(batch[start:stop], batch)


def cut_at(batch: Any, spans: NDArray[np.int64]) -> list[Any]:
    """One piece per `(start, stop)`."""
    if isinstance(batch, Mapping):
        columns = {key: cut_at(column, spans) for key, column in batch.items()}
        return [_mapped(batch, {key: pieces[index] for key, pieces in columns.items()}) for index in range(len(spans))]
    _kind_of(batch, "")
    if type(batch) in (list, tuple, range):
        return [batch[start:stop] for start, stop in spans.tolist()]
    return [retyped(batch[start:stop], batch) for start, stop in spans.tolist()]


def join(parts: list[Any], sizes: list[int], copies: NDArray[np.int64], path: str = "") -> Any:
    """The rows that `copies` (shard, local, global, length; by global row) name, in order."""
    if not parts:
        return []
    if isinstance(parts[0], Mapping):
        return _join_columns(parts, sizes, copies, path)
    kinds = [_kind_of(part, f"{path} of shard {shard}") for shard, part in enumerate(parts)]
    names = [kind.name for kind in kinds]
    for shard, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        if len(part) != size:
            raise PlanError(
                f"shard {shard}{_at(path)}: {size} rows expected, {len(part)} found",
                shard=shard,
                expected=size,
                found=len(part),
            )
    # A range that was cut unevenly is a list: the two meet again here.
    if set(names) == {"range", "list"}:
        kinds = [KINDS["list"]] * len(kinds)
    else:
        _alike(names, path, "a")
    kind = kinds[0]
    filled = [shard for shard, size in enumerate(sizes) if size > 0]
    _alike([kind.signature(parts[shard]) for shard in filled], path, "rows of", filled)
    like = parts[filled[0] if filled else 0]
    pieces = [parts[shard][local : local + length] for shard, local, _, length in copies.tolist()]
    return kind.chain(pieces or [like[:0]], like)


def _join_columns(parts: list[Any], sizes: list[int], copies: NDArray[np.int64], path: str) -> Any:
    keys = list(parts[0])
    for shard, part in enumerate(parts):
        if not isinstance(part, Mapping):
            raise PlanError(
                f"shard {shard}{_at(path)}: a mapping of columns expected, as in shard 0, a {_name(part)} found",
                shard=shard,
            )
        if set(part) != set(keys):
            raise PlanError(
                f"shard {shard}{_at(path)}: columns {keys} expected, as in shard 0, {list(part)} found",
                shard=shard,
                expected=keys,
                found=list(part),
            )
    if not keys:
        length_of(parts[0], path)
    columns = {key: join([part[key] for part in parts], sizes, copies, f"{path}[{key!r}]") for key in keys}
    return _mapped(parts[0], columns)


def _alike(found: list[str], path: str, article: str, shards: list[int] | None = None) -> None:
    numbers = range(len(found)) if shards is None else shards
    for shard, text in zip(numbers, found, strict=True):
        if text != found[0]:
            raise PlanError(
                f"shard {shard}{_at(path)}: {article} {found[0]} expected, as in shard {numbers[0]}, "
                f"{article} {text} found",
                shard=shard,
                expected=found[0],
                found=text,
            )


def _at(path: str) -> str:
    return f" in column {path}" if path else ""


def _name(value: Any) -> str:
    return type(value).__name__


def _mapped(batch: Mapping[Any, Any], columns: dict[Any, Any]) -> Any:
    """A mapping of the same type with other columns."""
    if type(batch) is dict:
        return columns
    if not hasattr(batch, "__setitem__"):
        return type(batch)(columns)  # type: ignore[call-arg]
    other = copy.copy(batch)
    for key, column in columns.items():
        other[key] = column
    return other


def retyped(piece: Any, batch: Any) -> Any:
    """Items as the list or tuple that a batch is, with its attributes, where its class is one of somebody's own.

    Made as a copy is, without a constructor, which may want more than items; anything else stays as it is.
    """
    kind = type(batch)
    if type(piece) is kind or not isinstance(batch, list | tuple):
        return piece
    if kind is list or kind is tuple:
        return kind(piece)
    made = _list_of(kind, piece) if isinstance(batch, list) else _tuple_of(kind, piece)
    state = object.__getstate__(batch)
    for attributes in state if isinstance(state, tuple) else (state,):
        for name, value in (attributes or {}).items():
            object.__setattr__(made, name, value)
    return made


def concatenated(arrays: Sequence[Any]) -> Any:
    """NumPy arrays end to end, in the type of the first, with what that one knows of itself."""
    import numpy

    first = arrays[0]
    # NumPy's own function loses the mask.
    joins = numpy.ma if isinstance(first, numpy.ma.MaskedArray) else numpy
    return typed_as(joins.concatenate(list(arrays)), first)


def typed_as(array: Any, like: Any) -> Any:
    """An array as the type of another, with the attributes that its class hands on, on the same memory.

    A masked array is filled by what fills the other, and its mask is as hard. PlanError where the class refuses.
    """
    import numpy

    kind = type(like)
    if kind is numpy.ndarray:
        return array
    try:
        made = array if type(array) is kind else array.view(kind)
        if isinstance(like, numpy.ma.MaskedArray):
            made.fill_value = like.fill_value
            return made.harden_mask() if like.hardmask else made
        made.__array_finalize__(like)
    except Exception as error:  # whatever a user's class raises
        raise PlanError(
            f"arrays of type {kind.__name__} cannot be put together: {type(error).__name__}: {error}; pass them as "
            "numpy.asarray(x), or as a list of rows",
            found=kind.__name__,
        ) from error
    return made


def torch_layout(tensor: Any) -> str | None:
    """The layout of a torch tensor whose rows cannot be cut, a sparse or a nested one; None for anything else."""
    torch: Any = sys.modules.get("torch")
    kind: Any = getattr(torch, "Tensor", ())
    if not isinstance(tensor, kind):
        return None
    named = None if tensor.layout is torch.strided else str(tensor.layout)
    return named if not tensor.is_nested else "nested" if named is None else f"nested, {named}"


def _list_of(kind: Any, items: Any) -> Any:
    made = list.__new__(kind)
    list.extend(made, items)
    return made


def _tuple_of(kind: Any, items: Any) -> Any:
    try:
        return tuple.__new__(kind, items)
    except TypeError:
        pass
    # What is written in C, such as the size of a tensor, is made by nothing but itself.
    try:
        return kind(items)
    except TypeError as error:
        raise PlanError(
            f"a {kind.__name__} cannot be made of other items, as its rows are: {error}; pass a list of them",
            found=kind.__name__,
        ) from error


def _rows(reads: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row numbers of many reads."""
    import numpy

    lengths = reads[:, 1] - reads[:, 0]
    ends = lengths.cumsum()
    rows: NDArray[np.int64] = numpy.arange(ends[-1]) + numpy.repeat(reads[:, 0] - (ends - lengths), lengths)
    return rows


def _pick_list(batch: Any, reads: NDArray[np.int64]) -> Any:
    rows = _rows(reads)
    if len(rows) < 4 * len(reads):
        return retyped([batch[row] for row in rows.tolist()], batch)
    return _chain_list([batch[start:stop] for start, stop in reads.tolist()], batch)


def _chain_list(pieces: list[Any], like: Any) -> Any:
    return retyped(list(chain.from_iterable(pieces)), like)


def _pick_range(batch: range, reads: NDArray[np.int64]) -> Any:
    return _range_of([batch[row] for row in _rows(reads).tolist()])


def _chain_range(pieces: list[Any], _: Any) -> Any:
    return pieces[0] if len(pieces) == 1 else _range_of(list(chain.from_iterable(pieces)))


def _range_of(values: list[int]) -> Any:
    """A range where the values are evenly spaced, else the list."""
    if not values:
        return range(0)
    step = values[1] - values[0] if len(values) > 1 else 1
    if step == 0:
        return values
    spaced = range(values[0], values[-1] + (1 if step > 0 else -1), step)
    return spaced if len(spaced) == len(values) and all(map(int.__eq__, spaced, values)) else values


def _pick_array(batch: Any, reads: NDArray[np.int64]) -> Any:
    return batch[_rows(reads)]


def _chain_array(pieces: list[Any], _: Any) -> Any:
    return pieces[0] if len(pieces) == 1 else concatenated(pieces)


def _pick_tensor(batch: Any, reads: NDArray[np.int64]) -> Any:
    torch = sys.modules["torch"]
    return batch.index_select(0, torch.from_numpy(_rows(reads)).to(batch.device))


def _chain_tensor(pieces: list[Any], _: Any) -> Any:
    return pieces[0] if len(pieces) == 1 else sys.modules["torch"].cat(pieces)


def _signature_array(part: Any) -> str:
    # Texts of different width are one type: NumPy widens them.
    dtype = part.dtype.kind if part.dtype.kind in "US" else part.dtype
    return f"dtype {dtype} and shape {tuple(part.shape[1:])}"


def _signature_tensor(part: Any) -> str:
    return f"dtype {part.dtype} and shape {tuple(part.shape[1:])} on {part.device}"


def _same(_: Any) -> str:
    return ""


KINDS = {
    "list": Kind("list", _pick_list, _chain_list, _same),
    "tuple": Kind("tuple", _pick_list, _chain_list, _same),
    "range": Kind("range", _pick_range, _chain_range, _same),
    "array": Kind("NumPy array", _pick_array, _chain_array, _signature_array),
    "tensor": Kind("torch tensor", _pick_tensor, _chain_tensor, _signature_tensor),
}
ACCEPTED = "a list, tuple, range, NumPy array, torch tensor or mapping of columns"


def _kind_of(batch: Any, path: str) -> Kind:
    plain = KINDS.get(_name(batch)) if type(batch) in (list, tuple, range) else None
    if plain is not None:
        return plain
    if isinstance(batch, list):
        return KINDS["list"]
    if isinstance(batch, tuple) and not hasattr(batch, "_fields"):
        return KINDS["tuple"]
    for module, name, kind in (("numpy", "ndarray", "array"), ("torch", "Tensor", "tensor")):
        loaded = sys.modules.get(module)
        if loaded is not None and isinstance(batch, getattr(loaded, name)):
            layout = torch_layout(batch)
            if layout is not None:
                raise PlanError(
                    f"a torch tensor of layout {layout} has no rows that could be cut{_at(path)}: make it dense",
                    column=path,
                    found=layout,
                )
            if batch.ndim == 0:
                raise PlanError(f"a {KINDS[kind].name} without dimensions has no rows{_at(path)}", column=path)
            return KINDS[kind]
    what = (
        "text is never cut into rows"
        if isinstance(batch, str | bytes | bytearray)
        else "it has no rows that could be cut"
    )
    raise PlanError(
        f"rows must be {ACCEPTED}, not a {_name(batch)}{_at(path)}: {what}", column=path, found=_name(batch)
    )
