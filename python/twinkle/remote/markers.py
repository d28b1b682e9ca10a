"""Markers: what a caller says about one value when the method's declaration does not say it.

`Rows(x)` are rows to cut, or rows in a result; `Same(x)` goes to every worker whole; `Global(x)` are all rows of the
job where a plain list could mean only this process's own (local mode under a launcher). A marker never reaches the
method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Global", "Rows", "Same"]


@dataclass(frozen=True, eq=False)
class _Marker:
    value: Any

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.value).__name__})"


class Rows(_Marker):
    """These are rows: a list, tuple, array, tensor or handle, or a mapping or dataclass whose columns are rows."""


class Same(_Marker):
    """Every worker gets this whole, whatever its length; in a mapping of columns, or in one row, one value of it."""


class Global(_Marker):
    """These are the rows of the whole job, the same on every rank, to be cut; on a driver the same as `Rows`."""
