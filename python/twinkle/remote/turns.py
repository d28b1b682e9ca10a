"""Turns: in local mode one thread of a process at a time is in a component.

While a method runs, the process is its worker: its share, its positions and its generators are those of the process.
Another thread is refused and does not wait: one that the method itself has begun, and waits for, would wait for ever.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from twinkle.errors import RemoteCallError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["turn"]

_lock = threading.RLock()
#: What the thread that has the turn does, in words.
_held = ""


def _renew() -> None:
    # A process forked meanwhile may have none of the thread that would give the turn back.
    global _lock, _held
    _lock, _held = threading.RLock(), ""


os.register_at_fork(after_in_child=_renew)


@contextmanager
def turn(method: str, doing: str) -> Iterator[None]:
    """Inside, this thread is the one in a component; refused where another is, with what both do.

    A thread that has the turn may take it again.
    """
    global _held
    lock, own = _lock, f"thread {threading.current_thread().name} {doing}"
    if not lock.acquire(blocking=False):
        raise RemoteCallError(
            f"{method}: {own} while {_held or 'another thread is in a component'}: in local mode one thread of a "
            "process at a time makes components, calls them and maps rows, and threads that a method begins do none of "
            "these",
            method=method,
        )
    before, _held = _held, own
    try:
        yield
    finally:
        _held = before
        lock.release()
