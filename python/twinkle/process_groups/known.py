"""The groups that were made: held here, per default group and weakly.

Never on a mesh, so that no handle travels in a pickle, and never longer than torch itself holds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, ref

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.distributed import ProcessGroup

    from twinkle._core import Mesh as CoreMesh
    from twinkle.process_groups.job import Settings

__all__ = ["Key", "Known", "known"]


class Key(NamedTuple):
    """What makes two requests one group."""

    #: In order, as `spaced` writes them.
    members: Sequence[int]
    settings: Settings
    #: What else tells groups apart: nothing, the partition that all ranks made together, or a group of one's own.
    among: Any


class Known:
    """The groups made under one default group, the meshes that use each, and torch's meshes built on them.

    A user is the layout that a mesh was derived from: a mesh and its parts release together.
    """

    def __init__(self) -> None:
        self._groups: dict[Key, ref[ProcessGroup]] = {}
        self._users: dict[CoreMesh, dict[Key, None]] = {}
        #: torch's meshes by their user, the mesh, the device type and the axes they were made for.
        self.torch_meshes: dict[tuple[CoreMesh, CoreMesh, str, tuple[str, ...]], Any] = {}

    def find(self, key: Key, user: CoreMesh) -> ProcessGroup | None:
        """The group with this key, which this mesh then uses too; None where there is none any more."""
        weak = self._groups.get(key)
        group = None if weak is None else weak()
        if group is not None:
            self._use(key, user)
        return group

    def find_among_all(self, key: Key, user: CoreMesh) -> ProcessGroup | None:
        """As `find`, whatever the group was made among, except for groups of one's own."""
        for other in list(self._groups):
            if other[:2] == key[:2] and not isinstance(other.among, Own):
                group = self.find(other, user)
                if group is not None:
                    return group
        return None

    def add(self, key: Key, user: CoreMesh, group: ProcessGroup) -> ProcessGroup:
        """Remember a new group, used by this mesh."""
        self._groups[key] = ref(group)
        self._use(key, user)
        return group

    def forget(self, user: CoreMesh) -> list[ProcessGroup]:
        """The groups that nobody but this mesh uses, newest first; they are forgotten here."""
        keys = self._users.pop(user, {})
        self.torch_meshes = {made: mesh for made, mesh in self.torch_meshes.items() if made[0] != user}
        kept = {key for used in self._users.values() for key in used}
        only = [self._groups.pop(key) for key in reversed(keys) if key not in kept]
        return [group for weak in only if (group := weak()) is not None]

    def _use(self, key: Key, user: CoreMesh) -> None:
        self._users.setdefault(user, {})[key] = None


class Own:
    """Marks a group that is not shared."""


_known: WeakKeyDictionary[ProcessGroup, Known] = WeakKeyDictionary()


def known(default: ProcessGroup) -> Known:
    """What was made under this default group."""
    return _known.setdefault(default, Known())
