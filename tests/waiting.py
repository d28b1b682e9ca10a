"""Waiting for what a test needs, whichever process does it: a time would be too short on a busy machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["PATIENCE", "becomes", "wait_for"]

Found = TypeVar("Found")

#: Seconds after which what has not happened never will, on the slowest machine.
PATIENCE = 200.0


def becomes(asked: Callable[[], Found], expected: Found) -> Found:
    """What is found when it is what is expected, or at the end of all patience."""
    end = time.monotonic() + PATIENCE
    while (found := asked()) != expected and time.monotonic() < end:
        time.sleep(0.02)
    return found


def wait_for(path: Path) -> None:
    """Goes on when there is a file: by it one process tells another that something has happened."""
    assert becomes(path.exists, expected=True), f"nobody made {path}"
