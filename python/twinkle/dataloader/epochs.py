"""Telling a source which epoch it is in, so that no other process hears it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["set_epoch"]


def set_epoch(source: Any, epoch: int, *, own: bool) -> None:
    """Sets the epoch of a source that has one to set.

    A counter may lie in memory that all workers share, as that of `datasets` does: there each would add its step to
    those of the others, and read what another has set. `own` says that the source is this process's own copy: what it
    writes then stays in this process. What it shares and does not write, it goes on sharing.
    """
    if not callable(getattr(source, "set_epoch", None)):
        return
    shared = list(_shared(source, set())) if own else []
    for fields, name, tensor in shared:
        fields[name] = tensor.clone()
    source.set_epoch(epoch)
    for fields, name, tensor in shared:
        found = fields.get(name)
        # torch counts the writes to a tensor, those that change nothing too.
        if found is not None and getattr(found, "_version", 1) == 0:
            fields[name] = tensor


def _shared(source: Any, seen: set[int]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """The shared tensors of a source, and of those inside it that have an epoch to set too: where each is, and it."""
    from torch import Tensor

    seen.add(id(source))
    fields: dict[str, Any] = getattr(source, "__dict__", {})
    for name, value in fields.items():
        if isinstance(value, Tensor):
            if value.is_shared():  # type: ignore[no-untyped-call]
                yield fields, name, value
            continue
        for part in value if isinstance(value, (list, tuple)) else (value,):
            if callable(getattr(part, "set_epoch", None)) and id(part) not in seen:
                yield from _shared(part, seen)
