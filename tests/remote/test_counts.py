"""What a call costs on a real local Ray, counted: one plan, one pickle per shard, and no row through the driver."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.remote import components, inline
from twinkle import DeviceMesh, Sharded
from twinkle.errors import PlanError, RemoteCallError
from twinkle.remote import collect_tensor_dict, engine_ray, sending, sources, traffic
from twinkle.remote.pickling import packed

pytestmark = pytest.mark.usefixtures("job")

# A type checker does not see what the decorator adds.
Echo: Any = components.Echo

LARGE = 100_000


def echo(group: str, **sizes: int) -> Any:
    return Echo(device_mesh=DeviceMesh.from_axes(sizes), remote_group=group)


class CountedMesh:
    """A mesh that counts what it is asked."""

    def __init__(self, mesh: Any) -> None:
        self.mesh, self.asked = mesh, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self.mesh, name)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Counter[str]]:
    """Counts the calls of functions that modules have by these names."""

    def begin(*named: tuple[Any, str]) -> Counter[str]:
        calls = Counter[str]()

        def counting(name: str, function: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                calls[name] += 1
                return function(*args, **kwargs)

            return call

        for module, name in named:
            monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
        return calls

    return begin


# D34: `get_collect_ranks` was asked again for every output, 11 s for 128 of them.


def test_who_is_collected_is_worked_out_once_and_not_for_every_call_or_output() -> None:
    component = echo("cpu8", dp=8)
    made = component._twinkle_component
    made.mesh = mesh = CountedMesh(made.mesh)
    rows = [{"id": at, "text": "a row"} for at in range(64)]
    assert component.pulled(rows) == rows
    first = mesh.asked["placement"]
    assert component.pulled(rows) == rows
    assert component.by_key(list(range(1, 9)))["ids"] == list(range(1, 9))
    assert (first, mesh.asked["placement"]) == (0, 0)
    assert mesh.asked["coordinates"] == 0


@pytest.mark.parametrize("workers", [4, 64])
def test_the_mesh_is_asked_as_often_for_64_workers_as_for_4(workers: int) -> None:
    with inline.inline_ray():
        component = inline.component(Echo, DeviceMesh.from_axes({"dp": workers}))
        made = component._twinkle_component
        made.mesh = mesh = CountedMesh(made.mesh)
        rows = [{"id": at} for at in range(workers)]
        assert [component.pulled(rows) for _ in range(3)] == [rows] * 3
    assert mesh.asked["placement"] == 1
    assert sum(mesh.asked.values()) == 2


@pytest.mark.parametrize("workers", [4, 64])
def test_a_collector_asks_the_mesh_once_for_all_outputs(workers: int) -> None:
    mesh: Any = CountedMesh(DeviceMesh.from_axes({"dp": workers}))
    outputs = [{"id": [at], "text": ["a"], "loss": 0.5} for at in range(workers)]
    assert collect_tensor_dict(outputs, mesh)["id"] == list(range(workers))
    assert mesh.asked == {"placement": 1, "world_size": 1}


# D35: dispatch searched the mesh for every argument and worker.


def test_a_call_is_planned_once_whatever_it_is_given(counted: Any) -> None:
    component = echo("cpu8", dp=2, pp=2, tp=2)
    handle = component.same(list(range(8)))
    calls = counted((engine_ray, "prepare"), (engine_ray, "layout_of"), (sources, "hand_over"), (sources, "route"))
    component.two([1, 2, 3, 4], (5, 6, 7, 8), config={"deep": [1, 2, 3]})
    assert calls == {"prepare": 1, "layout_of": 1}
    calls.clear()
    component.two(handle, handle, config={"deep": [handle, {"more": handle}]})
    assert calls == {"prepare": 1, "layout_of": 1, "hand_over": 1}
    made = component._twinkle_component
    assert len(made._placements) == len(made._targets) == 1


# D36: every replica got a pickle of its own.


@pytest.mark.parametrize(
    ("method", "width", "puts"),
    [
        ("same", 10, 0),
        ("same", LARGE, 2),
        # One worker of each shard gets the rows, and nobody else could share them.
        ("lead_only", 10, 0),
        ("lead_only", LARGE, 0),
    ],
)
def test_a_shard_is_pickled_once_however_many_replicas_it_has(
    counted: Any, monkeypatch: pytest.MonkeyPatch, method: str, width: int, puts: int
) -> None:
    import ray

    component = echo("cpu8", pp=2, dp=2, tp=2)
    rows = ["x" * width, "y" * width]
    component.pulled(rows)
    pickled: list[bytes] = []

    def recorded(value: Any) -> bytes:
        pickled.append(packed(value))
        return pickled[-1]

    monkeypatch.setattr(sending, "packed", recorded)
    calls = counted((ray, "put"))
    traffic.reset()
    getattr(component, method)(rows)
    # Each shard; arguments that are rows alone need no template.
    assert len(pickled) == 2
    assert [sum(row.encode() in data for data in pickled) for row in rows] == [1, 1]
    assert (calls["put"], traffic.driver_rows) == (puts, 2)


def test_a_large_argument_that_everybody_gets_is_stored_once(counted: Any) -> None:
    import ray

    component = echo("cpu8", dp=8)
    component.identity()
    calls = counted((ray, "put"))
    found = component.everything("z" * LARGE)
    assert [len(args[0]) for args, _ in found] == [LARGE] * 8
    assert calls["put"] == 1


def test_a_layout_that_is_large_is_stored_once_for_all_workers(counted: Any) -> None:
    import ray

    component = echo("cpu8", dp=8)
    component.identity()
    calls = counted((ray, "put"))
    assert component.dealt(list(range(80))) == [True] * 8
    assert calls["put"] == 0
    assert component.dealt(list(range(40_000))) == [True] * 8
    # One for the layout; the rows of each shard have one worker.
    assert calls["put"] == 1


# Design rule 7: what a piece is made for is checked where it arrives.


def _of_another(handle: Sharded, **changes: Any) -> Sharded:
    return Sharded(handle.layout, replace(handle.pieces[0].store, **changes).pieces())


@pytest.mark.parametrize("target", ["cpu4", "cpu8"], ids=["whole pieces", "pieces cut by their producer"])
def test_pieces_of_another_layout_or_shard_than_was_planned_are_refused(target: str) -> None:
    handle = echo("cpu2", dp=2).same(list(range(16)))
    taker = echo(target, dp=int(target[3:]))
    store = handle.pieces[0].store
    identity = store.identity
    with pytest.raises(RemoteCallError) as caught:
        taker.same(_of_another(handle, identity=identity + 1))
    assert isinstance(caught.value.cause, PlanError)
    assert (
        f"PlanError: a piece of shard {caught.value.cause.shard} of layout {identity:x} arrived where shard "
        f"{caught.value.cause.shard} of layout {identity + 1:x} was planned" in str(caught.value)
    )
    with pytest.raises(RemoteCallError, match=r"a piece of shard [01] of layout \w+ arrived where shard [01] of"):
        taker.same(_of_another(handle, holders=store.holders[::-1]))
    assert taker.same(handle).gather() == list(range(16))


# What the driver holds.


def test_the_driver_holds_as_much_of_4096_rows_as_of_64() -> None:
    maker, taker = echo("cpu8", dp=8), echo("cpu8", dp=4, tp=2)

    def peak(count: int) -> int:
        handle = maker.same(list(range(count))).map(lambda row: np.full(4096, row))
        # What is loaded once belongs to no call.
        taker.same(handle)
        gc.collect()
        traffic.reset()
        tracemalloc.start()
        try:
            made = taker.same(handle)
            highest = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert (len(made), traffic.driver_rows) == (count, 0)
        return highest

    few = peak(64)
    # One row is 32 KiB, and so 4,096 of them are 128 MiB; `lengths` are a number each.
    assert peak(4096) < 2 * few + 2**20
