"""Singles: whether a mapping of model inputs is one row, or the columns of many.

A mapping with `messages` or `input_ids` is told by what it holds, never by a length: a conversation or a flat sequence
of ids is one row, handles are columns, and conversations or sequences of ids one after another are a batch, which is
columns where somebody has said that it is rows. Texts in the place of messages may be a column of prompts as well:
where that makes a difference a call is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twinkle.errors import PlanError
from twinkle.remote import trees
from twinkle.remote.handle import is_handle
from twinkle.remote.markers import Global, Rows, Same
from twinkle.remote.one_row import OneRow
from twinkle.remote.rows import count, shape_of

__all__ = ["is_single", "one_row"]

_TEXTS = (str, bytes, bytearray, memoryview)
#: The keys that tell, and what an item of theirs is where the mapping is a batch: a pair may be a message as well.
_ITEMS: dict[str, tuple[type, ...]] = {"messages": (list,), "input_ids": (list, tuple, range)}


def is_single(value: Any, name: str, method: str, *, declared: bool) -> bool:
    """Whether a value in the place of rows is a mapping that is one row; refused where it may be columns as well.

    `declared` says that the method or the caller named it as rows, which makes a batch its columns. A value in `Same`
    says nothing of the others.
    """
    if not isinstance(value, Mapping) or not _told(value):
        return False
    if _has_columns(value, name):
        return False
    found = {key: _form(value[key], _ITEMS[key]) for key in _told(value)}
    forms = set(found.values())
    if forms == {"one"}:
        # Columns of which none has a row are no row without ids.
        return not (declared and _lengths(value) == {0})
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


def one_row(value: Mapping[Any, Any], name: str, *, declared: bool) -> OneRow:
    """The row that a mapping is; it may be columns as well where it was `declared` as rows."""
    key = _told(value)[0]
    return OneRow(name, f"{key} is {_shown(value[key])}", _columns(value) if declared else None)


def _told(value: Mapping[Any, Any]) -> list[str]:
    """The keys of a mapping by which it is told."""
    return [key for key in _ITEMS if key in value and not isinstance(value[key], Same)]


def _columns(value: Mapping[Any, Any]) -> int | None:
    """How many rows the values of what looks like one row are columns of, if they may be: where messages are texts.

    A conversation is none, nor are flat ids, which labels and masks of one row are as long as.
    """
    talk = value.get("messages")
    found = _lengths(value)
    if talk is None or len(found) != 1 or not all(isinstance(message, _TEXTS) for message in talk):
        return None
    (rows,) = found
    return rows if rows is not None and rows > 1 else None


def _lengths(value: Mapping[Any, Any]) -> set[int | None]:
    """How many rows each value has as a column, those of mappings inside included; None for what is none."""

    def lengths(node: Any) -> Iterator[int | None]:
        if isinstance(node, Mapping) and node:
            for child in node.values():
                yield from lengths(child)
        elif not isinstance(node, Same):
            other = isinstance(node, Sequence) and not isinstance(node, _TEXTS)
            yield len(node) if other else count(node)

    return set(lengths(value))


def _has_columns(value: Any, name: str) -> bool:
    """Whether handles, or what the caller has marked as rows, are among the values."""
    found = False

    def leaf(node: Any, _: trees.Path) -> tuple[bool, Any]:
        nonlocal found
        found = found or is_handle(node) or isinstance(node, (Rows, Global))
        return found or isinstance(node, Same), node

    trees.rebuilt(value, leaf, (name,), scalars=False)
    return found


def _form(column: Any, many: tuple[type, ...]) -> str:
    """What a value says of its mapping: one row, many, or neither clearly."""
    dimensions = len(shape_of(column) or ())
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
    if isinstance(item, many) or (shape_of(item) is not None and count(item) is not None):
        return "many"
    return "unclear" if isinstance(item, (list, tuple)) and not hasattr(item, "_fields") else "one"


def _shown(column: Any) -> str:
    """A column in words, which are short however long it is."""
    shape = shape_of(column)
    if shape is not None:
        return f"of shape {shape}"
    if not isinstance(column, Sequence) or isinstance(column, _TEXTS):
        return f"a {type(column).__name__}"
    kinds = sorted({type(item).__name__ for item in column})
    return f"a {type(column).__name__} of {len(column)} items, each a {' or '.join(kinds[:4])}"
