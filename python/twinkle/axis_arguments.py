"""Axis names and sizes from callers, read or refused before they reach the core."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from twinkle.errors import AxisError, MeshError
from twinkle.platform.checks import shown

__all__ = ["axis_name", "axis_sizes"]

#: One more than a mesh may have: enough to be refused.
_READ = 17


def axis_name(name: object) -> str:
    """A text that may name an axis."""
    # A lone surrogate is no text in Rust, and nothing that cannot be printed is an axis.
    if isinstance(name, str) and (name.isascii() or name.isprintable()):
        return name
    raise AxisError(f"an axis is named by a text such as 'dp', not {shown(name)} ({type(name).__name__})")


def axis_sizes(sizes: object) -> dict[str, Any]:
    """A mapping from axis names to sizes, in its order."""
    if not isinstance(sizes, Mapping):
        raise MeshError(f"sizes must map axis names to sizes, not be a {type(sizes).__name__}")
    if isinstance(sizes, dict):
        return sizes
    try:
        return {name: sizes[name] for name in islice(sizes, _READ)}
    except Exception as error:
        # Whatever a mapping of somebody else's raises while it is read.
        raise MeshError(f"sizes must map axis names to sizes: {shown(error)}") from None
