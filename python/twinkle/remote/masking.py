"""Masking: what a declared `loss_mask` does to pads, so that a repeated row never counts in a loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["masked"]


def masked(value: Any, name: str, real: int, loss_mask: Mapping[str, Any] | None) -> Any:
    """Rows whose pads, those after the first `real`, are masked: by key, or whole where they are a masked column."""
    if not loss_mask:
        return value
    column = name.rpartition("[")[2].strip("']\"")
    if column in loss_mask:
        return _blank_rows(value, real, loss_mask[column])
    if not isinstance(value, (list, tuple)):
        return value
    return type(value)([*value[:real], *(_blank_keys(row, loss_mask) for row in value[real:])])


def _blank_keys(row: Any, loss_mask: Mapping[str, Any]) -> Any:
    if not isinstance(row, Mapping):
        return row
    return {key: _blank(cell, loss_mask[key]) if key in loss_mask else cell for key, cell in row.items()}


def _blank_rows(value: Any, real: int, blank: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([*value[:real], *(_blank(row, blank) for row in value[real:])])
    copied = value.clone() if hasattr(value, "clone") else value.copy()
    copied[real:] = blank
    return copied


def _blank(cell: Any, blank: Any) -> Any:
    """The same shape with nothing but `blank`."""
    if isinstance(cell, (list, tuple)):
        return type(cell)([_blank(item, blank) for item in cell])
    if getattr(cell, "shape", ()):
        made = cell.clone() if hasattr(cell, "clone") else cell.copy()
        made[...] = blank
        return made
    return blank
