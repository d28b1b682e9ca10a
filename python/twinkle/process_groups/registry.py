"""torch's own names for process groups: the only file that touches what torch keeps to itself.

torch names a new group by how many groups the process made before, so processes that made different numbers never meet.
The function beneath `new_group` takes the name as an argument, keeps the order of the members and needs nobody but
them. Where it is not as it was in torch 2.8 to 2.15, `by_name` is False and every rank makes every group through the
public `new_group` instead.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    import torch
    from torch._C._distributed_c10d import Store
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

__all__ = [
    "backends_of",
    "bound_device",
    "by_name",
    "create_by_name",
    "create_together",
    "default_group",
    "default_timeout",
    "is_known_backend",
    "joined",
    "joins",
    "keeps_order",
    "own_backend",
    "splits",
    "store",
]

_ARGUMENTS = (
    "group_size",
    "group_rank",
    "global_ranks_in_group",
    "backend",
    "store",
    "group_name",
    "backend_options",
    "timeout",
    "device_id",
    "group_desc",
)


def _c10d() -> Any:
    import torch.distributed.distributed_c10d as c10d

    return c10d


@cache
def by_name() -> bool:
    """Whether this torch lets a group be made under a name of our own, by its members alone."""
    c10d = _c10d()
    maker = getattr(c10d, "_new_process_group_helper", None)
    maps = all(hasattr(getattr(c10d, "_world", None), name) for name in ("pg_map", "pg_group_ranks"))
    return maps and maker is not None and set(_ARGUMENTS) <= set(inspect.signature(maker).parameters)


def default_group() -> ProcessGroup | None:
    """The default group, None before `init_process_group`."""
    group: ProcessGroup | None = _c10d().GroupMember.WORLD
    return group


def store(default: ProcessGroup) -> Store:
    """The store through which the members of new groups find each other."""
    found: Store = _c10d()._world.pg_map[default][1]
    return found


def own_backend(default: ProcessGroup) -> str:
    """The backend of the default group as it was given, which a new group inherits: `'cpu:gloo,cuda:nccl'`."""
    c10d = _c10d()
    return str(c10d._world.pg_map[default][0]) if by_name() else str(c10d.get_backend(default))


def is_known_backend(backend: str) -> bool:
    """Whether torch has such a backend, or one for each device that the text names."""
    known = set(_c10d().Backend.backend_list)
    return all(part.rpartition(":")[2] in known for part in backend.split(","))


def backends_of(backend: str) -> dict[str, str]:
    """Which backend serves which device type: `{'cpu': 'gloo', 'cuda': 'nccl'}`."""
    c10d = _c10d()
    return {
        str(device): str(name) for device, name in c10d.BackendConfig(c10d.Backend(backend)).device_backend_map.items()
    }


def default_timeout(default: ProcessGroup, backend: str) -> timedelta:
    """The timeout that a new group inherits from the default group; torch's own where none can be read."""
    for device in getattr(default, "_device_types", ()):
        try:
            timeout: timedelta = default._get_backend(device).options._timeout
        except (AttributeError, RuntimeError):
            continue
        return timeout
    c10d = _c10d()
    found: timedelta = c10d._get_default_timeout(c10d.Backend(backend))
    return found


def bound_device(default: ProcessGroup) -> torch.device | None:
    """The device that the default group was bound to by `init_process_group(device_id=...)`."""
    return getattr(default, "bound_device_id", None)


def splits(default: ProcessGroup, backends: Mapping[str, str]) -> bool:
    """Whether a new group splits the bound communicator of the default group, which all its ranks must join."""
    device = bound_device(default)
    if device is None or backends.get(device.type) in (None, "gloo", "fake"):
        return False
    if backends_of(own_backend(default)).get(device.type) != backends[device.type]:
        return False
    return bool(getattr(default._get_backend(device), "supports_splitting", False))


def create_by_name(
    default: ProcessGroup,
    members: Sequence[int],
    index: int,
    name: str,
    *,
    backend: str,
    timeout: timedelta,
    options: Any,
    device: torch.device | None,
    description: str,
) -> ProcessGroup:
    """Make one group, of which this process is member `index`; no other process than its members takes part."""
    c10d = _c10d()
    group: ProcessGroup
    group, _ = c10d._new_process_group_helper(
        len(members),
        index,
        list(members),
        c10d.Backend(backend),
        store(default),
        name,
        backend_options=options,
        timeout=timeout,
        device_id=device,
        group_desc=description,
    )
    c10d._world.pg_group_ranks[group] = {rank: place for place, rank in enumerate(members)}
    return group


@cache
def keeps_order() -> bool:
    """Whether the public `new_group` can keep the order of the members."""
    return "sort_ranks" in inspect.signature(_c10d().new_group).parameters


def create_together(
    members: Sequence[int], *, backend: str, timeout: timedelta, options: Any, description: str
) -> ProcessGroup | None:
    """Make one group through the public call, which every process of the job joins; None for those outside it."""
    c10d = _c10d()
    order = {"sort_ranks": False} if keeps_order() else {}
    group = c10d.new_group(
        list(members), backend=backend, timeout=timeout, pg_options=options, group_desc=description, **order
    )
    return None if group is c10d.GroupMember.NON_GROUP_MEMBER else group


def joins() -> bool:
    """Whether torch can join parts of one mesh in an order of our own."""
    from torch.distributed.device_mesh import DeviceMesh

    return hasattr(DeviceMesh, "_concatenate")


def joined(parts: Sequence[DeviceMesh]) -> DeviceMesh:
    """Parts that were cut from one torch mesh as one mesh, in this order."""
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh._concatenate(list(parts))
