"""Devices on a real local Ray, where logical GPUs and NPUs stand for hardware: what each worker is granted and sees."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import twinkle
from tests.remote import components
from tests.waiting import PATIENCE, becomes
from twinkle import DeviceGroup, DeviceMesh, get_device_placement, remote_class, remote_function
from twinkle.errors import LauncherError, MeshError, PlacementError, PlanError, RemoteCallError
from twinkle.remote import resources
from twinkle.runtime import current

# A type checker does not see what the decorator adds.
Echo: Any = components.Echo


@pytest.fixture(autouse=True)
def _clean(local_ray: None) -> Iterator[None]:
    """Begins with all devices, those that an earlier test gave back among them."""
    assert (free("GPU"), free("NPU")) == (8, 8)
    yield
    twinkle.shutdown()


def environments(group: str) -> list[dict[str, str]]:
    return [one["environment"] for one in Echo(remote_group=group).identity()]


def free(resource: str, expected: float = 8) -> float:
    """What is free, once what was given back has arrived."""
    import ray

    return becomes(lambda: float(ray.available_resources().get(resource, 0)), expected)


def test_every_worker_sees_exactly_its_own_devices() -> None:
    twinkle.initialize(
        "ray",
        groups=[
            DeviceGroup("train", 3, "GPU"),
            DeviceGroup("infer", 4, "cuda", gpus_per_worker=2),
            DeviceGroup("npus", [3, 2], "npu", gpus_per_worker=2),
            DeviceGroup("host", 1, "cpu"),
        ],
    )
    assert [env["CUDA_VISIBLE_DEVICES"] for env in environments("train")] == ["0", "1", "2"]
    infer = environments("infer")
    assert [env["CUDA_VISIBLE_DEVICES"] for env in infer] == ["3,4", "5,6"]
    assert [(env["WORLD_SIZE"], env["LOCAL_RANK"]) for env in infer] == [("2", "0"), ("2", "0")]
    (npus,) = environments("npus")
    first, second = npus["ASCEND_RT_VISIBLE_DEVICES"].split(",")
    assert int(first) < int(second)
    assert len({npus[name] for name in npus if name.startswith("HCCL_")}) == 2
    (host,) = environments("host")
    assert (host["CUDA_VISIBLE_DEVICES"], host["ASCEND_RT_VISIBLE_DEVICES"]) == ("", "")
    text = get_device_placement()
    lines = {line.split(",")[0]: line for line in text.splitlines()}
    assert "infer, cuda (2 workers)" in lines["infer"]
    assert lines["infer"].endswith("3,4 5,6")
    assert "host, cpu (1 worker)" in lines["host"]
    assert lines["host"].endswith("none")


def test_granted_ids_are_used_where_another_job_holds_the_first_ones() -> None:
    import ray

    other = ray.util.placement_group([{"GPU": 1}] * 3)
    ray.get(other.ready())
    try:
        twinkle.initialize("ray", groups=[DeviceGroup("train", 2, "GPU")])
        masks = {env["CUDA_VISIBLE_DEVICES"] for env in environments("train")}
        assert len(masks) == 2
        assert masks <= {"3", "4", "5", "6", "7"}
    finally:
        ray.util.remove_placement_group(other)


def test_a_group_gets_the_devices_it_names() -> None:
    twinkle.initialize("ray", groups=[DeviceGroup("train", 2, "GPU", visible_devices="6,4")])
    assert [env["CUDA_VISIBLE_DEVICES"] for env in environments("train")] == ["6", "4"]
    assert free("GPU", 6) == 6


def test_colocated_groups_share_devices_in_processes_of_their_own() -> None:
    groups = [DeviceGroup("train", 2, "GPU"), DeviceGroup("roll", 2, "GPU", gpus_per_worker=2, colocate_with="train")]
    twinkle.initialize("ray", groups=groups)
    train, roll = Echo(remote_group="train").identity(), Echo(remote_group="roll").identity()
    assert [one["environment"]["CUDA_VISIBLE_DEVICES"] for one in train] == ["0", "1"]
    assert [one["environment"]["CUDA_VISIBLE_DEVICES"] for one in roll] == ["0,1"]
    assert not {one["pid"] for one in train} & {one["pid"] for one in roll}
    assert "roll, cuda, with train (1 worker)" in get_device_placement()


def test_a_mesh_over_devices_places_blocks_on_workers() -> None:  # D5
    twinkle.initialize("ray", groups=[DeviceGroup("infer", 4, "cuda", gpus_per_worker=2)])
    by_device = Echo(device_mesh=DeviceMesh.from_axes({"dp": 2, "tp": 2}), remote_group="infer")
    assert [one["axes"] for one in by_device.identity()] == [(0, None, None, 0), (1, None, None, 1)]
    assert [rows for rows, *_ in by_device.rows_seen(list(range(8)))] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    by_worker = Echo(device_mesh=DeviceMesh.from_axes({"dp": 2}), remote_group="infer")
    assert by_worker.pulled(list(range(8))) == list(range(8))
    with pytest.raises(PlanError, match=r"worker 0 owns positions \[0, 1\] of data shards \[0, 1\]"):
        Echo(device_mesh=DeviceMesh.from_axes({"pp": 2, "dp": 2}), remote_group="infer")
    with pytest.raises(PlacementError, match="8 positions does not fit 2 workers of 2"):
        Echo(device_mesh=DeviceMesh.from_axes({"dp": 8}), remote_group="infer")


def test_workers_of_two_devices_each_return_the_rows_of_every_data_rank() -> None:  # D4
    twinkle.initialize("ray", groups=[DeviceGroup("infer", 8, "cuda", gpus_per_worker=2)])
    component = Echo(device_mesh=DeviceMesh.from_axes({"dp": 4, "tp": 2}), remote_group="infer")
    assert [rows for rows, *_ in component.rows_seen(list(range(8)))] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert component.pulled(list(range(8))) == list(range(8))
    with pytest.raises(PlanError, match=r"worker 0 owns positions \[0, 1\] of data shards \[0, 1\]"):
        Echo(device_mesh=DeviceMesh.from_axes({"tp": 2, "dp": 4}), remote_group="infer")


def test_what_is_not_granted_in_time_is_refused_and_nothing_stays_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def reserved(group: DeviceGroup, nodes: Any, held: Any, deadline: float) -> Any:
        """What is free is granted, however long that takes; for the rest the deadline holds."""
        fits = sum(pg.bundle_count for pg in held) + len(nodes) <= 2
        return placement_group(group, nodes, held, time.monotonic() + PATIENCE if fits else deadline)

    placement_group = resources._placement_group
    monkeypatch.setattr(resources, "_placement_group", reserved)
    monkeypatch.setattr(resources, "DEADLINE", 1.0)
    other = ray.util.placement_group([{"GPU": 1}] * 6)
    ray.get(other.ready())
    try:
        with pytest.raises(PlacementError, match=r"group 'b': 2 x .*GPU.* were not granted within 1 s; 1 GPU are free"):
            twinkle.initialize("ray", groups=[DeviceGroup("a", 1, "GPU"), DeviceGroup("b", 2, "GPU")])
        with pytest.raises(PlacementError, match=r"devices 0 wanted on node .* missing"):
            twinkle.initialize("ray", groups=[DeviceGroup("a", 1, "GPU", visible_devices="0")])
    finally:
        ray.util.remove_placement_group(other)
    assert free("GPU") == 8


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([DeviceGroup("a", [80, 81], "GPU")], "rank 80 needs GPU node 10, only 1 available"),
        ([DeviceGroup("a", 9, "GPU")], "rank 8 needs"),
        ([DeviceGroup("a", [0, 1], "GPU"), DeviceGroup("b", [1, 2], "GPU")], "rank 1 already used by group 'a'"),
        ([DeviceGroup("a", 1, "GPU"), DeviceGroup("a", 1, "GPU")], "duplicate group name"),
        ([DeviceGroup("a", 1, "musa")], "rank 0 needs"),
    ],
)
def test_groups_that_do_not_fit_are_refused_before_anything_is_reserved(groups: Any, words: str) -> None:
    with pytest.raises(PlacementError, match=words):
        twinkle.initialize("ray", groups=groups)
    assert free("GPU") == 8
    twinkle.initialize("ray", groups=[])


def test_initialize_twice_and_wrong_words_are_refused() -> None:
    with pytest.raises(PlacementError, match="'local' or 'ray', not 'cluster'"):
        twinkle.initialize("cluster")  # type: ignore[arg-type]
    with pytest.raises(PlacementError, match="groups must hold DeviceGroup or mappings"):
        twinkle.initialize("ray", groups=["gpu"])  # type: ignore[list-item]
    twinkle.initialize("ray")
    with pytest.raises(PlacementError, match="initialized already; call shutdown"):
        twinkle.initialize("ray")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": "x"}, "seed must be an integer >= 0, not 'x'"),
        ({"seed": 1.5}, "seed must be an integer >= 0, not 1.5"),
        ({"global_device_mesh": 4}, "global_device_mesh must be a DeviceMesh, or None, not 4"),
        ({"lazy_collect": "no"}, "lazy_collect must be True or False, not 'no'"),
        ({"nproc_per_node": "8"}, "nproc_per_node must be an integer >= 1, not '8'"),
        ({"ncpu_proc_per_node": 0}, "ncpu_proc_per_node must be an integer >= 1, not 0"),
        ({"groups": 4}, "groups must be a list of DeviceGroup or of mappings of its fields, not 4"),
        ({"groups": {"name": "a"}}, "groups must be a list of DeviceGroup or of mappings"),
    ],
)
@pytest.mark.parametrize("mode", ["ray", "local"])
def test_options_of_another_type_are_refused_before_anything_begins(mode: Any, options: Any, words: str) -> None:
    with pytest.raises(PlacementError, match=words):
        twinkle.initialize(mode, **{"groups": [DeviceGroup("a", 1, "GPU")], **options})
    assert current.mode is None
    assert free("GPU") == 8
    twinkle.initialize(mode)


def test_what_fails_while_a_job_begins_leaves_nothing_half_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("twinkle.remote.setup.seed_loaded", lambda seed: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            twinkle.initialize("ray", groups=[DeviceGroup("a", 8, "GPU")])
    assert (current.mode, current.positions) == (None, None)
    with monkeypatch.context() as broken:
        broken.setenv("WORLD_SIZE", "many")
        with pytest.raises(LauncherError):
            twinkle.initialize("local")
    twinkle.initialize("ray", groups=[DeviceGroup("a", 8, "GPU")])


@pytest.mark.parametrize("mode", ["ray", "local"])
def test_a_worker_begins_no_job_and_ends_none(mode: Any) -> None:
    @remote_class()
    class Nested:
        @remote_function()
        def begin(self) -> None:
            twinkle.initialize("local")

        @remote_function()
        def end(self) -> None:
            twinkle.shutdown()

        @remote_function()
        def works(self) -> int:
            return 1

    twinkle.initialize(mode, groups=[DeviceGroup("a", 1, "CPU")])
    nested: Any = Nested
    component = nested(remote_group="a")
    with pytest.raises((PlacementError, RemoteCallError), match="a worker begins no job of its own"):
        component.begin()
    with pytest.raises((PlacementError, RemoteCallError), match="a worker ends no job; call shutdown"):
        component.end()
    assert component.works() == [1]


def test_a_mesh_before_initialize_is_refused() -> None:
    with pytest.raises(PlacementError, match="device_mesh was given before initialize"):
        Echo(device_mesh=DeviceMesh.from_sizes(dp_size=2))
    with pytest.raises(PlacementError, match="remote_group was given before initialize"):
        Echo(remote_group="train")


def test_the_mesh_of_initialize_is_that_of_components_without_one() -> None:
    shape = DeviceMesh.from_axes({"dp": 2, "tp": 2})
    groups = [DeviceGroup("four", 4, "cpu")]
    twinkle.initialize("ray", groups=groups, global_device_mesh=shape, lazy_collect=False)
    component: Any = Echo(remote_group="four")
    assert component.device_mesh == shape
    assert component.same([1, 2]) == [1, 2]


def test_seeds_reach_every_worker_alike() -> None:
    from twinkle import remote_class, remote_function

    @remote_class()
    class Dice:
        def __init__(self) -> None:
            import random

            self.thrown = random.random()

        @remote_function()
        def throw(self) -> float:
            return self.thrown

    twinkle.initialize("ray", groups=[DeviceGroup("two", 2, "cpu")], seed=7)
    dice: Any = Dice
    first = dice(remote_group="two").throw()
    assert len(set(first)) == 1


def test_a_view_places_no_rows() -> None:
    twinkle.initialize("ray", groups=[DeviceGroup("two", 2, "cpu")])
    with pytest.raises(MeshError):
        Echo(device_mesh=DeviceMesh.from_axes({"ep": 2}), remote_group="two")
