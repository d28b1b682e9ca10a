"""What the processes of a launcher tell each other: values to all, and pieces from each to each, over gloo.

The group is twinkle's own, made when it is first needed by all ranks together, so that nothing here meets the
collectives of a training step.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from twinkle.platform import Platform

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Exchange", "close", "exchange"]

_exchange: Exchange | None = None


class Exchange:
    """All processes of the job; every method is called by all of them, in the same order."""

    def __init__(self) -> None:
        from torch import distributed

        if not distributed.is_initialized():
            distributed.init_process_group("gloo")
            self.owns_default = True
        else:
            self.owns_default = False
        self._distributed = distributed
        self.group: Any = distributed.new_group(backend="gloo")
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def gathered(self, value: Any) -> list[Any]:
        """What every process gave, in rank order."""
        return self.swapped([value] * self.size)

    def swapped(self, values: Sequence[Any]) -> list[Any]:
        """`values[r]` goes to rank r; what each rank gave for this one comes back, in rank order."""
        import torch

        # The same object for everybody is pickled once.
        blobs: dict[int, bytes] = {}
        data = [blobs.setdefault(id(value), pickle.dumps(value, protocol=5)) for value in values]
        sizes = torch.tensor([len(one) for one in data])
        theirs = torch.empty_like(sizes)
        self._distributed.all_to_all_single(theirs, sizes, group=self.group)
        sent = torch.frombuffer(bytearray(b"".join(data)), dtype=torch.uint8)
        received = torch.empty(int(theirs.sum()), dtype=torch.uint8)
        self._distributed.all_to_all_single(received, sent, theirs.tolist(), sizes.tolist(), group=self.group)
        whole = received.numpy().tobytes()
        found, at = [], 0
        for size in theirs.tolist():
            found.append(pickle.loads(whole[at : at + size]))
            at += size
        return found

    def close(self) -> None:
        """Leaves the group, and the default one where it was made here."""
        if self._distributed.is_initialized():
            self._distributed.destroy_process_group(None if self.owns_default else self.group)


def exchange() -> Exchange | None:
    """The processes of this job, or None where this is the only one."""
    global _exchange
    if _exchange is None and Platform.get_world_size() > 1 and Platform.get_rank() >= 0:
        _exchange = Exchange()
    return _exchange


def close() -> None:
    """Gives the group back; the next `exchange` makes another."""
    global _exchange
    if _exchange is not None:
        _exchange.close()
        _exchange = None
