"""What a call is refused with, as a text that a job can write down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinkle.errors import TwinkleError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["words"]


def words(call: Callable[[], Any]) -> str:
    """The type and the words of the error, or that there was none."""
    try:
        call()
    except TwinkleError as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"
