"""A device group on Ray: one process per worker, started when its first component is made."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from twinkle.errors import RemoteCallError
from twinkle.remote.arguments import check_travels
from twinkle.remote.engine_ray import RayComponent
from twinkle.remote.pickling import packed, travelling
from twinkle.remote.resources import release
from twinkle.remote.session import connection, current_session
from twinkle.remote.waiting import Deadline, results_of
from twinkle.remote.worker import Host

if TYPE_CHECKING:
    from twinkle.mesh import DeviceMesh
    from twinkle.remote.resources import Reservation
    from twinkle.remote.signature import Declaration

__all__ = ["RayGroup"]

#: Host ports that HCCL takes, one block per group.
_HCCL_FIRST, _HCCL_BLOCK = 60_000, 64
#: Seconds in which the processes of a group must be there and have their environment.
_START = 300.0


class RayGroup:
    """The workers of one device group."""

    def __init__(
        self, reservation: Reservation, number: int, seed: int | None, ray: tuple[str, str] | None = None
    ) -> None:
        #: The Ray that the group is on.
        self.ray = ray
        self.reservation, self.number, self.seed = reservation, number, seed
        self.name = reservation.group.name
        self.gpus_per_worker = reservation.group.gpus_per_worker
        self._hosts: list[Any] = []
        self._components = 0
        self.closed = False
        #: The failure that ended the group; None while it lives.
        self.ended_by: RemoteCallError | None = None
        self._ending = threading.Lock()
        #: Held while a call is sent, so that every worker gets the calls of several threads in one order.
        self.order = threading.RLock()

    @property
    def workers(self) -> int:
        """How many workers the group has."""
        return len(self.reservation.workers)

    def node_of(self, worker: int) -> str:
        """The node of a worker."""
        return self.reservation.addresses[worker]

    @property
    def hosts(self) -> list[Any]:
        """The actor of every worker."""
        with self.order:
            if not self._hosts:
                self._start()
            return self._hosts

    def check_alive(self, method: str) -> None:
        """Refuses what cannot be answered any more."""
        if self.closed:
            raise RemoteCallError(
                f"{method}: the workers of group {self.name!r} were shut down", method=method, group=self.name
            )
        if self.is_lost():
            raise RemoteCallError(
                f"{method}: the Ray that group {self.name!r} was on was shut down, and its workers with it; shutdown() "
                "and initialize() begin anew",
                method=method,
                group=self.name,
            )
        if self.ended_by is not None:
            raise RemoteCallError(
                f"{method}: group {self.name!r} was ended when {self.ended_by}; shutdown() and initialize() start it "
                "anew",
                **{**self.ended_by.fields, "method": method, "group": self.name, "failed": self.ended_by.method},
            )

    def is_lost(self) -> bool:
        """Whether the user has ended the Ray that the group is on, or this process is connected to another."""
        return connection() != self.ray

    def component(
        self,
        kind: type,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        mesh: DeviceMesh,
        making: Declaration,
        *,
        number: int,
        first: bool,
        given: bool,
        lazy: bool,
    ) -> RayComponent:
        """Makes one component object on every worker, or on the first."""
        method = f"{kind.__qualname__}.__init__"
        self.check_alive(method)
        workers = 1 if first else self.workers
        self._components += 1
        name = f"{kind.__qualname__}-{self._components}"
        component = RayComponent(self, name, mesh, workers, lazy=lazy)
        # A worker whose positions span two shards is refused before anything is started.
        component.placement("pp_last")
        for at, value in enumerate(args):
            check_travels(value, method, (f"argument {at}",))
        for parameter, value in kwargs.items():
            check_travels(value, method, (parameter,))
        offered = {"device_mesh": mesh if given else None, "remote_group": self.name}
        with travelling({**{f"argument {at}": value for at, value in enumerate(args)}, **kwargs}, method):
            recipe = packed((kind, args, kwargs, offered))
        width = mesh.world_size // workers
        hosts = self.hosts[:workers]
        # The processes have a deadline of their own, which the first component of a group meets.
        deadline = Deadline(making.timeout)
        with self.order:
            references = [
                host.build.remote(name, recipe, tuple(range(worker * width, (worker + 1) * width)), mesh, number)
                for worker, host in enumerate(hosts)
            ]
        try:
            results_of(references, deadline, method, self._told)
        except BaseException as error:
            _forget(self, hosts, name)
            self.raise_failure(method, error, end=making.on_error == "kill_group")
        weakref.finalize(component, _forget, self, list(hosts), name)
        return component

    def close(self) -> None:
        """Ends the workers."""
        import ray

        self.closed = True
        hosts, self._hosts = self._hosts, []
        for host in () if self.is_lost() else hosts:
            ray.kill(host, no_restart=True)

    def raise_failure(self, method: str, error: BaseException, *, end: bool) -> NoReturn:
        """Raises what the caller of a call that its workers did not finish is told; with `end` it ends the group."""
        with self._ending:
            if end and not self.closed and self.ended_by is None:
                # A copy: the error itself would keep the rows of its call.
                if isinstance(error, RemoteCallError):
                    self.ended_by = RemoteCallError(str(error), **error.fields)
                else:
                    self.ended_by = RemoteCallError(
                        f"{method} was interrupted by {type(error).__name__}", method=method
                    )
                self._end()
                if not isinstance(error, RemoteCallError):
                    raise error
                ended = RemoteCallError(
                    f"{error}; on_error='kill_group' ended group {self.name!r} with its {self.workers} workers",
                    **{**error.fields, "group": self.name},
                )
                for note in getattr(error, "__notes__", ()):
                    ended.add_note(note)
                raise ended from error.__cause__
        if isinstance(error, RemoteCallError):
            # Another thread has ended the group meanwhile, and with it this call.
            self.check_alive(method)
        raise error

    def _end(self) -> None:
        """Ends the processes, and gives the devices back that no living group shares."""
        import ray

        for host in self._hosts:
            ray.kill(host, no_restart=True)
        self._hosts = []
        session = current_session()
        if session is None:
            return
        living = [group for group in session.ray_groups.values() if group.ended_by is None]
        shared = {pg.id for group in living for pg in group.reservation.placement_group}
        own = {pg.id: pg for pg in self.reservation.placement_group if pg.id not in shared}
        release(list(own.values()))
        session.placement_groups = [pg for pg in session.placement_groups if pg.id not in own]

    def _start(self) -> None:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self.check_alive("starting workers")
        actor = ray.remote(Host)
        held = self.reservation
        hosts: list[Any] = [
            actor.options(
                num_cpus=0,
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(pg, placement_group_bundle_index=bundle),
            ).remote()
            for pg, bundle in zip(held.placement_group, held.bundles, strict=True)
        ]
        try:
            self._prepare(hosts)
        except RemoteCallError:
            # A group of which a part is there is none.
            for host in hosts:
                ray.kill(host, no_restart=True)
            raise
        self._hosts = hosts

    def _prepare(self, hosts: list[Any]) -> None:
        """Gives every process the environment of its worker."""
        held = self.reservation
        starting, deadline = f"starting group {self.name!r}", Deadline(_START)
        ((address, port),) = results_of([hosts[0].port.remote()], deadline, starting, self._told)
        shared = {"MASTER_ADDR": address, "MASTER_PORT": str(port), "TWINKLE_GROUP": self.name}
        if held.group.device_type == "npu":
            first = _HCCL_FIRST + self.number * _HCCL_BLOCK
            ports = f"{first}-{first + _HCCL_BLOCK // 2 - 1}"
            shared |= {"HCCL_IF_BASE_PORT": str(first + _HCCL_BLOCK // 2), "HCCL_HOST_SOCKET_PORT_RANGE": ports}
            shared |= {"HCCL_NPU_SOCKET_PORT_RANGE": ports}
        references = [
            host.prepare.remote({**worker.env, **shared}, self.seed)
            for host, worker in zip(hosts, held.workers, strict=True)
        ]
        results_of(references, deadline, starting, self._told)

    def _told(self, at: int) -> dict[str, Any]:
        return {"worker": at, "node": self.node_of(at)}


def _forget(group: RayGroup, hosts: list[Any], name: str) -> None:
    if not group.closed and group.ended_by is None and not group.is_lost():
        for host in hosts:
            host.drop.remote(name)
