"""Which process groups a mesh needs: pure data, the same on every rank, written without torch and without a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from sys import modules
from typing import TYPE_CHECKING, TypeAlias

from twinkle.errors import AxisError
from twinkle.platform.checks import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinkle.mesh import DeviceMesh

__all__ = ["Axes", "GroupPlan", "Partition", "PlannedGroup", "plan_of"]

#: One question to the mesh: the axes along which the members of a group differ.
Axes: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class PlannedGroup:
    """One process group: its members in the order of their group ranks."""

    #: A `range` where they are evenly spaced, else a tuple, so that equal members are equal values.
    members: Sequence[int]
    #: Every entry of the plan that this group answers.
    axes: tuple[Axes, ...]
    #: Whether torch's default group has the same members in the same order, and serves.
    default: bool


@dataclass(frozen=True)
class Partition:
    """All groups along some axes: every rank of the mesh is in exactly one of them."""

    #: The entries of the plan that name these groups; several where they differ only by axes of size 1.
    axes: tuple[Axes, ...]
    #: How many groups there are, and how many members each has.
    groups: int
    size: int
    #: Whether it is one group that torch's default group serves.
    default: bool


@dataclass(frozen=True)
class GroupPlan:
    """The process groups along several axes, in the order in which they are made.

    Equal on every rank of a job, and answered without making any group. Entries that name the same members in the same
    order share their groups. `of(rank)` costs only that rank's own groups, however large the mesh.

    >>> from twinkle import DeviceMesh
    >>> plan = DeviceMesh.from_sizes(dp_size=2, tp_size=2).group_plan("tp", "dp", ("tp", "cp"))
    >>> plan
    GroupPlan(tp = tp+cp: 2 groups of 2; dp: 2 groups of 2)
    >>> [list(group.members) for group in plan.of(3)]
    [[2, 3], [1, 3]]
    """

    mesh: DeviceMesh = field(repr=False)
    #: The entries in the order asked, repeats left out.
    axes: tuple[Axes, ...]
    #: How many processes the job has: the default group's members are 0 to `job_size - 1`.
    job_size: int

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """The distinct kinds of groups in creation order, each with all the entries that name it."""
        # Entries name the same groups everywhere or nowhere, since every group is a shifted copy of the first.
        found: dict[Sequence[int], list[Axes]] = {}
        for axes in self.axes:
            found.setdefault(spaced(self.mesh.group_of(axes, self.mesh.offset)), []).append(axes)
        world_size, everyone = self.mesh.world_size, range(self.job_size)
        return tuple(
            Partition(tuple(entries), world_size // len(members), len(members), members == everyone)
            for members, entries in found.items()
        )

    def groups(self) -> Iterator[PlannedGroup]:
        """Every group of the plan in creation order: entries as asked, groups of one entry by lowest position."""
        for partition in self.partitions:
            for members in self.mesh.groups(partition.axes[0]):
                yield PlannedGroup(spaced(tuple(members.tolist())), partition.axes, partition.default)

    def of(self, rank: int) -> tuple[PlannedGroup, ...]:
        """The groups that one rank is in, in creation order; RankError outside the mesh."""
        return tuple(
            PlannedGroup(spaced(self.mesh.group_of(partition.axes[0], rank)), partition.axes, partition.default)
            for partition in self.partitions
        )

    def __repr__(self) -> str:
        words = []
        for partition in self.partitions:
            names = " = ".join("+".join(axes) or "self" for axes in partition.axes)
            number = "the default group" if partition.default else f"{partition.groups} groups of {partition.size}"
            words.append(f"{names}: {number}")
        return f"GroupPlan({'; '.join(words)})"


def plan_of(mesh: DeviceMesh, axes: Sequence[str | Sequence[str]], job_size: int | None = None) -> GroupPlan:
    """The plan for these entries, each a name or several names; no entry at all means one per declared axis.

    `job_size` None is that of torch.distributed, and the mesh's own while no job runs.
    """
    entries = dict.fromkeys(entry_of(entry) for entry in axes or mesh._core.names)
    for entry in entries:
        # The core refuses what it does not know, before anything is made.
        mesh._core.group_of(entry, mesh.offset)
    if job_size is None:
        distributed = modules.get("torch.distributed")
        runs = distributed is not None and distributed.is_available() and distributed.is_initialized()
        job_size = int(distributed.get_world_size()) if distributed is not None and runs else mesh.world_size
    # A copy, since options of the caller's mesh may be set later.
    return GroupPlan(mesh.replace(), tuple(entries), job_size)


def entry_of(axes: str | Sequence[str]) -> Axes:
    """The names of one entry, which the mesh has yet to check."""
    if isinstance(axes, str):
        return (axes,)
    if isinstance(axes, Sequence) and all(isinstance(name, str) for name in axes):
        return tuple(axes)
    raise AxisError(f"axes are a name or a sequence of names, not {shown(axes)}")


def spaced(members: Sequence[int]) -> Sequence[int]:
    """The same members as a `range` where they are evenly spaced: equal members become equal values."""
    if isinstance(members, range):
        return members
    step = members[1] - members[0] if len(members) > 1 else 1
    even = range(members[0], members[0] + step * len(members), step)
    return even if all(map(int.__eq__, even, members)) else tuple(members)
