"""Pickling of what a driver sends: classes and functions of a script travel with it, by value."""

from __future__ import annotations

from typing import Any

__all__ = ["packed"]


def packed(value: Any) -> bytes:
    """A pickle that any worker can load, of anything that Ray could send."""
    import pickle

    try:
        data = pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        data = b"__main__"
    # What a script defines itself must travel by value, which takes several times as long.
    if b"__main__" not in data:
        return data
    from ray import cloudpickle

    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]
