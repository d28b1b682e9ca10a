"""Arbitrary values at every public function of the device side: an answer, or a typed refusal, and nothing else."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from twinkle import DeviceGroup, Node, Platform, allocate
from twinkle.errors import TwinkleError
from twinkle.platform import (
    FAMILIES,
    bundle_order,
    detect,
    device_type_of,
    logical_index,
    node_order,
    physical_id,
    resolve,
    visible_devices,
)
from twinkle.platform.launchers import FIELDS, LAUNCHERS
from twinkle.platform.reading import read

VARIABLES = sorted(
    {
        name
        for row in LAUNCHERS
        for group in (
            *row.shown_by,
            row.rank,
            row.world_size,
            row.local_rank,
            row.local_world_size,
            row.node_rank,
            row.nnodes,
            row.tasks_per_node,
        )
        for name in group
    }
    | {"SLURM_JOB_NAME"}
)

texts = st.text(alphabet="0123456789,-+ .aGPUMI()x:²٣", max_size=12) | st.sampled_from(["0", "1", "2", "4", "2(x3),1"])
names = st.sampled_from([*FAMILIES, "GPU", "NPU", "hip", "nope"]) | st.text(max_size=6)
integers = st.integers(-3, 20) | st.sampled_from([2**31, 2**62, 2**63, 2**64, -(2**70)])
scalars = st.none() | st.booleans() | integers | st.floats() | texts | st.binary(max_size=3)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(scalars, inner, max_size=3), max_leaves=6
)
counts = st.integers(-1, 40) | anything


def answers(call: Any, *arguments: Any, **named: Any) -> Any:
    """What a call answers; None when it refuses, which it may only do with a type of its own."""
    try:
        return call(*arguments, **named)
    except TwinkleError:
        return None


@given(family=names | anything, value=texts | anything, count=counts, strict=st.booleans())
def test_visible_devices_answers_or_refuses(family: Any, value: Any, count: Any, *, strict: bool) -> None:
    seen = answers(visible_devices, family, value, count, strict=strict)
    assert seen is None or all(isinstance(entry, str) for entry in seen)


@given(family=st.sampled_from([*FAMILIES]), value=texts, count=st.integers(0, 12))
def test_what_strict_answers_is_what_the_runtime_sees(family: str, value: str, count: int) -> None:
    whole = answers(visible_devices, family, value, count, strict=True)
    if whole is not None:
        assert visible_devices(family, value, count) == whole
        assert len(set(whole)) == len(whole) == (len(value.split(",")) if value.strip(" ") else 0)
        for place, entry in enumerate(whole):
            assert physical_id(whole, logical_index(whole, entry)) == entry
            assert logical_index(whole, physical_id(whole, place)) == place


@given(family=st.sampled_from([*FAMILIES]), value=texts, count=st.integers(0, 12))
def test_what_the_runtime_sees_is_seen_again_when_it_is_written_back(family: str, value: str, count: int) -> None:
    seen = answers(visible_devices, family, value, count)
    if seen:
        assert visible_devices(family, ",".join(seen), count) == seen


@given(visible=st.lists(texts, max_size=4), index=anything)
def test_logical_and_physical_answer_or_refuse(visible: list[str], index: Any) -> None:
    answers(physical_id, visible, index)
    answers(logical_index, visible, index)


@given(environ=st.dictionaries(st.sampled_from(VARIABLES), texts, max_size=14))
def test_any_variables_give_a_record_or_a_launcher_error(environ: dict[str, str]) -> None:
    record = answers(resolve, environ)
    for what in FIELDS:
        answer = answers(read(environ).answer, what)
        if record is not None:
            assert answer == getattr(record, what)
    if record is not None and record.rank is not None and record.world_size is not None:
        assert record.rank < record.world_size
    if record is not None and record.local_rank is not None and record.local_world_size is not None:
        assert record.local_rank < record.local_world_size


@given(environ=anything, given_rank=anything)
def test_anything_else_given_to_the_resolver_is_refused(environ: Any, given_rank: Any) -> None:
    answers(resolve, environ, rank=given_rank)
    answers(resolve, {}, rank=given_rank, world_size=given_rank, nnodes=given_rank)


@given(name=names | anything)
def test_device_types_are_answered_or_refused(name: Any) -> None:
    answers(device_type_of, name)
    if name is not None:
        answers(Platform.device_prefix, name)
        answers(Platform.visible_device_env, name)
    assert detect(files=[str(name)], environ={}, modules={}, system="linux") in {f.prefix for f in FAMILIES.values()}


@given(index=anything, size=anything, rank=anything, world=anything)
def test_devices_and_peers_are_answered_or_refused(index: Any, size: Any, rank: Any, world: Any) -> None:
    answers(Platform.get_local_device, index, platform="npu")
    answers(Platform.get_peer_index, size, rank, world)
    answers(Platform.bind, "cpu", index=index)


nodes: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    id=st.sampled_from(["n0", "n1", "n2"]) | anything,
    family=names,
    devices=st.lists(integers | texts, max_size=9) | st.dictionaries(integers, integers, max_size=3) | anything,
    cpus=counts,
)
ranks = st.integers(1, 12) | st.lists(st.integers(0, 20), max_size=6) | anything
groups: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    name=st.sampled_from(["a", "b", "c"]) | anything,
    ranks=ranks,
    device_type=names,
    visible_devices=st.none() | texts | anything,
    gpus_per_worker=st.sampled_from([1, 2]) | anything,
    colocate_with=st.sampled_from([None, "a", "b"]) | anything,
)


@given(group=groups, node=nodes)
def test_groups_and_nodes_are_made_or_refused(group: dict[str, Any], node: dict[str, Any]) -> None:
    made = answers(DeviceGroup, **group)
    if made is not None:
        assert len(repr(made)) < 1000
        hash(made)
    answers(Node, **node)


sane_nodes: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.builds(
        dict,
        id=st.sampled_from(["n0", "n1", "n2"]),
        family=st.sampled_from(["GPU", "NPU", "hpu", "cpu"]),
        devices=st.lists(st.integers(0, 12), max_size=9, unique=True),
    ),
    max_size=3,
    unique_by=lambda node: node["id"],
)
sane_groups: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.builds(
        dict,
        name=st.sampled_from(["a", "b", "c"]),
        ranks=st.integers(1, 12) | st.lists(st.integers(0, 20), min_size=1, max_size=6, unique=True),
        device_type=st.sampled_from(["GPU", "NPU", "cpu"]),
        gpus_per_worker=st.sampled_from([1, 1, 2]),
        visible_devices=st.none() | st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True),
        colocate_with=st.sampled_from([None, None, "a", "b"]),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=300)
@given(asked=sane_groups, inventory=sane_nodes, per_node=st.integers(1, 9), per_node_cpu=st.integers(1, 9))
def test_what_is_allocated_exists_and_belongs_to_one_group_unless_colocated(
    asked: list[dict[str, Any]], inventory: list[dict[str, Any]], per_node: int, per_node_cpu: int
) -> None:
    answer = answers(allocate, asked, per_node, inventory, per_node_cpu)
    if answer is None:
        return
    there = {node["id"]: [str(device) for device in node["devices"]] for node in inventory}
    owners: dict[tuple[str, str], str] = {}
    colocated = {group["name"] for group in asked if group["colocate_with"]}
    for group in asked:
        workers = answer[group["name"]]
        size = group["ranks"] if isinstance(group["ranks"], int) else len(group["ranks"])
        assert len(workers) == size // group["gpus_per_worker"]
        assert [worker.rank for worker in workers] == list(range(len(workers)))
        own = [(worker.node, device) for worker in workers for device in worker.devices]
        assert len(set(own)) == len(own) == (0 if group["device_type"] == "cpu" else size)
        for node, device in own:
            assert device in there[node]
            assert owners.setdefault((node, device), group["name"]) == group["name"] or group["name"] in colocated


@given(asked=anything | st.lists(groups | anything, max_size=2), inventory=anything | st.lists(nodes, max_size=2))
def test_anything_given_to_allocate_is_answered_or_refused(asked: Any, inventory: Any) -> None:
    answers(allocate, asked, 8, inventory)
    answers(allocate, [], asked, [], inventory)


@given(order=st.lists(texts | anything, max_size=5), labels=st.none() | st.dictionaries(texts, counts, max_size=5))
def test_nodes_are_ordered_or_refused(order: list[Any], labels: Any) -> None:
    ordered = answers(node_order, order, labels)
    assert ordered is None or sorted(ordered) == sorted(order)
    answers(bundle_order, order)
    answers(bundle_order, [(name, name) for name in order], order)
