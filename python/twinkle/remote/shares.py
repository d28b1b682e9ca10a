"""What a worker may ask about the call it is in: which rows are its own, which are pads, what its loss counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError

if TYPE_CHECKING:
    from twinkle.plan import Layout

__all__ = ["Share", "set_share", "share"]


@dataclass(frozen=True)
class Share:
    """One worker's part of the rows of a call."""

    layout: Layout
    shard: int

    @property
    def n(self) -> int:
        """How many rows the call has."""
        return self.layout.n

    @property
    def rows(self) -> list[int]:
        """The numbers of this worker's rows, pads not counted."""
        return list(self.layout.rows(self.shard).tolist())

    @property
    def real(self) -> int:
        """How many of this worker's rows are no pads; they come first."""
        return int(self.layout.real_sizes[self.shard])

    @property
    def is_pad(self) -> list[bool]:
        """For every row this worker got, whether it is a pad."""
        return list(self.layout.is_pad(self.shard).tolist())

    @property
    def loss_scale(self) -> float:
        """What a loss that is the mean over this worker's real rows counts in the mean over all rows."""
        return self.layout.loss_scale(self.shard)


_share: Share | None = None


def share() -> Share:
    """The share of the call that this worker is in; refused outside a call that cuts rows."""
    if _share is None:
        raise PlanError("there is no share: this is not inside a remote method that was given rows")
    return _share


def set_share(new: Share | None) -> Any:
    """Makes a share the current one and returns what it replaces."""
    global _share
    old, _share = _share, new
    return old
