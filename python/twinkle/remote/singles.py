"""Singles: whether a mapping of model inputs is one row, or the columns of many.

A mapping with `messages` or `input_ids` is told by what it holds, never by a length: a conversation or a flat sequence
of ids is one row, handles are columns, and conversations or sequences of ids one after another are a batch, which is
columns where somebody has said that it is rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twinkle.errors import PlanError
from twinkle.remote import trees
from twinkle.remote.handle import is_handle
from twinkle.remote.markers import Global, Rows
from twinkle.remote.rows import count

__all__ = ["is_single"]

_TEXTS = (str, bytes, bytearray, memoryview)
#: The keys that tell, and what an item of theirs is where the mapping is a batch: a pair may be a message as well.
_ITEMS: dict[str, tuple[type, ...]] = {"messages": (list,), "input_ids": (list, tuple, range)}


def is_single(value: Any, name: str, method: str, *, declared: bool) -> bool:
    """Whether a value in the place of rows is a mapping that is one row; refused where it may be columns as well.

    `declared` says that the method or the caller named it as rows, which makes a batch its columns.
    """
    if not isinstance(value, Mapping) or not any(key in value for key in _ITEMS):
        return False
    if _has_columns(value, name):
        return False
    found = {key: _form(value[key], items) for key, items in _ITEMS.items() if key in value}
    forms = set(found.values())
    if forms == {"one"}:
        return True
    if forms == {"many"} and declared:
        return False
    if forms == {"many"} and all(count(value[key]) == 1 for key in found):
        # One row either way, and as it was given nothing is cut.
        return True
    told = " and ".join(f"{key} is {_shown(value[key])}" for key in found)
    raise PlanError(
        f"{method}: {name} may be one row, or the columns of many: its {told}; pass Rows(x) where every value is a "
        "column of the batch, or declare the parameter in rows=, and [x] where it is one row",
        argument=name,
    )


def _has_columns(value: Any, name: str) -> bool:
    """Whether handles, or what the caller has marked as rows, are among the values."""
    found = False

    def leaf(node: Any, _: trees.Path) -> tuple[bool, Any]:
        nonlocal found
        found = found or is_handle(node) or isinstance(node, (Rows, Global))
        return found, node

    trees.rebuilt(value, leaf, (name,), scalars=False)
    return found


def _form(column: Any, many: tuple[type, ...]) -> str:
    """What a value says of its mapping: one row, many, or neither clearly."""
    dimensions = len(getattr(column, "shape", ()))
    if dimensions > 1:
        return "many"
    if isinstance(column, Sequence) and any(map(_is_of_many, column)):
        return "unclear"
    if isinstance(column, range) or trees.are_scalars(column):
        return "one"
    if dimensions == 1 and getattr(getattr(column, "dtype", None), "kind", "") != "O":
        return "one"
    if not dimensions and (not isinstance(column, Sequence) or isinstance(column, _TEXTS)):
        return "one"
    forms = {_item_form(item, many) for item in column}
    return forms.pop() if len(forms) == 1 else "unclear" if forms else "one"


def _is_of_many(item: Any) -> bool:
    """Whether an item is a message of several conversations, as torch's collate function makes one of theirs."""
    return isinstance(item, Mapping) and isinstance(item.get("role"), (list, tuple))


def _item_form(item: Any, many: tuple[type, ...]) -> str:
    if isinstance(item, many) or (hasattr(item, "shape") and count(item) is not None):
        return "many"
    return "unclear" if isinstance(item, (list, tuple)) and not hasattr(item, "_fields") else "one"


def _shown(column: Any) -> str:
    """A column in words, which are short however long it is."""
    shape = getattr(column, "shape", None)
    if shape is not None:
        return f"of shape {tuple(shape)}"
    if not isinstance(column, Sequence) or isinstance(column, _TEXTS):
        return f"a {type(column).__name__}"
    kinds = sorted({type(item).__name__ for item in column})
    return f"a {type(column).__name__} of {len(column)} items, each a {' or '.join(kinds[:4])}"
