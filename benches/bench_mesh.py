"""What the answers of a mesh cost through Python, beside plain Python, the best NumPy way and torch's DeviceMesh."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from twinkle import DeviceMesh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_benchmark.fixture import BenchmarkFixture

MILLION = 1 << 20
#: pp, dp, cp, tp of a mesh of 1,048,576 ranks.
SHAPE = (16, 4096, 2, 8)
HAS_TORCH = importlib.util.find_spec("torch") is not None
TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "5",
    "LOCAL_WORLD_SIZE": "8",
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
    "TORCHELASTIC_RUN_ID": "bench",
}


def mesh_of(ranks: int) -> DeviceMesh:
    """The mesh of the benches: 16 stages, cp 2 and tp 8 where there is room."""
    if ranks < 256:
        return DeviceMesh.from_sizes(world_size=ranks, pp_size=2, cp_size=1, tp_size=2)
    return DeviceMesh.from_sizes(world_size=ranks, pp_size=16, cp_size=2, tp_size=8)


def ask(benchmark: BenchmarkFixture, group: str, side: str, question: Callable[..., Any], *arguments: Any) -> Any:
    """Times one side of a question."""
    benchmark.group, benchmark.extra_info["side"] = group, side
    return benchmark(question, *arguments)


def three_divmods(rank: int) -> tuple[int, int, int, int]:
    """The coordinate of a rank as a training script computes it."""
    rank, tp = divmod(rank, 8)
    rank, cp = divmod(rank, 2)
    pp, dp = divmod(rank, 4096)
    return pp, dp, cp, tp


@pytest.mark.parametrize("ranks", [8, 1 << 16, 1 << 40])
def bench_build(benchmark: BenchmarkFixture, ranks: int) -> None:
    mesh = ask(benchmark, f"build from sizes, {ranks} ranks", "twinkle", mesh_of, ranks)
    assert mesh.world_size == ranks


def bench_build_with_all_options(benchmark: BenchmarkFixture) -> None:
    def build() -> DeviceMesh:
        return DeviceMesh.from_sizes(
            world_size=MILLION,
            fsdp_size=4,
            pp_size=16,
            cp_size=2,
            tp_size=8,
            ulysses_size=2,
            ep_size=4,
            etp_size=2,
            ep_fsdp_size=MILLION // 4,
            vpp_size=2,
            device_type="cuda",
            sequence_parallel=True,
            order=["fsdp", "pp", "dp", "cp", "tp"],
        )

    assert ask(benchmark, f"build with every option, {MILLION} ranks", "twinkle", build).world_size == MILLION


@pytest.mark.parametrize("ranks", [8, MILLION, 1 << 40])
@pytest.mark.parametrize("side", ["twinkle", "three divmods"])
def bench_coordinate_of_one_rank(benchmark: BenchmarkFixture, ranks: int, side: str) -> None:
    mesh = mesh_of(ranks)
    question = mesh.coord_of if side == "twinkle" else three_divmods
    assert ask(benchmark, f"coordinate of one rank, {ranks} ranks", side, question, 7) is not None


def bench_coordinate_in_a_table(benchmark: BenchmarkFixture) -> None:
    ranks = np.random.default_rng(0).permutation(MILLION).reshape(SHAPE)
    mesh = DeviceMesh(ranks, ("pp", "dp", "cp", "tp"))
    group = f"coordinate of one rank in a table of {MILLION}"
    assert ask(benchmark, group, "twinkle", mesh.coord_of, 77_777) is not None


def bench_coordinate_by_a_search(benchmark: BenchmarkFixture) -> None:
    ranks = np.random.default_rng(0).permutation(MILLION).reshape(SHAPE)
    group = f"coordinate of one rank in a table of {MILLION}"
    assert len(ask(benchmark, group, "numpy argwhere", lambda rank: np.argwhere(ranks == rank), 77_777)) == 1


@pytest.mark.parametrize("question", ["dp_rank", "data_rank", "get_slice"])
def bench_this_process_under_torchrun(
    benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    mesh = mesh_of(8)
    questions: dict[str, Callable[[], Any]] = {
        "dp_rank": lambda: mesh.dp_rank,
        "data_rank": lambda: mesh.data_rank,
        "get_slice": lambda: mesh.get_slice(2048),
    }
    ask(benchmark, f"this process under torchrun: {question}", "twinkle", questions[question])


def bench_this_process_by_hand(benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    ask(
        benchmark,
        "this process under torchrun: dp_rank",
        "one variable and a divmod",
        lambda: int(os.environ["RANK"]) // 2 % 2,
    )


@pytest.mark.parametrize("side", ["twinkle", "Python range"])
@pytest.mark.parametrize("ranks", [8, MILLION])
def bench_own_group(benchmark: BenchmarkFixture, ranks: int, side: str) -> None:
    mesh = mesh_of(ranks)
    size, stride = mesh.get_dim_size("dp"), list(mesh.strides or ())[1]
    question: Callable[[], Any] = {
        "twinkle": lambda: mesh.group_of("dp", 7),
        "Python range": lambda: list(range(7 % stride, 7 % stride + size * stride, stride)),
    }[side]
    assert len(ask(benchmark, f"own dp group, {ranks} ranks", side, question)) == size


@pytest.mark.parametrize("axis", ["pp", "dp", "cp", "tp"])
@pytest.mark.parametrize("side", ["twinkle", "numpy"])
def bench_all_groups(benchmark: BenchmarkFixture, axis: str, side: str) -> None:
    mesh, place = mesh_of(MILLION), ("pp", "dp", "cp", "tp").index(axis)

    def best_numpy() -> Any:
        ranks = np.arange(MILLION, dtype=np.int32).reshape(SHAPE)
        return np.moveaxis(ranks, place, -1).reshape(-1, SHAPE[place])

    question: Callable[[], Any] = (lambda: mesh.groups(axis)) if side == "twinkle" else best_numpy
    answer = ask(benchmark, f"all {axis} groups, {MILLION} ranks", side, question)
    assert np.array_equal(answer, best_numpy())


@pytest.mark.parametrize("side", ["twinkle", "numpy broadcast fill", "numpy unravel_index"])
def bench_all_coordinates(benchmark: BenchmarkFixture, side: str) -> None:
    mesh = mesh_of(MILLION)

    def broadcast_fill() -> Any:
        out = np.empty((*SHAPE, 4), dtype=np.int32)
        for axis, size in enumerate(SHAPE):
            out[..., axis] = np.arange(size, dtype=np.int32).reshape((-1,) + (1,) * (3 - axis))
        return out.reshape(-1, 4)

    def unravel() -> Any:
        return np.stack(np.unravel_index(np.arange(MILLION), SHAPE), axis=1)

    question = {"twinkle": mesh.coords_of, "numpy broadcast fill": broadcast_fill, "numpy unravel_index": unravel}[side]
    assert np.array_equal(ask(benchmark, f"all coordinates, {MILLION} ranks", side, question), broadcast_fill())


@pytest.mark.parametrize("side", ["twinkle", "twinkle, later calls", "numpy index"])
def bench_collect_ranks(benchmark: BenchmarkFixture, side: str) -> None:
    mesh = mesh_of(MILLION)
    ranks = np.arange(MILLION).reshape(SHAPE)
    benchmark.group = f"collect ranks, {MILLION} ranks, 4096 data ranks"
    benchmark.extra_info["side"] = side
    if side == "twinkle":
        # The first call on a mesh: every round has a new one.
        answer = benchmark.pedantic(
            lambda own: own.get_collect_ranks(), setup=lambda: ((mesh_of(MILLION),), {}), rounds=200
        )
    elif side == "numpy index":
        answer = benchmark(lambda: ranks[-1, :, 0, 0].tolist())  # noqa: PLW0108 - the index is part of the question
    else:
        answer = benchmark(mesh.get_collect_ranks)
    assert answer == ranks[-1, :, 0, 0].tolist()


@pytest.mark.parametrize("side", ["twinkle", "numpy array"])
def bench_pickle(benchmark: BenchmarkFixture, side: str) -> None:
    value: Any = mesh_of(MILLION) if side == "twinkle" else np.arange(MILLION, dtype=np.int32).reshape(SHAPE)
    state = ask(benchmark, f"pickle, {MILLION} ranks", side, pickle.dumps, value)
    benchmark.extra_info["bytes"] = len(state)
    assert len(state) <= 400 or side != "twinkle"


@pytest.mark.parametrize(
    ("side", "statement"),
    [
        ("twinkle", "import twinkle"),
        ("bare interpreter", "pass"),
        ("dataclasses and typing", "import dataclasses, typing"),
        ("twinkle.DeviceMesh", "from twinkle import DeviceMesh"),
        ("numpy", "import numpy"),
        *([("torch", "import torch")] if HAS_TORCH else []),
    ],
)
def bench_import(benchmark: BenchmarkFixture, side: str, statement: str) -> None:
    """A fresh process each time, so the interpreter's own start is in every number."""
    benchmark.group, benchmark.extra_info["side"] = "a process that imports", side
    rounds = 3 if side == "torch" else 20
    command = [sys.executable, "-c", statement]
    benchmark.pedantic(lambda: subprocess.run(command, check=True), rounds=rounds, warmup_rounds=1)


if HAS_TORCH:

    @pytest.fixture
    def job_of_1024() -> Iterator[None]:
        """Rank 7 of 1,024 on torch's fake backend, which makes groups without processes."""
        import torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=7, world_size=1024)
        yield
        dist.destroy_process_group()

    @pytest.mark.usefixtures("job_of_1024")
    @pytest.mark.parametrize("side", ["twinkle", "torch DeviceMesh, with its groups"])
    def bench_build_and_ask_one_rank(benchmark: BenchmarkFixture, side: str) -> None:
        """Torch makes every group of every axis when it builds a mesh; twinkle makes them when asked."""
        from torch.distributed.device_mesh import init_device_mesh

        def with_torch() -> list[int]:
            built = init_device_mesh("cpu", (16, 4, 2, 8), mesh_dim_names=("pp", "dp", "cp", "tp"))
            return list(built.get_coordinate() or ())

        def with_twinkle() -> list[int]:
            return list(mesh_of(1024).coord_of(7) or ())

        question = with_twinkle if side == "twinkle" else with_torch
        benchmark.group, benchmark.extra_info["side"] = "build and ask one coordinate, 1024 ranks", side
        assert benchmark.pedantic(question, rounds=20, warmup_rounds=1) == [0, 0, 0, 7]
