"""Finding the groups of a plan that are there, making those that are not, and releasing them.

Each rank makes only the groups it is in, in the order of the plan. Two kinds of backends need more: one that splits the
communicator of a bound default group needs every rank of the job at the same partition, and MPI, or a torch without the
names in `registry`, needs every rank at every group. Both are refused for a mesh that is only a part of the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinkle.errors import DeviceError
from twinkle.process_groups import registry
from twinkle.process_groups.job import job_of
from twinkle.process_groups.known import Key, Own, known
from twinkle.process_groups.meeting import alone, meet
from twinkle.process_groups.plan import entry_of, plan_of, spaced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.distributed import ProcessGroup

    from twinkle.mesh import DeviceMesh
    from twinkle.process_groups.job import Job, Settings, Wanted
    from twinkle.process_groups.plan import Axes, GroupPlan, PlannedGroup

__all__ = ["device_type_in", "make", "make_one", "release"]


def make(mesh: DeviceMesh, entries: Sequence[str | Sequence[str]], wanted: Wanted) -> dict[str | Axes, ProcessGroup]:
    """This process's group for each entry, made with the other members where it is not there yet."""
    entries = entries or mesh._core.names
    plan_of(mesh, entries)
    job = job_of(mesh)
    device_type_in(job, mesh)
    wanted.check()
    plan = plan_of(mesh, entries, job.size)
    tasks = [_task(plan, planned, job, wanted) for planned in plan.of(job.rank)]
    missing = [task for task in tasks if task.group is None]
    # All refusals come before the first group.
    for task in missing:
        _refuse_impossible(mesh, task, job)
    for task in missing:
        task.group = known(job.default).add(task.key, mesh._home, _create(plan, task, job))
    made = {name: task.group for task in tasks for name in task.planned.axes if task.group is not None}
    return {entry if isinstance(entry, str) else tuple(entry): made[entry_of(entry)] for entry in entries}


def make_one(mesh: DeviceMesh, axes: str | Sequence[str], wanted: Wanted) -> ProcessGroup:
    """This process's group along some axes, made with the other members where it is not there yet."""
    (group,) = make(mesh, (axes,), wanted).values()
    return group


def release(mesh: DeviceMesh) -> int:
    """Destroy the groups that only this mesh uses, newest first, and tell how many; the default group stays."""
    from torch.distributed import destroy_process_group

    default = registry.default_group()
    groups = [] if default is None else known(default).forget(mesh._home)
    for group in groups:
        destroy_process_group(group)
    return len(groups)


def device_type_in(job: Job, mesh: DeviceMesh) -> str:
    """The torch device type of a mesh, DeviceError for one that this host lacks."""
    from twinkle.platform.binding import torch_device
    from twinkle.platform.families import family_of

    # A fake job is a rehearsal on a host that may lack the devices.
    if mesh._device_type is not None and registry.own_backend(job.default) == "fake":
        return family_of(mesh._device_type).prefix
    return torch_device(mesh._device_type)


@dataclass
class _Task:
    """One group of the plan that this process is in."""

    planned: PlannedGroup
    settings: Settings
    #: Whether all ranks of the job must make this partition at the same time, and whether each makes every group of it.
    together: bool
    every_group: bool
    key: Key
    group: ProcessGroup | None


def _task(plan: GroupPlan, planned: PlannedGroup, job: Job, wanted: Wanted) -> _Task:
    mesh, settings = plan.mesh, wanted.settings(job, len(planned.members))
    devices = dict(settings.devices)
    every_group = "mpi" in devices.values() or not registry.by_name()
    together = every_group or registry.splits(job.default, devices)
    among: Any = None
    if not wanted.share:
        among = Own()
    elif together:
        among = (mesh._core, spaced(mesh.group_of(planned.axes[0], mesh.offset)))
    key = Key(planned.members, settings, among)
    table, group = known(job.default), None
    if wanted.share and planned.default and _default_serves(job, settings):
        group = job.default
    elif wanted.share and together and mesh.world_size < job.size:
        group = table.find_among_all(key, mesh._home)
    elif wanted.share:
        group = table.find(key, mesh._home)
    return _Task(planned, settings, together, every_group, key, group)


def _default_serves(job: Job, settings: Settings) -> bool:
    backend = registry.own_backend(job.default)
    held = registry.backends_of(backend).items()
    timeout = registry.default_timeout(job.default, backend)
    return settings.devices <= set(held) and settings.timeout == timeout and settings.options is None


def _refuse_impossible(mesh: DeviceMesh, task: _Task, job: Job) -> None:
    backends = ", ".join(sorted({backend for _, backend in task.settings.devices}))
    if task.together and mesh.world_size < job.size:
        device = registry.bound_device(job.default)
        remedy = "" if task.every_group else f", or init_process_group without device_id={str(device)!r}"
        raise DeviceError(
            f"{backends} makes groups only with all {job.size} processes of the job, but {mesh!r} has "
            f"{mesh.world_size} ranks: make them from a mesh of the whole job{remedy}",
            world_size=mesh.world_size,
            job_size=job.size,
        )
    if task.every_group and not registry.keeps_order():
        rows = mesh.groups(task.planned.axes[0])
        falling = (rows[:, 1:] < rows[:, :-1]).any(axis=1)
        if falling.any():
            members = rows[falling.argmax()].tolist()
            raise DeviceError(
                f"this torch makes {backends} groups only with ascending members, not {members[:8]}", members=members
            )


def _create(plan: GroupPlan, task: _Task, job: Job) -> ProcessGroup:
    members, settings = task.planned.members, task.settings
    description = "twinkle " + " ".join("+".join(axes) for axes in task.planned.axes)
    how: dict[str, Any] = {"backend": settings.backend, "timeout": settings.timeout, "options": settings.options}
    how["description"] = description
    try:
        if not task.every_group:
            device = registry.bound_device(job.default) if task.together else None
            index = members.index(job.rank)
            if len(members) == 1 or "fake" in dict(settings.devices).values():
                name = alone(members)
            else:
                name = meet(registry.store(job.default), members, index, settings.terms(), settings.timeout)
            return registry.create_by_name(job.default, members, index, name, device=device, **how)
        made = None
        for row in plan.mesh.groups(task.planned.axes[0]).tolist():
            group = registry.create_together(row, **how)
            made = group if job.rank in row else made
    except DeviceError:
        raise
    except Exception as error:
        raise DeviceError(
            f"torch makes no group of ranks {list(members)[:8]} ({settings.terms()}): {error}",
            members=list(members),
        ) from error
    if made is None:
        raise DeviceError(f"torch made no group for rank {job.rank}", rank=job.rank)
    return made
