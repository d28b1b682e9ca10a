"""Pickling of what a driver sends: classes and functions of a script travel with it, by value."""

from __future__ import annotations

from typing import Any

__all__ = ["packed"]


def packed(value: Any) -> bytes:
    """A pickle that any worker can load, of anything that Ray could send."""
    from ray import cloudpickle

    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]
