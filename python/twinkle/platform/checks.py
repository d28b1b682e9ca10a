"""Whole numbers from callers: anything that is an integer, never a bool, never out of range."""

from __future__ import annotations

from operator import index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from twinkle.errors import TwinkleError

__all__ = ["LIST_CAP", "shown", "whole"]

#: Lists above this many items are refused before they are allocated.
LIST_CAP = 2**24


def whole(value: Any, what: str, refuse: type[TwinkleError], *, least: int = 0, most: int = 2**63 - 1) -> int:
    """`value` as an int of at least `least`, refused by `refuse` in a sentence that begins with `what`."""
    try:
        number = None if isinstance(value, bool) else index(value)
    except Exception:
        # Whatever somebody's `__index__` raises, it gave no number.
        number = None
    if number is None or number < least:
        raise refuse(f"{what} must be an integer >= {least}, not {shown(value)}", value=value)
    if number > most:
        raise refuse(f"{what} must be at most {most}, not {shown(value)}", value=value)
    return number


def shown(value: object) -> str:
    """The repr of a value, cut to a length that fits into a sentence."""
    try:
        text = repr(value)
    except Exception:  # a value that cannot show itself must not hide the refusal; huge ints raise too
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."
