"""The running job as one process sees it, and what groups under its default group have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from twinkle.errors import DeviceError
from twinkle.process_groups import registry

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from twinkle.mesh import DeviceMesh

__all__ = ["Job", "Settings", "Wanted", "job_of"]

#: The most members that get a gloo half which nobody asked for: gloo connects every member with every other.
_GLOO_LIMIT = 1024


@dataclass(frozen=True)
class Job:
    """torch's default group, and this process's place in it."""

    default: ProcessGroup
    rank: int
    size: int


@dataclass(frozen=True)
class Settings:
    """How a group communicates; the same members with equal settings are one group."""

    #: The backend as torch is told.
    backend: str = field(compare=False)
    #: Which backend serves which device type, and the options' identity: what is compared.
    devices: frozenset[tuple[str, str]]
    timeout: timedelta
    options: Any = field(compare=False)
    options_id: int

    def terms(self) -> str:
        """What the members of a group must agree on, in words."""
        devices = ", ".join(f"{backend} for {device}" for device, backend in sorted(self.devices))
        options = "" if self.options is None else f", options {type(self.options).__name__}"
        return f"{devices}, timeout {self.timeout.total_seconds():g} s{options}"


@dataclass(frozen=True)
class Wanted:
    """What a caller asks of a group; None is as in the default group."""

    backend: str | None = None
    timeout: timedelta | None = None
    options: Any = None
    share: bool = True

    def check(self) -> None:
        """Refuse what no group can have; DeviceError."""
        if self.backend is not None and not (isinstance(self.backend, str) and registry.is_known_backend(self.backend)):
            raise DeviceError(f"torch has no backend {self.backend!r}", backend=self.backend)
        if self.timeout is not None and not (isinstance(self.timeout, timedelta) and self.timeout > timedelta()):
            raise DeviceError(f"timeout must be a datetime.timedelta above zero, not {self.timeout!r}")

    def settings(self, job: Job, members: int) -> Settings:
        """The settings of a group with so many members."""
        backend = registry.own_backend(job.default) if self.backend is None else self.backend
        devices = registry.backends_of(backend)
        fast = {device: name for device, name in devices.items() if name != "gloo"}
        if self.backend is None and members > _GLOO_LIMIT and fast and fast != devices:
            backend, devices = ",".join(f"{device}:{name}" for device, name in fast.items()), fast
        timeout = registry.default_timeout(job.default, backend) if self.timeout is None else self.timeout
        options_id = 0 if self.options is None else id(self.options)
        return Settings(backend, frozenset(devices.items()), timeout, self.options, options_id)


def job_of(mesh: DeviceMesh) -> Job:
    """The job, once it is certain that the mesh is in the job and this process in the mesh."""
    try:
        from torch import distributed
    except ImportError as error:
        raise DeviceError(f"process groups need torch ({error}); install twinkle-mesh[torch]") from error
    default = registry.default_group() if distributed.is_available() else None
    if default is None:
        raise DeviceError(
            "process groups need torch.distributed's default group, and there is none; "
            "call torch.distributed.init_process_group first"
        )
    rank, size = int(distributed.get_rank()), int(distributed.get_world_size())
    _refuse_larger(mesh, size)
    own = mesh._this_rank("group_plan(...).of(rank)")
    if own != rank:
        raise DeviceError(
            f"this process is rank {own} of {mesh!r}, but rank {rank} of torch.distributed", rank=own, group_rank=rank
        )
    return Job(default, rank, size)


def _refuse_larger(mesh: DeviceMesh, size: int) -> None:
    if mesh.world_size > size:
        raise DeviceError(
            f"{mesh!r} has {mesh.world_size} ranks, but the job has only {size} processes",
            world_size=mesh.world_size,
            job_size=size,
        )
    if mesh.strides is None:
        highest = int(mesh._core.ranks().max())
    else:
        steps = zip(mesh.strides, mesh.shape, strict=True)
        highest = mesh.offset + sum(max(stride, 0) * (length - 1) for stride, length in steps)
    if highest >= size:
        raise DeviceError(
            f"{mesh!r} has the rank {highest}, but the ranks of this job are 0 to {size - 1}",
            rank=highest,
            job_size=size,
        )
