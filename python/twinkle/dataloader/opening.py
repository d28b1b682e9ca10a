"""What a torch worker is told when it begins: that it reads the data set of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError
from twinkle.platform.checks import shown

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Opening"]


class Opening:
    """The `worker_init_fn` that torch is given, before the caller's own.

    Torch hands a reader to its workers. Whoever asks `get_worker_info().dataset` means the data set that is read.
    """

    def __init__(self, own: Callable[[int], None] | None) -> None:
        if own is not None and not callable(own):
            raise PlanError(f"worker_init_fn must be callable or None, not {shown(own)}")
        self.own = own

    def __call__(self, worker: int) -> None:
        """Begins in a worker."""
        from torch.utils.data import get_worker_info

        info: Any = get_worker_info()
        # It refuses to be changed, which is meant for others: each worker process has one of its own.
        object.__setattr__(info, "dataset", info.dataset.dataset)
        if self.own is not None:
            self.own(worker)
