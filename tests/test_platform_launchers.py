"""Launchers: who a process is, from hand-made variables of every launcher that is known."""

from __future__ import annotations

import pytest

from twinkle.errors import LauncherError
from twinkle.platform.launchers import FIELDS, LAUNCHERS
from twinkle.platform.reading import read, resolve

SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_NODELIST": "n[1-4]",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    # The index of the process among all jobs on the node, which is not a node's rank.
    "OMPI_COMM_WORLD_NODE_RANK": "3",
}
HYDRA = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
TORCH = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
TORCHRUN = {**TORCH, "TORCHELASTIC_RUN_ID": "x", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2"}

DEEPSPEED = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_SIZE": "2",
    "CROSS_RANK": "1",
    "CROSS_SIZE": "2",
    "MASTER_ADDR": "n0",
    "MASTER_PORT": "29500",
}
# Kubernetes operators number pods, not processes.
VOLCANO = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "p0", "MASTER_PORT": "23456", "VC_TASK_INDEX": "0"}
PYTORCH_JOB = {"RANK": "1", "WORLD_SIZE": "16", "PET_NPROC_PER_NODE": "8", "PET_NODE_RANK": "1", "PET_NNODES": "2"}

# launcher, variables, (rank, world size, local rank, local world size, node rank, nodes)
ROWS = [
    ("single", {}, (-1, 1, -1, 1, 0, 1)),
    ("torchrun", TORCHRUN, (5, 8, 1, 4, 1, 2)),
    ("torchrun", {**TORCHRUN, "NODE_RANK": "7", "NNODES": "9"}, (5, 8, 1, 4, 1, 2)),
    ("torch", TORCH, (5, 8, 1, 4, 1, 2)),
    ("torch", {**TORCH, "NODE_RANK": "0", "NNODES": "3"}, (5, 8, 1, 4, 0, 3)),
    ("torch", {**TORCH, "NNODES": "1:4"}, (5, 8, 1, 4, 1, 2)),
    ("torch", {**TORCH, "LOCAL_WORLD_SIZE": "", "LOCAL_SIZE": "2"}, (5, 8, 1, 2, 2, 4)),
    ("torch", {**TORCH, "LOCAL_WORLD_SIZE": "3", "CROSS_RANK": "1", "CROSS_SIZE": "3"}, (5, 8, 1, 3, 1, 3)),
    ("torch", DEEPSPEED, (3, 4, 1, 2, 1, 2)),
    ("torch", VOLCANO, (1, 2, None, None, None, None)),
    ("torch", PYTORCH_JOB, (1, 16, None, None, None, None)),
    # What an elastic agent reads is nobody's place.
    ("single", {"PET_NPROC_PER_NODE": "8", "PET_NODE_RANK": "1", "PET_NNODES": "1:4"}, (-1, 1, -1, 1, 0, 1)),
    ("torch", {"RANK": "0", "WORLD_SIZE": "1"}, (0, 1, 0, 1, 0, 1)),
    ("torch", {"RANK": "3", "WORLD_SIZE": "8", "NNODES": "1"}, (3, 8, None, 8, 0, 1)),
    ("torch", {"RANK": "3"}, (3, None, None, None, None, None)),
    ("openmpi", OPENMPI, (5, 8, 1, 4, 1, 2)),
    ("openmpi", {**OPENMPI, "RANK": "", "WORLD_SIZE": " "}, (5, 8, 1, 4, 1, 2)),
    ("hydra", HYDRA, (2, 4, 0, 2, 1, 2)),
    ("single", {"PMI_RANK": "2", "PMI_SIZE": "4"}, (-1, 1, -1, 1, 0, 1)),
    (
        "mvapich2",
        {
            "MV2_COMM_WORLD_RANK": "1",
            "MV2_COMM_WORLD_SIZE": "2",
            "MV2_COMM_WORLD_LOCAL_RANK": "1",
            "MV2_COMM_WORLD_LOCAL_SIZE": "2",
        },
        (1, 2, 1, 2, 0, 1),
    ),
    ("slurm", SLURM, (5, 7, 1, 2, 2, 4)),
    ("slurm", {**SLURM, "SLURM_PROCID": "6", "SLURM_LOCALID": "0", "SLURM_NODEID": "3"}, (6, 7, 0, 1, 3, 4)),
    ("slurm", {**SLURM, "PMI_RANK": "5", "PMI_SIZE": "7"}, (5, 7, 1, 2, 2, 4)),
    ("single", {**SLURM, "SLURM_JOB_NAME": "bash"}, (-1, 1, -1, 1, 0, 1)),
    ("single", {**SLURM, "SLURM_JOB_NAME": "interactive"}, (-1, 1, -1, 1, 0, 1)),
    ("single", {**SLURM, "SLURM_STEP_NODELIST": ""}, (-1, 1, -1, 1, 0, 1)),
    ("openmpi", {**SLURM, **OPENMPI}, (5, 8, 1, 4, 1, 2)),
    ("hydra", {**SLURM, **HYDRA}, (2, 4, 0, 2, 1, 2)),
    (
        "flux",
        {"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "4", "FLUX_TASK_LOCAL_ID": "1", "FLUX_JOB_NNODES": "2"},
        (3, 4, 1, None, None, 2),
    ),
    ("pals", {"PALS_RANKID": "3", "PALS_LOCAL_RANKID": "1"}, (3, None, 1, None, None, None)),
    (
        "jsrun",
        {"JSM_NAMESPACE_RANK": "3", "JSM_NAMESPACE_SIZE": "4", "JSM_NAMESPACE_LOCAL_RANK": "1"},
        (3, 4, 1, None, None, None),
    ),
    # torchrun started once per node by srun or mpirun: the inner launcher knows.
    ("torchrun", {**SLURM, **TORCHRUN, "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}, (5, 8, 1, 4, 1, 2)),
    ("torchrun", {**OPENMPI, **TORCHRUN, "OMPI_COMM_WORLD_RANK": "6"}, (5, 8, 1, 4, 1, 2)),
    # Another size of the world is an outer layer's.
    ("torch", {**OPENMPI, **TORCH, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, (5, 8, 1, 4, 1, 2)),
    # Half a torch set that agrees with a whole set beside it.
    ("slurm", {**SLURM, "WORLD_SIZE": "7"}, (5, 7, 1, 2, 2, 4)),
    ("openmpi", {**OPENMPI, "RANK": "5"}, (5, 8, 1, 4, 1, 2)),
    # A Ray worker inherits what started its raylet.
    ("ray", {**SLURM, **TORCH, "WORLD_SIZE": "7", "RAY_RAYLET_PID": "9", "LOCAL_WORLD_SIZE": "7"}, (5, 7, 1, 7, 0, 1)),
    ("single", {**SLURM, "RAY_RAYLET_PID": "9"}, (-1, 1, -1, 1, 0, 1)),
]


@pytest.mark.parametrize(("launcher", "variables", "expected"), ROWS)
def test_each_launcher_is_read_by_its_row(launcher: str, variables: dict[str, str], expected: tuple[int, ...]) -> None:
    record = resolve(variables)
    assert record.launcher == launcher
    assert tuple(getattr(record, what) for what in FIELDS) == expected


def test_every_launcher_of_the_table_has_an_example() -> None:
    assert {row.name for row in LAUNCHERS} == {name for name, _, _ in ROWS} - {"single"} | {"twinkle"}


def test_the_record_says_where_each_answer_came_from() -> None:
    record = resolve(TORCH)
    assert record.sources["rank"] == "RANK"
    assert record.sources["nnodes"] == "world_size // local_world_size"
    assert resolve(SLURM).sources["local_world_size"] == "SLURM_STEP_TASKS_PER_NODE at node 2"
    assert set(resolve({"RANK": "3"}).sources) == {"rank"}


def test_the_record_is_frozen_and_equal_by_value() -> None:
    record = resolve(TORCH)
    assert record == resolve(dict(TORCH))
    assert hash(record) == hash(resolve(dict(TORCH)))
    with pytest.raises(AttributeError):
        record.rank = 3  # type: ignore[misc]


def test_arguments_outrank_variables() -> None:
    record = resolve(TORCH, rank=6, local_rank=2)
    assert (record.rank, record.world_size, record.local_rank, record.node_rank) == (6, 8, 2, 1)
    assert record.sources["rank"] == "argument"
    alone = resolve({}, rank=1, world_size=2, local_rank=1, local_world_size=2)
    assert (alone.launcher, alone.nnodes, alone.node_rank) == ("arguments", 1, 0)


# variables, what the message must hold
CONTRADICTIONS = [
    ({**TORCH, "RANK": "8"}, ["RANK=8", "WORLD_SIZE=8"]),
    ({**TORCH, "RANK": "abc"}, ["RANK", "'abc'"]),
    ({**TORCH, "RANK": "-1"}, ["RANK", "'-1'"]),
    ({**TORCH, "RANK": "1.0"}, ["RANK", "'1.0'"]),
    ({**TORCH, "WORLD_SIZE": "9" * 30}, ["WORLD_SIZE", "999"]),
    ({**TORCH, "LOCAL_RANK": "4"}, ["LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"]),
    ({**TORCH, "LOCAL_WORLD_SIZE": "9"}, ["LOCAL_WORLD_SIZE=9", "WORLD_SIZE=8"]),
    ({**TORCH, "NODE_RANK": "2", "NNODES": "2"}, ["NODE_RANK=2", "NNODES=2"]),
    ({**OPENMPI, **TORCH, "RANK": "0"}, ["RANK=0", "OMPI_COMM_WORLD_RANK=5", "8"]),
    # RANK=$SLURM_PROCID written into the batch script is 0 on every task.
    ({**SLURM, "RANK": "0", "WORLD_SIZE": "7"}, ["RANK=0", "SLURM_PROCID=5", "7"]),
    ({**SLURM, "WORLD_SIZE": "3"}, ["WORLD_SIZE=3", "SLURM_STEP_NUM_TASKS=7"]),
    ({**OPENMPI, "RANK": "0"}, ["RANK=0", "OMPI_COMM_WORLD_RANK=5"]),
    ({**OPENMPI, **HYDRA, "PMI_SIZE": "8"}, ["OMPI_COMM_WORLD_RANK=5", "PMI_RANK=2"]),
    ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2(x4)"}, ["2(x4)", "8 tasks", "SLURM_STEP_NUM_TASKS=7"]),
    ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2"}, ["SLURM_STEP_TASKS_PER_NODE", "'2'", "node 2"]),
    ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2(x3"}, ["SLURM_STEP_TASKS_PER_NODE", "'2(x3'"]),
    ({"WORLD_SIZE": "8"}, ["RANK is not set", "WORLD_SIZE=8"]),
    ({"OMPI_COMM_WORLD_SIZE": "8"}, ["OMPI_COMM_WORLD_RANK is not set", "OMPI_COMM_WORLD_SIZE=8"]),
]


@pytest.mark.parametrize(("variables", "words"), CONTRADICTIONS)
def test_the_resolver_refuses_what_cannot_be_by_variable_and_value(variables: dict[str, str], words: list[str]) -> None:
    with pytest.raises(LauncherError) as refusal:
        resolve(variables)
    for word in words:
        assert word in str(refusal.value)


@pytest.mark.parametrize(
    ("variables", "asked", "answer"),
    [
        ({"RANK": "3"}, "rank", 3),
        ({**TORCH, "LOCAL_RANK": "abc"}, "rank", 5),
        ({**TORCH, "LOCAL_RANK": "4"}, "world_size", 8),
        ({**TORCH, "NODE_RANK": "x"}, "local_rank", 1),
        ({"WORLD_SIZE": "8"}, "world_size", 8),
        ({"WORLD_SIZE": "1"}, "rank", -1),
    ],
)
def test_a_question_does_not_complain_about_what_it_does_not_need(
    variables: dict[str, str], asked: str, answer: int
) -> None:
    assert read(variables).answer(asked) == answer


@pytest.mark.parametrize(
    ("variables", "asked", "words"),
    [
        ({"RANK": "3"}, "world_size", ["WORLD_SIZE is not set", "RANK=3"]),
        (
            {"RANK": "1", "WORLD_SIZE": "4"},
            "local_rank",
            ["LOCAL_RANK is not set", "pod-level", "torchrun", "WORLD_SIZE=4"],
        ),
        ({**TORCH, "LOCAL_WORLD_SIZE": "3"}, "node_rank", ["NODE_RANK", "set", "LOCAL_WORLD_SIZE=3"]),
        ({"PALS_RANKID": "3"}, "world_size", ["world_size is not told by pals", "PALS_RANKID=3"]),
        (VOLCANO, "local_rank", ["LOCAL_RANK is not set", "pod-level", "RANK=1", "WORLD_SIZE=2"]),
        (PYTORCH_JOB, "local_rank", ["LOCAL_RANK is not set", "pod-level", "RANK=1", "WORLD_SIZE=16"]),
    ],
)
def test_a_missing_variable_is_refused_where_it_is_asked(
    variables: dict[str, str], asked: str, words: list[str]
) -> None:
    with pytest.raises(LauncherError) as refusal:
        read(variables).answer(asked)
    for word in words:
        assert word in str(refusal.value)


def test_ranks_that_are_dealt_round_robin_have_no_derived_node() -> None:
    variables = {**OPENMPI, "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    assert resolve(variables).node_rank is None
    with pytest.raises(LauncherError, match="node_rank"):
        read(variables).answer("node_rank")


def test_a_worker_of_allocate_is_isolated_and_keeps_its_place_on_the_node() -> None:
    variables = {**TORCH, "LOCAL_RANK": "0", "NODE_RANK": "1", "NNODES": "2", "TWINKLE_LOCAL_INDEX": "3"}
    record = resolve(variables)
    assert (record.launcher, record.isolated, record.local_rank, record.local_index) == ("twinkle", True, 0, 3)


def test_the_virtual_local_rank_of_torchrun_is_recognised_by_its_rank() -> None:
    record = resolve({**TORCHRUN, "LOCAL_RANK": "0"})
    assert (record.isolated, record.local_rank, record.local_index) == (True, 0, 1)
    assert not resolve({**TORCHRUN, "RANK": "4", "LOCAL_RANK": "0"}).isolated


def test_a_reading_lasts_until_a_variable_it_was_made_from_changes() -> None:
    variables = dict(TORCH)
    reading = read(variables)
    assert reading.current({**variables, "HOME": "/nowhere"})
    assert not reading.current({**variables, "LOCAL_RANK": "2"})
    assert not reading.current({**variables, "TORCHELASTIC_RUN_ID": "x"})
    assert not reading.current({**variables, "OMPI_COMM_WORLD_RANK": "2"})


def test_what_is_no_mapping_of_text_is_refused() -> None:
    for wrong in (3, ["RANK"], {"RANK": 3}):
        with pytest.raises(LauncherError):
            resolve(wrong)  # type: ignore[arg-type]
    for value in (True, -1, 2**63, "3", 1.0):
        with pytest.raises(LauncherError, match="rank"):
            resolve({}, rank=value, world_size=8)  # type: ignore[arg-type]
