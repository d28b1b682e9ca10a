"""Allocation on paper: the handed cases, the worked examples, and the mistakes that must not be possible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from twinkle import DeviceGroup, Node, allocate
from twinkle.errors import PlacementError
from twinkle.platform import Worker
from twinkle.platform.reading import resolve

CASES = json.loads((Path(__file__).parent / "cases" / "allocate.json").read_text())
EIGHT = [str(device) for device in range(8)]


def node(name: str = "n0", devices: Any = EIGHT, family: str = "GPU") -> Node:
    return Node(name, family, devices, 64)


def group(
    name: str, ranks: Any, device_type: str = "GPU", gpw: int = 1, visible: Any = None, **more: Any
) -> DeviceGroup:
    return DeviceGroup(name, ranks, device_type, visible, gpw, **more)


def drawn(workers: tuple[Worker, ...]) -> list[str]:
    """Workers as `rank@node:ids LWS NR`, the notation of the worked examples."""
    return [
        f"{worker.rank}@{worker.node}:{','.join(worker.devices)} {env['LOCAL_WORLD_SIZE']} {env['NODE_RANK']}"
        for worker in workers
        for env in [worker.env]
    ]


@pytest.mark.parametrize("case", [case for case in CASES if "expect" in case], ids=lambda case: case["id"])
def test_handed_cases(case: dict[str, Any]) -> None:
    answer = allocate(case["groups"], case["nproc_per_node"], case["nodes"], case.get("ncpu_proc_per_node", 8))
    plain = {
        name: [{"rank": w.rank, "node": w.node, "devices": list(w.devices), "env": dict(w.env)} for w in workers]
        for name, workers in answer.items()
    }
    assert plain == case["expect"]


@pytest.mark.parametrize("case", [case for case in CASES if "refused" in case], ids=lambda case: case["id"])
def test_handed_refusals(case: dict[str, Any]) -> None:
    with pytest.raises(PlacementError) as refusal:
        allocate(case["groups"], case["nproc_per_node"], case["nodes"])
    for word in case["refused"]["must_mention"]:
        assert word in str(refusal.value)


TWO = [node("n0"), node("n1")]
ONE = [node("n0")]
FOUR_GPUS = [node("n0", ["0", "1", "2", "3"])]

# number of the worked example, nproc, nodes, groups, workers of each group as drawn
EXAMPLES: list[tuple[int, int, list[Node], list[DeviceGroup], dict[str, list[str]]]] = [
    (
        1,
        8,
        TWO,
        [group("train", 8), group("infer", 8, gpw=2)],
        {
            "train": [f"{rank}@n0:{rank} 8 0" for rank in range(8)],
            "infer": ["0@n1:0,1 4 0", "1@n1:2,3 4 0", "2@n1:4,5 4 0", "3@n1:6,7 4 0"],
        },
    ),
    (2, 4, FOUR_GPUS, [group("a", [2, 3])], {"a": ["0@n0:2 2 0", "1@n0:3 2 0"]}),
    (3, 8, TWO, [group("a", [6, 7, 8, 9], "cuda")], {"a": ["0@n0:6 2 0", "1@n0:7 2 0", "2@n1:0 2 1", "3@n1:1 2 1"]}),
    (4, 8, [node("n0", range(16))], [group("a", 2, visible="8,9")], {"a": ["0@n0:8 2 0", "1@n0:9 2 0"]}),
    (5, 4, ONE, [group("s", 4, gpw=2, visible="4,5,6,7")], {"s": ["0@n0:4,5 2 0", "1@n0:6,7 2 0"]}),
    (6, 2, [node("n0", ("5", "7"))], [group("a", 2)], {"a": ["0@n0:5 2 0", "1@n0:7 2 0"]}),
    (7, 8, [node("n0", EIGHT, "NPU")], [group("s", [3, 2], "npu", 2)], {"s": ["0@n0:2,3 1 0"]}),
    (8, 2, [node("n0", ("GPU-aa", "MIG-bb"))], [group("a", 2)], {"a": ["0@n0:GPU-aa 2 0", "1@n0:MIG-bb 2 0"]}),
    (9, 8, [node("n0", range(8, 16))], [group("a", 2)], {"a": ["0@n0:8 2 0", "1@n0:9 2 0"]}),
    (
        10,
        4,
        FOUR_GPUS,
        [group("train", 4), group("roll", 4, gpw=2, colocate_with="train")],
        {"train": [f"{rank}@n0:{rank} 4 0" for rank in range(4)], "roll": ["0@n0:0,1 2 0", "1@n0:2,3 2 0"]},
    ),
    (
        11,
        8,
        ONE,
        [group("a", [3, 0]), group("b", 2)],
        {"a": ["0@n0:3 2 0", "1@n0:0 2 0"], "b": ["0@n0:4 2 0", "1@n0:5 2 0"]},
    ),
    (
        12,
        8,
        TWO,
        [group("a", 1), group("c", 3, "CPU")],
        {"a": ["0@n0:0 1 0"], "c": ["0@n0: 3 0", "1@n0: 3 0", "2@n0: 3 0"]},
    ),
    (13, 8, [node(f"n{k}") for k in range(4)], [group("a", [0, 24])], {"a": ["0@n0:0 1 0", "1@n3:0 1 1"]}),
    (14, 8, [node("n0", EIGHT, "ROCM")], [group("a", 2, "rocm")], {"a": ["0@n0:0 2 0", "1@n0:1 2 0"]}),
]


@pytest.mark.parametrize(
    ("number", "nproc", "nodes", "groups", "expected"), EXAMPLES, ids=lambda value: str(value)[:12]
)
def test_worked_examples(
    number: int, nproc: int, nodes: list[Node], groups: list[DeviceGroup], expected: dict[str, list[str]]
) -> None:
    assert number
    assert {name: drawn(workers) for name, workers in allocate(groups, nproc, nodes).items()} == expected


# number of the worked example, what is asked (a call, since a group may refuse itself), what the message holds
REFUSED: list[tuple[str, Any, list[str]]] = [
    ("15", lambda: allocate([group("a", [0, 1]), group("b", [1, 2])], 8, ONE), ["'b'", "rank 1", "used by group 'a'"]),
    ("16", lambda: allocate([group("a", [80, 81])], 8, TWO), ["rank 80 needs GPU node 10, only 2 available"]),
    ("17", lambda: allocate([group("a", 8, gpw=3)], 8, ONE), ["8 ranks not divisible by gpus_per_worker=3"]),
    (
        "18",
        lambda: allocate([group("a", [6, 7, 8, 9], gpw=4)], 8, TWO),
        ["ranks [6, 7, 8, 9] of one worker span nodes [0, 1]"],
    ),
    ("19", lambda: group("a", [-1, 0]), ["rank -1 is not a non-negative integer"]),
    ("20 width", lambda: group("a", 2, gpw=0), ["gpus_per_worker must be", ">= 1", "not 0"]),
    ("20 ranks", lambda: group("a", 0), ["ranks must be", ">= 1", "not 0"]),
    ("20 type", lambda: group("a", 2, None), ["unknown device_type None"]),  # type: ignore[arg-type]
    ("21", lambda: allocate([group("a", 1), group("a", 1)], 8, ONE), ["'a'", "duplicate group name"]),
    (
        "22",
        lambda: allocate([group("a", 2, visible="8,9")], 8, ONE),
        ["device 8 is not on node 'n0' (0, 1, 2, 3, 4, 5, 6, 7)"],
    ),
    ("23 twice", lambda: group("a", 2, visible="3,3"), ["duplicates"]),
    (
        "23 short",
        lambda: allocate([group("a", 3, visible=[4, 5])], 8, ONE),
        ["more ranks on node 'n0' than visible_devices (2)"],
    ),
    (
        "24",
        lambda: allocate([group("a", 12)], 8, [node("n0"), node("n1", [0, 1])]),
        ["rank 10 needs device slot 2 on node 'n1', which has 2 (10 ranks would fit)"],
    ),
    (
        "25",
        lambda: allocate([group("a", 2), group("b", 2, visible="1,2")], 8, ONE),
        ["'b'", "device 1 on node 'n0' already belongs to group 'a'"],
    ),
    ("26 npu", lambda: node("n0", ["GPU-aa"], "NPU"), ["ASCEND_RT_VISIBLE_DEVICES takes integer ids only"]),
    ("26 cpu", lambda: group("c", [0, 1], "CPU"), ["CPU group needs a positive integer"]),
    (
        "nproc",
        lambda: allocate([group("a", 16)], 8, [node("n0", range(16))]),
        ["node 1", "16 devices", "nproc_per_node=8"],
    ),
    ("huge", lambda: allocate([group("a", 2**62)], 8, TWO), ["rank 16 needs GPU node 2, only 2 available"]),
    ("huge cpu", lambda: allocate([group("c", 2**40, "CPU")], 8, ONE, 2**41), [str(2**40), str(2**24)]),
    ("family", lambda: allocate([group("a", 1, "npu")], 8, ONE), ["NPU node 0", "only 0", "cuda nodes"]),
    ("node twice", lambda: allocate([group("a", 1)], 8, [node(), node()]), ["'n0'", "twice"]),
    ("device twice", lambda: node("n0", [1, "1"]), ["'n0'", "device 1", "twice"]),
    (
        "colocated family",
        lambda: allocate([group("c", 1, "CPU"), group("a", 1, colocate_with="c")], 8, ONE),
        ["'a'", "'c'", "cpu", "cuda"],
    ),
    ("colocated cpu", lambda: group("c", 1, "CPU", colocate_with="a"), ["'c'", "never colocated"]),
    ("colocated self", lambda: group("a", 1, colocate_with="a"), ["'a'", "another group"]),
    (
        "later group",
        lambda: allocate([group("a", 1, colocate_with="b"), group("b", 1)], 8, ONE),
        ["'a'", "'b'", "no earlier group"],
    ),
    (
        "mixed kinds",
        lambda: allocate([group("a", 2, gpw=2)], 2, [node("n0", ("GPU-aa", "MIG-bb"))]),
        ["GPU-aa, MIG-bb", "CUDA_VISIBLE_DEVICES"],
    ),
    (
        "hpu block",
        lambda: allocate([group("a", [1, 2], "hpu", 2)], 8, [node("n0", EIGHT, "HPU")]),
        ["devices 1, 2", "aligned block"],
    ),
    ("not granted", lambda: allocate([group("a", 2)], 8, [node("n0", {0: "5"})]), ["slot 1", "granted slots 0"]),
    ("wrong groups", lambda: allocate("ab", 8, ONE), ["groups", "'ab'"]),  # type: ignore[arg-type]
    ("wrong nodes", lambda: allocate([group("a", 1)], 8, [3]), ["nodes", "3"]),  # type: ignore[list-item]
    ("wrong nproc", lambda: allocate([group("a", 1)], 0, ONE), ["nproc_per_node", "0"]),
    ("unknown field", lambda: allocate([{"name": "a", "rank": 1}], 8, ONE), ["lacks ranks", "rank"]),
]


@pytest.mark.parametrize(("number", "ask", "words"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_does_not_fit_is_refused_by_group_rank_node_and_numbers(number: str, ask: Any, words: list[str]) -> None:
    assert number
    with pytest.raises(PlacementError) as refusal:
        ask()
    for word in words:
        assert word in str(refusal.value)


def test_a_worker_without_an_accelerator_sees_none_of_any_family_in_the_inventory() -> None:
    nodes = [node("n0"), node("m0", EIGHT, "npu"), node("k0", ["0"], "mps")]
    env = allocate([group("c", 1, "cpu")], 8, nodes)["c"][0].env
    assert {key: value for key, value in env.items() if "VISIBLE" in key} == {
        "CUDA_VISIBLE_DEVICES": "",
        "ASCEND_RT_VISIBLE_DEVICES": "",
    }


def test_a_family_without_a_mask_gets_no_key_for_one() -> None:
    env = allocate([group("a", 1, "mps")], 8, [node("n0", ["0"], "mps")])["a"][0].env
    assert sorted(env) == [
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NNODES",
        "NODE_RANK",
        "RANK",
        "TWINKLE_LOCAL_INDEX",
        "WORLD_SIZE",
    ]


def test_rocm_is_masked_by_its_own_variable() -> None:
    env = allocate([group("a", 2, "rocm")], 8, [node("n0", EIGHT, "rocm")])["a"][1].env
    assert env["HIP_VISIBLE_DEVICES"] == "1"
    assert env["RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in env


def test_the_grant_of_the_second_phase_is_what_workers_get() -> None:
    nodes = [node("n0", {2: "9", 3: 11}), node("n1", {0: "GPU-a"})]
    assert drawn(allocate([group("a", [2, 3, 8])], 8, nodes)["a"]) == ["0@n0:9 2 0", "1@n0:11 2 0", "2@n1:GPU-a 1 1"]


def test_a_grant_needs_only_the_visible_devices_that_are_used() -> None:
    asked = group("a", 2, visible="8,9,10")
    assert drawn(allocate([asked], 8, [node("n0", {0: "9", 1: "8"})])["a"]) == ["0@n0:8 2 0", "1@n0:9 2 0"]
    with pytest.raises(PlacementError, match="device 8 is not on node 'n0' \\(9, 7\\)"):
        allocate([asked], 8, [node("n0", {0: "9", 1: "7"})])


def test_a_colocated_rank_is_on_the_device_that_its_partner_gave_it() -> None:
    train = group("train", 2, visible="4,5")
    roll = group("roll", 2, gpw=2, colocate_with="train")
    score = group("score", [1], colocate_with="roll")
    answer = allocate([train, roll, score], 8, ONE)
    assert [worker.devices for worker in answer["roll"]] == [("4", "5")]
    assert [worker.devices for worker in answer["score"]] == [("5",)]


def test_colocation_is_transitive_and_leaves_others_out() -> None:
    first, second, third = group("a", 2), group("b", 2, colocate_with="a"), group("c", [0], colocate_with="b")
    assert drawn(allocate([first, second, third], 8, ONE)["c"]) == ["0@n0:0 1 0"]
    with pytest.raises(PlacementError, match="rank 0 already used by group 'a'"):
        allocate([first, second, group("d", [0])], 8, ONE)


def test_sixteen_servers_of_four_share_the_devices_of_sixty_four_trainers() -> None:
    nodes = [node(f"n{k}") for k in range(8)]
    answer = allocate([group("train", 64), group("serve", 64, gpw=4, colocate_with="train")], 8, nodes)
    for index, worker in enumerate(answer["serve"]):
        trainers = answer["train"][4 * index : 4 * index + 4]
        assert worker.devices == tuple(trainer.devices[0] for trainer in trainers)
        assert {worker.node} == {trainer.node for trainer in trainers}


def test_the_environment_resolves_to_the_worker_it_was_written_for() -> None:
    for worker in allocate([group("a", [6, 7, 8, 9, 10])], 8, TWO)["a"]:
        record = resolve(worker.env)
        assert (record.rank, record.world_size, record.local_rank, record.launcher) == (worker.rank, 5, 0, "twinkle")
        assert (record.node_rank, record.nnodes) == (int(worker.node == "n1"), 2)
        assert record.local_index == (worker.rank if worker.node == "n0" else worker.rank - 2)


def test_workers_are_values() -> None:
    first, again = (allocate([group("a", 2)], 8, ONE)["a"] for _ in range(2))
    assert first == again
    assert hash(first[0]) == hash(again[0])
