"""What plans cost from Python, beside the plain Python that would do the same."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests import plan_oracle as oracle
from twinkle.mesh import DeviceMesh
from twinkle.plan import Layout, route

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture


def measured(benchmark: BenchmarkFixture, question: str, side: str, call: Callable[[], Any]) -> Any:
    benchmark.group = question
    benchmark.extra_info["side"] = side
    return benchmark(call)


def token_lengths(rows: int) -> list[int]:
    """Log-normal, like the lengths of real texts."""
    generator = random.Random(0)
    return [int(math.exp(generator.gauss(6, 1))) + 1 for _ in range(rows)]


def even_by_hand(n: int, shards: int) -> list[range]:
    base, spare = divmod(n, shards)
    borders = [shard * base + min(shard, spare) for shard in range(shards + 1)]
    return [range(borders[shard], borders[shard + 1]) for shard in range(shards)]


def reshard_by_hand(source: list[range], target: list[range]) -> list[list[int]]:
    """A merge of two sorted lists of borders, as one would write it."""
    moves = []
    sender = 0
    for receiver, wanted in enumerate(target):
        at = wanted.start
        while at < wanted.stop:
            while source[sender].stop <= at:
                sender += 1
            stop = min(source[sender].stop, wanted.stop)
            moves.append([sender, at - source[sender].start, receiver, at - wanted.start, stop - at])
            at = stop
    return moves


@pytest.mark.parametrize("side", ["twinkle", "plain Python"])
def bench_even_layout(benchmark: BenchmarkFixture, side: str) -> None:
    calls = {
        "twinkle": lambda: Layout.even(10**9, 4096).sizes,
        "plain Python": lambda: even_by_hand(10**9, 4096),
    }
    assert len(measured(benchmark, "even layout, 4096 shards", side, calls[side])) == 4096


@pytest.mark.parametrize("side", ["twinkle", "plain Python"])
def bench_reshard(benchmark: BenchmarkFixture, side: str) -> None:
    layouts = Layout.even(10**9, 4096), Layout.even(10**9, 3000)
    by_hand = even_by_hand(10**9, 4096), even_by_hand(10**9, 3000)
    calls = {"twinkle": lambda: layouts[0].reshard(layouts[1]), "plain Python": lambda: reshard_by_hand(*by_hand)}
    moves = measured(benchmark, "reshard, 4096 to 3000 shards", side, calls[side])
    assert len(moves) == len(layouts[0].reshard(layouts[1]))


@pytest.mark.parametrize("side", ["twinkle", "plain Python"])
def bench_collect_order(benchmark: BenchmarkFixture, side: str) -> None:
    layout, by_hand = Layout.even(10**9, 4096), even_by_hand(10**9, 4096)
    calls = {
        "twinkle": layout.copies,
        "plain Python": lambda: [[shard, 0, rows.start, len(rows)] for shard, rows in enumerate(by_hand)],
    }
    assert len(measured(benchmark, "collect order, 4096 shards", side, calls[side])) == 4096


@pytest.mark.parametrize("side", ["twinkle", "refined", "plain Python greedy", "Karmarkar-Karp in Python"])
def bench_balanced(benchmark: BenchmarkFixture, side: str) -> None:
    weights = token_lengths(10_000)
    array = np.array(weights)
    calls: dict[str, Callable[[], Any]] = {
        "twinkle": lambda: Layout.balanced(array, 64),
        "refined": lambda: Layout.balanced(array, 64, method="refined"),
        "plain Python greedy": lambda: oracle.balanced(weights, 64),
        "Karmarkar-Karp in Python": lambda: oracle.karmarkar_karp(weights, 64),
    }
    result = measured(benchmark, "balanced, 10000 token lengths over 64 shards", side, calls[side])
    loads = (
        result.loads.tolist() if isinstance(result, Layout) else [sum(weights[row] for row in rows) for rows in result]
    )
    benchmark.extra_info["heaviest over mean"] = max(loads) * 64 / sum(weights)
    assert max(loads) <= 1.01 * max(sum(weights) / 64, *weights)


@pytest.mark.parametrize("side", ["twinkle", "refined"])
def bench_balanced_at_scale(benchmark: BenchmarkFixture, side: str) -> None:
    weights = np.array(token_lengths(1_000_000))
    calls: dict[str, Callable[[], Layout]] = {
        "twinkle": lambda: Layout.balanced(weights, 1024),
        "refined": lambda: Layout.balanced(weights, 1024, method="refined"),
    }
    layout = measured(benchmark, "balanced, 1000000 token lengths over 1024 shards", side, calls[side])
    benchmark.extra_info["heaviest over mean"] = float(layout.loads.max() * 1024 / weights.sum())
    assert layout.loads.max() <= 1.01 * max(weights.sum() / 1024, weights.max())


@pytest.mark.parametrize("side", ["twinkle", "a loop over positions"])
def bench_shard_of_every_worker(benchmark: BenchmarkFixture, side: str) -> None:
    mesh = DeviceMesh.from_sizes(pp_size=16, dp_size=4096, cp_size=2, tp_size=8)
    calls: dict[str, Callable[[], Any]] = {
        "twinkle": lambda: (mesh.placement().shard_of_worker, mesh.slices(2**20)),
        "a loop over positions": lambda: ([p // 16 % 4096 for p in range(2**20)], even_by_hand(2**20, 4096)),
    }
    shards, bounds = measured(benchmark, "shard of every worker and bounds, 1048576 workers", side, calls[side])
    assert (len(shards), len(bounds)) == (2**20, 4096)


@pytest.mark.parametrize("workers", [1_024, 65_536])
@pytest.mark.parametrize("side", ["twinkle", "one slice per shard by hand"])
def bench_dispatch(benchmark: BenchmarkFixture, side: str, workers: int) -> None:
    """A hand-written loop knows its bounds and shares one slice per data rank."""
    mesh = DeviceMesh.from_sizes(world_size=workers, pp_size=4, tp_size=8)
    placement, shards = mesh.placement(), mesh.data_world_size
    shard_of = placement.shard_of_worker.tolist()
    batch = list(range(4 * shards))

    def by_hand() -> list[list[int]]:
        pieces: dict[int, list[int]] = {}
        sent = []
        for worker in range(workers):
            shard = shard_of[worker]
            if shard not in pieces:
                rows = mesh.get_slice(len(batch), shard)
                pieces[shard] = batch[rows]
            sent.append(pieces[shard])
        return sent

    calls = {
        "twinkle": lambda: Layout.even(len(batch), shards).dispatch(batch, placement),
        "one slice per shard by hand": by_hand,
    }
    assert len(measured(benchmark, f"dispatch of one list, {workers} workers", side, calls[side])) == workers


@pytest.mark.parametrize("side", ["twinkle", "plain Python"])
def bench_route(benchmark: BenchmarkFixture, side: str) -> None:
    source = DeviceMesh.from_sizes(dp_size=1024).placement()
    target = DeviceMesh.from_sizes(pp_size=4, dp_size=128, tp_size=8).placement()
    moves = Layout.even(8192, 1024).reshard(Layout.even(8192, 128))
    holders = [source.holders(shard).tolist() for shard in range(1024)]
    members = [target.members(shard).tolist() for shard in range(128)]
    listed = moves.tolist()
    calls: dict[str, Callable[[], Any]] = {
        "twinkle": lambda: route(moves, source, target),
        "plain Python": lambda: oracle.route(listed, holders, members),
    }
    assert len(measured(benchmark, "route, 1024 to 4096 workers", side, calls[side])) == 32_768
