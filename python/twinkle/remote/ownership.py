"""Ownership: a row that a method is given is an object of its own, to be written to, wherever it was copied from."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

from twinkle.errors import PlanError
from twinkle.remote.trees import SCALARS, are_scalars

__all__ = ["copied", "distinct"]


def copied(value: Any) -> Any:
    """An equal value that shares nothing with this one that could be written to."""
    if type(value) in SCALARS or isinstance(value, range):
        return value
    if are_scalars(value):
        return list(value) if type(value) is list else value
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    plain = () if numpy is None else (numpy.ndarray, numpy.ma.MaskedArray)
    if type(value) in plain and not value.dtype.hasobject:
        # A pickle would lose that a mask is hard.
        return value.copy()
    if torch is not None and type(value) is torch.Tensor:
        return value.detach().clone().requires_grad_(value.requires_grad)
    buffers: list[pickle.PickleBuffer] = []
    try:
        head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        return pickle.loads(head, buffers=[bytearray(buffer.raw()) for buffer in buffers])
    except Exception:  # what a user's class raises when it is pickled may be anything
        pass
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise PlanError(
            f"a {type(value).__name__} that is handed on, or is given twice, cannot be copied: "
            f"{type(error).__name__}: {error}"
        ) from error


def distinct(value: Any, seen: set[int]) -> Any:
    """The same rows, of which none is an object that is among them twice or has been `seen`, and all may be written to.

    `seen` holds the identities of what one call was given so far, and is added to. Only what comes again is copied.
    """
    if isinstance(value, (list, tuple)):
        if are_scalars(value):
            return value
        numbers = list(map(id, value))
        fresh = set(numbers)
        if len(fresh) == len(numbers) and seen.isdisjoint(fresh):
            seen |= fresh
            return value
        rows = []
        for row, number in zip(value, numbers, strict=True):
            rows.append(copied(row) if number in seen else row)
            seen.add(number)
        return tuple(rows) if isinstance(value, tuple) else rows
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.ndarray):
        whole = value
        while isinstance(whole.base, numpy.ndarray):
            whole = whole.base
        taken = id(whole) in seen or not value.flags.writeable
        seen.add(id(whole))
        return value.copy() if taken else value
    if torch is not None and isinstance(value, torch.Tensor) and value.layout is torch.strided:
        place = value.untyped_storage().data_ptr()
        taken = place in seen
        if place:
            seen.add(place)
        return copied(value) if taken else value
    return value
