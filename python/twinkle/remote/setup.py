"""`initialize` and `shutdown`: the beginning and the end of a job."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from twinkle.errors import PlacementError
from twinkle.group import DeviceGroup
from twinkle.platform import Platform
from twinkle.platform.checks import shown, whole
from twinkle.remote.seeding import seed_loaded
from twinkle.remote.session import Session, connection, current_session, set_session
from twinkle.runtime import current

if TYPE_CHECKING:
    from twinkle.mesh import DeviceMesh

__all__ = ["initialize", "shutdown"]

#: Ray has no other way to be told that nothing of it may listen beyond this machine.
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def initialize(  # noqa: PLR0917 - the contract's order
    mode: Literal["local", "ray"] = "local",
    nproc_per_node: int = 8,
    ncpu_proc_per_node: int = 8,
    seed: int | None = 42,
    groups: Sequence[DeviceGroup | Mapping[str, Any]] | None = None,
    global_device_mesh: DeviceMesh | None = None,
    lazy_collect: bool = True,  # noqa: FBT001, FBT002 - the order of the arguments is the contract
) -> None:
    """Begins a job.

    `'local'`: components are built in this process, which may be one of many under a launcher, where every rank makes
    the same calls and has their results; a `DataLoader` gives handles. `'ray'`: this process becomes the driver, which
    is no rank, and components with a `remote_group` are built in the workers of that group. The devices of all groups
    are reserved here, on the Ray that this process is connected to, else on the one `RAY_ADDRESS` names, else on one
    that is started on this machine and ends with `shutdown`.

    `groups` are `DeviceGroup`s or mappings of their fields. `global_device_mesh` is the mesh of components that are
    given none; left out, that is one dp axis over the workers, or over the world. `lazy_collect` leaves rows that
    methods return with the workers, as handles; False pulls them.

    `seed` seeds this process, and every component by it and by how many were made before: its constructor alike on all
    workers, so that weights are equal, and what its methods draw afterwards by the data rank too: replicas draw alike,
    data ranks do not, and a further component repeats nothing. `random`, NumPy's global
    generator and torch's are seeded, where they are loaded. None seeds nothing.

    Refused (`PlacementError`): a call inside a worker or a component's method, a second call before `shutdown`, groups
    that do not fit the nodes, devices that are not granted in time. Whatever is refused, nothing stays reserved, and
    the next call begins anew.
    """
    if current.mode == "worker":
        raise PlacementError("a worker begins no job of its own; call initialize() where the script begins")
    if current_session() is not None:
        raise PlacementError("twinkle is initialized already; call shutdown() before another initialize()")
    if mode not in ("local", "ray"):
        raise PlacementError(f"mode must be 'local' or 'ray', not {mode!r}", mode=mode)
    seed = None if seed is None else whole(seed, "seed", PlacementError)
    nproc_per_node = whole(nproc_per_node, "nproc_per_node", PlacementError, least=1)
    ncpu_proc_per_node = whole(ncpu_proc_per_node, "ncpu_proc_per_node", PlacementError, least=1)
    if not isinstance(lazy_collect, bool):
        raise PlacementError(f"lazy_collect must be True or False, not {shown(lazy_collect)}")
    session = Session(mode, _groups(groups), _mesh(global_device_mesh), lazy_collect, seed)
    try:
        if mode == "ray":
            _start_ray(session, nproc_per_node, ncpu_proc_per_node)
        mesh = global_device_mesh or _world_mesh(mode)
        seed_loaded(seed)
    except BaseException:
        if mode == "ray":
            _release(session)
        raise
    if mode == "ray":
        current.positions, current.positions_mesh = (), None
    set_session(session)
    current.mode, current.device_mesh = mode, mesh
    # A method of another thread may not have ended by then.
    atexit.register(_end)


def shutdown() -> None:
    """Ends the job: its workers, its reservations, and Ray where `initialize` started it. Ending twice is allowed.

    Refused (`PlacementError`) inside a worker or a component's method, which would end what it runs in.
    """
    if current.mode == "worker" or current.thread is not None:
        raise PlacementError("a worker ends no job; call shutdown() where the script ends")
    _end()


def _end() -> None:
    session = current_session()
    if session is None:
        return
    set_session(None)
    current.mode = current.device_mesh = current.positions = current.positions_mesh = None
    atexit.unregister(_end)
    if session.mode == "ray":
        _release(session)
    else:
        from twinkle.remote.exchange import close

        close()


def _release(session: Session) -> None:
    try:
        import ray
    except ImportError:
        return
    from twinkle.remote.resources import release

    for group in session.ray_groups.values():
        group.closed = True
    if session.ray is not None and connection() != session.ray:
        # The user has ended it, or has begun another, which is not the job's to end.
        return
    if not ray.is_initialized():
        return
    for group in session.ray_groups.values():
        group.close()
    release(session.placement_groups)
    if session.owns_ray:
        ray.shutdown()


def _start_ray(session: Session, nproc_per_node: int, ncpu_proc_per_node: int) -> None:
    named = os.environ.get("RAY_ADDRESS")
    if not named:
        # Read when Ray is first imported, and by the processes that it starts.
        os.environ.setdefault(_LOOPBACK, "0")
    try:
        import ray
    except ImportError as error:
        raise PlacementError("mode='ray' needs Ray, which is not installed: pip install 'twinkle-mesh[ray]'") from error

    from twinkle.remote.group_ray import RayGroup
    from twinkle.remote.resources import reserve

    if not ray.is_initialized():
        local: dict[str, Any] = {} if named else {"address": "local", "include_dashboard": False}
        constants: Any = sys.modules.get("ray._private.ray_constants")
        if not named and os.environ[_LOOPBACK] == "0" and constants is not None:
            # Whoever had imported Ray before had it read the environment too early.
            constants.ENABLE_RAY_CLUSTER = False
        # Said before it is so: what is interrupted while it starts is ended as well.
        session.owns_ray = True
        ray.init(logging_level=logging.ERROR, **local)
    session.ray = connection()
    reservations, session.placement_groups = reserve(session.groups, nproc_per_node, ncpu_proc_per_node)
    for number, (name, reservation) in enumerate(reservations.items()):
        session.ray_groups[name] = RayGroup(reservation, number, session.seed, session.ray)


def _groups(given: Any) -> tuple[DeviceGroup, ...]:
    if given is not None and (isinstance(given, (str, Mapping, DeviceGroup)) or not isinstance(given, Iterable)):
        raise PlacementError(f"groups must be a list of DeviceGroup or of mappings of its fields, not {shown(given)}")
    return tuple(group if isinstance(group, DeviceGroup) else _group(group) for group in given or ())


def _mesh(given: Any) -> DeviceMesh | None:
    from twinkle.mesh import DeviceMesh

    if given is not None and not isinstance(given, DeviceMesh):
        raise PlacementError(f"global_device_mesh must be a DeviceMesh, or None, not {shown(given)}")
    return given


def _group(given: Any) -> DeviceGroup:
    if not isinstance(given, Mapping):
        raise PlacementError(f"groups must hold DeviceGroup or mappings of its fields, not {given!r}")
    try:
        return DeviceGroup(**given)
    except TypeError as error:
        raise PlacementError(f"groups: {given!r} is no DeviceGroup: {error}") from None


def _world_mesh(mode: str) -> DeviceMesh | None:
    """One dp axis over the processes of a launcher; on a driver every group has its own."""
    if mode == "ray":
        return None
    from twinkle.mesh import DeviceMesh

    return DeviceMesh.from_sizes(dp_size=Platform.get_world_size())
