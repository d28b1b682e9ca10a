"""The engine of remote calls with workers that run in this process, so that a law can see thousands of calls."""

from __future__ import annotations

import pickle
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn
from unittest.mock import patch

from twinkle.remote.engine_ray import RayComponent
from twinkle.remote.worker import Host
from twinkle.runtime import current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinkle import DeviceMesh


_numbers = count()


class Box:
    """What stands for a reference: a pickle, as the object store would have it."""

    def __init__(self, value: Any) -> None:
        self.data = value if isinstance(value, BaseException) else pickle.dumps(value)

    def open(self) -> Any:
        if isinstance(self.data, BaseException):
            raise self.data
        return pickle.loads(self.data)

    def __reduce__(self) -> Any:
        return _box, (self.data,)


def _box(data: Any) -> Box:
    box = Box.__new__(Box)
    box.data = data
    return box


class InlineMethod:
    def __init__(self, host: Host, name: str, asked: list[tuple[str, Any]]) -> None:
        self.host, self.name, self.asked = host, name, asked

    def remote(self, *args: Any, **kwargs: Any) -> Box:
        self.asked.append((self.name, args))
        opened = [arg.open() if isinstance(arg, Box) else arg for arg in args]
        before = (current.positions, current.positions_mesh, current.device_mesh)
        try:
            return Box(getattr(self.host, self.name)(*opened, **kwargs))
        finally:
            current.positions, current.positions_mesh, current.device_mesh = before


class InlineHost:
    def __init__(self) -> None:
        self.host = Host()
        #: Every call so far: the method and its arguments.
        self.asked: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> InlineMethod:
        return InlineMethod(self.host, name, self.asked)


class InlineGroup:
    """Stands for a device group whose workers are objects."""

    name, gpus_per_worker = "inline", 1

    def __init__(self, workers: int) -> None:
        self.hosts = [InlineHost() for _ in range(workers)]
        self.order = nullcontext()
        self.seed: int | None = None

    def check_alive(self, method: str) -> None: ...

    def raise_failure(self, method: str, error: BaseException, *, end: bool) -> NoReturn:
        raise error

    def node_of(self, worker: int) -> str:
        return f"node{worker // 4}"


@contextmanager
def inline_ray() -> Iterator[None]:
    """Ray's object store, in this process."""
    with (
        patch("ray.put", Box),
        patch(
            "ray.get",
            lambda boxes, timeout=None: [b.open() for b in boxes] if isinstance(boxes, list) else boxes.open(),
        ),
    ):
        yield


def component(kind: Any, mesh: DeviceMesh, *, lazy: bool = True, group: Any = None) -> Any:
    """An object of a remote class whose workers run here, those of a group of its own unless one is given."""
    group = group or InlineGroup(mesh.world_size)
    name = f"component {next(_numbers)}"
    made = RayComponent(group, name, mesh, mesh.world_size, lazy=lazy)
    recipe = pickle.dumps((kind, (), {}, {"device_mesh": mesh, "remote_group": None}))
    for worker, host in enumerate(group.hosts):
        host.build.remote(name, recipe, (worker,), mesh)
    instance = kind.__new__(kind)
    instance.device_mesh = mesh
    instance._twinkle_component = made
    return instance
