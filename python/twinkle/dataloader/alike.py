"""Whether the ranks of a mesh made the same loader: told through the store of their process group, without waiting."""

from __future__ import annotations

import json
import pickle
import warnings
from collections import defaultdict
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError

if TYPE_CHECKING:
    from twinkle.mesh import DeviceMesh

__all__ = ["Alike"]

#: How many loaders this process has made over each mesh. Numbers are never used twice, so an entry that an earlier
#: process group left in a store that lives on is one of the same loaders.
_made: dict[DeviceMesh, count[int]] = defaultdict(count)


class Alike:
    """One loader among those over its mesh. Ranks with another seed or other data would lose rows without a word.

    Whichever rank iterates first says what its loader is, and every other compares its own with that: one exchange with
    the store, once a loader. Nobody waits for a rank that comes later, or never.
    """

    def __init__(self, mesh: DeviceMesh | None) -> None:
        self.mesh, self.number = mesh, 0 if mesh is None else next(_made[mesh])
        self._told = False

    def check(self, start: tuple[int, int], always: dict[str, Any], of_epoch: dict[str, Any]) -> None:
        """PlanError where a rank that came before has other fields; those of an epoch count if it is in the same.

        `start` is the epoch and the row that this rank begins at. Another one is only warned of: a rank may have looked
        at its first batch before a state was loaded.
        """
        if self._told or self.mesh is None:
            return
        self._told = True
        from torch import distributed

        rank = distributed.get_rank()
        own = {"rank": rank, "start": start, "always": always, "of_epoch": of_epoch}
        mesh = blake2b(pickle.dumps(self.mesh), digest_size=16).hexdigest()
        try:
            store = distributed.distributed_c10d._get_default_store()
            if _is_gone(store):
                return
            said = json.loads(store.compare_set(f"twinkle loader/{mesh}/{self.number}", "", json.dumps(own)))
        except (RuntimeError, NotImplementedError):
            # A store of another kind, or one that is gone with the rank that had it: nothing can be compared.
            return
        parts = ("always", "of_epoch") if said["start"][0] == start[0] else ("always",)
        # As JSON keeps it.
        own = json.loads(json.dumps(own))
        differing = [(name, said[part][name], own[part][name]) for part in parts for name in own[part]]
        differing = [(name, first, second) for name, first, second in differing if first != second]
        if not differing:
            if said["start"] != own["start"]:
                (epoch, row), (own_epoch, own_row) = said["start"], start
                warnings.warn(
                    f"rank {said['rank']} began to read this loader at row {row} of epoch {epoch}, and rank {rank} at "
                    f"row {own_row} of epoch {own_epoch}: a state is loaded on every rank",
                    stacklevel=6,
                )
            return
        theirs = ", ".join(f"{name}={first!r}" for name, first, _ in differing)
        ours = ", ".join(f"{name}={second!r}" for name, _, second in differing)
        raise PlanError(
            f"rank {said['rank']} made this loader with {theirs}, and rank {rank} with {ours}: loaders over one mesh "
            f"are made alike and in the same order on all of its ranks, and this is number {self.number} over "
            f"{self.mesh!r}; one that a rank makes for itself takes a mesh of that rank alone",
            ranks=[said["rank"], rank],
            differing=[name for name, *_ in differing],
            number=self.number,
        )


def _is_gone(store: Any) -> bool:
    """Whether a store is a file that somebody has removed, which it would look for until its timeout."""
    from torch import distributed

    while isinstance(store, distributed.PrefixStore):
        store = store.underlying_store
    # Its stub leaves the path out.
    path = getattr(store, "path", None)
    return isinstance(store, distributed.FileStore) and path is not None and not Path(path).exists()
