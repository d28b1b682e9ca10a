"""Calls and hand-overs on a local Ray, beside what a good engineer would write by hand on the same Ray."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import statistics
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from twinkle.plan import Layout
from twinkle.remote.handover import hand_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_benchmark.fixture import BenchmarkFixture

#: Workers of the call bench, when it is timed and when it only shows that it runs.
WORKERS, FEW = 64, 4
ROWS = 128


def bench_planning_a_hand_over(benchmark: BenchmarkFixture) -> None:
    benchmark.group = "plan a hand-over of 1,000,000 rows from 3,072 to 4,096 shards, one worker each"
    benchmark.extra_info["side"] = "twinkle"
    source, target = Layout.even(1_000_000, 3072), Layout.even(1_000_000, 4096)
    benchmark(hand_over, source, target)


def bench_planning_by_hand(benchmark: BenchmarkFixture) -> None:
    benchmark.group = "plan a hand-over of 1,000,000 rows from 3,072 to 4,096 shards, one worker each"
    benchmark.extra_info["side"] = "a merge of borders in Python"

    def plan() -> list[list[tuple[int, int, int]]]:
        def borders(shards: int) -> list[int]:
            base, spare = divmod(1_000_000, shards)
            return [shard * base + min(shard, spare) for shard in range(shards + 1)]

        ours, theirs = borders(3072), borders(4096)
        reads: list[list[tuple[int, int, int]]] = []
        shard = 0
        for start, stop in itertools.pairwise(theirs):
            reads.append([])
            at = start
            while at < stop:
                while ours[shard + 1] <= at:
                    shard += 1
                end = min(stop, ours[shard + 1])
                reads[-1].append((shard, at - ours[shard], end - ours[shard]))
                at = end
        return reads

    made = hand_over(Layout.even(1_000_000, 3072), Layout.even(1_000_000, 4096))
    assert benchmark(plan) == [[(piece, *cut) for piece, (cut,) in bundle.items()] for bundle in made.bundles]


if importlib.util.find_spec("ray") is not None:
    from tests.remote import components
    from twinkle import DeviceMesh
    from twinkle.remote import traffic

    # A type checker does not see what the decorator adds.
    Echo: Any = components.Echo

    @pytest.fixture(scope="module")
    def cluster() -> Iterator[Any]:
        import os

        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        import ray

        if ray.is_initialized():
            yield ray
            return
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=40)
        yield ray
        ray.shutdown()

    @pytest.fixture
    def job(cluster: Any, benchmark: BenchmarkFixture) -> Iterator[int]:
        import twinkle

        workers = WORKERS if benchmark.enabled else FEW
        groups = [{"name": f"group{size}", "ranks": size, "device_type": "cpu"} for size in (2, 8, workers)]
        twinkle.initialize("ray", ncpu_proc_per_node=workers + 10, groups=groups[: 3 if workers != 8 else 2])
        yield workers
        twinkle.shutdown()

    def bench_call(benchmark: BenchmarkFixture, job: int, cluster: Any) -> None:
        benchmark.group = f"dispatch and collect one dict per worker, {job} workers"
        component: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=job), remote_group=f"group{job}")
        rows = [{"id": at, "text": "a row"} for at in range(job)]
        by_hand = _by_hand(cluster, rows)
        calls = {"a hand-written Ray loop": by_hand, "twinkle": lambda: component.pulled(rows)}
        took: dict[str, list[float]] = {side: [] for side in calls}

        def in_turns() -> None:
            for side, call in calls.items():
                start = time.perf_counter()
                assert call() == rows
                took[side].append(time.perf_counter() - start)

        # Minutes of a machine differ by more than the two sides, which so share each of them.
        rounds, warmup = (60, 5) if benchmark.enabled else (1, 0)
        benchmark.pedantic(in_turns, rounds=rounds, warmup_rounds=warmup)
        benchmark.extra_info["side"] = "twinkle"
        benchmark.extra_info["medians"] = {side: statistics.median(times[-rounds:]) for side, times in took.items()}

    def _by_hand(cluster: Any, rows: list[Any]) -> Callable[[], list[Any]]:
        """A loop over actors, one for each row."""

        class Plain:
            def same(self, rows: Any) -> Any:
                return rows

        actors = [cluster.remote(Plain).options(num_cpus=0).remote() for _ in rows]

        def call() -> list[Any]:
            shares = [rows[at : at + 1] for at in range(len(rows))]
            parts = cluster.get([actor.same.remote(share) for actor, share in zip(actors, shares, strict=True)])
            return [row for part in parts for row in part]

        return call

    @pytest.mark.parametrize("source", [8, 2])
    def bench_hand_over(benchmark: BenchmarkFixture, job: int, source: int) -> None:
        benchmark.group = f"hand {ROWS} rows of 32 KiB over, {source} -> 8 workers"
        benchmark.extra_info["side"] = "twinkle"
        maker: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=source), remote_group=f"group{source}")
        taker: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=8), remote_group="group8")
        handle = maker.same([np.zeros(4096) for _ in range(ROWS)])
        traffic.reset()
        taker.sum_of(handle)
        assert (traffic.driver_rows, traffic.moved_rows) == (0, ROWS)
        benchmark.extra_info["rows moved"], benchmark.extra_info["rows through the driver"] = ROWS, 0
        benchmark(taker.sum_of, handle)

    @pytest.mark.parametrize("source", [8, 2])
    def bench_hand_over_by_hand(benchmark: BenchmarkFixture, job: int, source: int) -> None:
        benchmark.group = f"hand {ROWS} rows of 32 KiB over, {source} -> 8 workers"
        benchmark.extra_info["side"] = "gather on the driver, then scatter"
        maker: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=source), remote_group=f"group{source}")
        taker: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=8), remote_group="group8")
        handle = maker.same([np.zeros(4096) for _ in range(ROWS)])
        benchmark.extra_info["rows moved"], benchmark.extra_info["rows through the driver"] = 0, 2 * ROWS
        benchmark(lambda: taker.sum_of(handle.gather()))

    def _peak(call: Callable[[], object]) -> int:
        """The most that Python held of this process while a call ran, in KiB; shared memory is not counted."""
        # What is loaded once belongs to no call.
        call()
        gc.collect()
        tracemalloc.start()
        try:
            call()
            return tracemalloc.get_traced_memory()[1] // 1024
        finally:
            tracemalloc.stop()

    def _rows_and_taker(benchmark: BenchmarkFixture, rows: int) -> tuple[Any, Any, int]:
        rows = rows if benchmark.enabled else 16
        benchmark.group = f"call with {rows} rows of 4,096 numbers that 8 workers have, on 8 workers"
        mesh = DeviceMesh.from_sizes(dp_size=8)
        maker: Any = Echo(device_mesh=mesh, remote_group="group8")
        taker: Any = Echo(device_mesh=mesh, remote_group="group8")
        return maker.same(list(range(rows))).map(lambda row: np.full(4096, row)), taker, rows

    @pytest.mark.parametrize("rows", [64, 4096])
    def bench_driver_memory(benchmark: BenchmarkFixture, job: int, rows: int) -> None:
        benchmark.extra_info["side"] = "twinkle"
        handle, taker, rows = _rows_and_taker(benchmark, rows)
        traffic.reset()
        benchmark.extra_info["peak of the driver, KiB"] = _peak(lambda: taker.same(handle))
        assert (traffic.driver_rows, traffic.moved_rows) == (0, 2 * rows)
        benchmark(taker.same, handle)

    @pytest.mark.parametrize("rows", [64, 4096])
    def bench_driver_memory_by_hand(benchmark: BenchmarkFixture, job: int, rows: int) -> None:
        benchmark.extra_info["side"] = "gather on the driver, then scatter"
        handle, taker, rows = _rows_and_taker(benchmark, rows)
        benchmark.extra_info["peak of the driver, KiB"] = _peak(lambda: taker.same(handle.gather()))
        benchmark(lambda: taker.same(handle.gather()))
