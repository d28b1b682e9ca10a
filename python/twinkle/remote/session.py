"""The session: what `initialize` has decided and holds for this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlacementError

if TYPE_CHECKING:
    from twinkle.group import DeviceGroup
    from twinkle.mesh import DeviceMesh
    from twinkle.remote.group_ray import RayGroup

__all__ = ["Session", "connection", "current_session", "set_session"]


@dataclass(eq=False)
class Session:
    """One initialized job, from `initialize` to `shutdown`."""

    mode: str
    groups: tuple[DeviceGroup, ...]
    device_mesh: DeviceMesh | None
    lazy_collect: bool
    seed: int | None
    ray_groups: dict[str, RayGroup] = field(default_factory=dict)
    placement_groups: list[Any] = field(default_factory=list)
    owns_ray: bool = False
    #: How many components were made so far, the same on every rank.
    made: int = 0
    #: How many calls of `map` there were, the same on every rank.
    mapped: int = 0
    #: Which Ray the job has begun on.
    ray: tuple[str, str] | None = None

    def next_number(self) -> int:
        """The number of the component that is made now."""
        self.made += 1
        return self.made - 1

    def next_map(self) -> int:
        """The number of the `map` that begins now."""
        self.mapped += 1
        return self.mapped - 1

    def check_group(self, name: object) -> None:
        """Refuses a group that was not initialized, naming those that were."""
        known = [group.name for group in self.groups]
        if name not in known and (known or self.mode == "ray"):
            told = ", ".join(map(repr, known)) or "none"
            raise PlacementError(
                f"remote_group={name!r} is no group of initialize(groups=...); it has {told}", group=name
            )


def connection() -> tuple[str, str] | None:
    """Which Ray this process is connected to, and as which job of it; None where it is not."""
    import ray

    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()


_session: Session | None = None


def current_session() -> Session | None:
    """The session of this process, or None before `initialize`."""
    return _session


def set_session(session: Session | None) -> None:
    """Begins or ends the session of this process."""
    global _session
    _session = session
