"""Masking: what a declared `loss_mask` does to pads, so that a repeated row never counts in a loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twinkle._batch import retyped
from twinkle.errors import PlanError
from twinkle.remote import trees
from twinkle.remote.ownership import copied, distinct
from twinkle.remote.rows import count, leaf

if TYPE_CHECKING:
    from twinkle.remote.signature import Declaration

__all__ = ["Delivery"]


class Delivery:
    """What one call of one worker is given: each row an object of its own, and each pad masked by every declared key.

    A key may be in one row argument and not in another, so whether it masks a pad is known when all are `settled`.
    """

    def __init__(self, declaration: Declaration) -> None:
        self.name, self.loss_mask = declaration.name, declaration.loss_mask or {}
        self._seen: set[int] = set()
        #: Per pad, the keys that mask it.
        self._masked: dict[int, set[str]] = {}

    def rows(self, value: Any, name: str, real: int | None = None) -> Any:
        """Rows as the method is given them, or a mapping that is one row; those after the first `real` are pads."""
        if type(value) is not list and isinstance(value, Mapping):
            return self.rows([value], name, real)[0]
        if real is not None and real < (count(value) or 0):
            value = self._blanked(value, name, real)
        if type(value) is list:
            return distinct(value, self._seen)
        return distinct(leaf(value), self._seen)

    def settled(self) -> None:
        """Refuses pads that a declared key was looked for in and not found."""
        for pad, found in self._masked.items():
            missing = [key for key in self.loss_mask if key not in found]
            if missing:
                raise PlanError(
                    f"{self.name}: loss_mask={missing[0]!r} is not in pad {pad} of this worker, so the pad would count "
                    "as a row: it is looked for among the keys of mappings and the fields of dataclasses and named "
                    "tuples, in whatever depth of a row, and among columns",
                    key=missing[0],
                    pad=pad,
                )

    def _blanked(self, value: Any, name: str, real: int) -> Any:
        column = name.rpartition("[")[2].strip("']\"")
        pads = [self._masked.setdefault(pad, set()) for pad in range((count(value) or 0) - real)]
        if column in self.loss_mask:
            for found in pads:
                found.add(column)
            return _blank_rows(value, real, self.loss_mask[column])
        if not isinstance(value, (list, tuple)):
            return value
        blanked = [self._blank_keys(copied(row), found) for row, found in zip(value[real:], pads, strict=True)]
        return retyped([*value[:real], *blanked], value)

    def _blank_keys(self, row: Any, found: set[str]) -> Any:
        def blanked(node: Any, path: trees.Path) -> tuple[bool, Any]:
            key = path[-1] if path else None
            if not isinstance(key, str) or key not in self.loss_mask:
                return False, None
            found.add(key)
            return True, _blank(node, self.loss_mask[key])

        return trees.rebuilt(row, blanked, scalars=False)


def _blank_rows(value: Any, real: int, blank: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return retyped([*value[:real], *(_blank(row, blank) for row in value[real:])], value)
    made = copied(value)
    made[real:] = blank
    return made


def _blank(cell: Any, blank: Any) -> Any:
    """The same shape with nothing but `blank`."""
    if isinstance(cell, (list, tuple)):
        return retyped([_blank(item, blank) for item in cell], cell)
    if getattr(cell, "shape", ()):
        made = copied(cell)
        made[...] = blank
        return made
    return blank
