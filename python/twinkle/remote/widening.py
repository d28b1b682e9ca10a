"""Widening: what short rows are filled up with where pieces of different widths are put together.

Rows keep the rule of the method that returned them, wherever they meet: the key that they had in its result, and its
`pad_values`. Who is given them may say otherwise, by the name of the parameter or of the column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["BARE", "pad_value", "rule_as_given"]

#: The key of rows that had none in a result, which were the whole of it.
BARE = "rows"
#: What widens rows for which nobody declares anything, by a word in their key.
_BY_WORD = (("labels", -100), ("mask", 0))

PadValues = Mapping[str, Any]


def pad_value(array: Any, key: str, pad_values: PadValues | None) -> Any:
    """What widens an array: by its key, by its dtype, else by a word in the key; otherwise 0."""
    declared = pad_values or {}
    dtype = str(array.dtype).rpartition(".")[2]
    for name in (key, dtype):
        if name in declared:
            return declared[name]
    return 0 if dtype.startswith(("bool", "uint")) else _by_word(key) or 0


def rule_as_given(
    key: str, pad_values: PadValues | None, name: str, declared: PadValues | None
) -> tuple[str, PadValues | None]:
    """The rule of rows, as (key, pad_values), when they are given as `name` to a method that declares `declared`.

    The producer's rule holds, unless `declared` has the column's key or the parameter, which are the last and the first
    part of the name. Where the producer's result says nothing, not by a word in its key either, what else is declared
    counts after it; rows that were a whole result are taken by the key that they are given.
    """
    parameter, column = name.partition("[")[0], name.rpartition("[")[2].strip("']\"")
    for asked in (column, parameter):
        if declared is not None and asked in declared:
            return asked, {asked: declared[asked]}
    if key == BARE and BARE not in (pad_values or {}):
        key = column
    return key, pad_values if _by_word(key) is not None else {**(declared or {}), **(pad_values or {})}


def _by_word(key: str) -> Any:
    return next((value for word, value in _BY_WORD if word in key), None)
