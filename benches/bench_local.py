"""Hand-overs under a launcher, without Ray, beside what a good engineer would write by hand over gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import LIMIT, ROOT, clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_benchmark.fixture import BenchmarkFixture


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], None]]:
    """Has two processes hand their rows over to each other, in one way or the other."""
    meeting = tmp_path_factory.mktemp("meeting") / "store"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "python")])
    jobs = [
        subprocess.Popen(
            [sys.executable, "-m", "benches.hand_over_in_two", str(meeting)],
            cwd=ROOT,
            env=clean_environment(
                RANK=str(rank), WORLD_SIZE="2", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", PYTHONPATH=paths
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]

    def hand_over_by(side: str) -> None:
        for job in jobs:
            assert job.stdin is not None
            job.stdin.write(f"{side}\n")
            job.stdin.flush()
        for job in jobs:
            assert job.stdout is not None
            assert job.stdout.readline() == "done\n"

    yield hand_over_by
    for job in jobs:
        job.communicate(timeout=LIMIT)


@pytest.mark.parametrize("side", ["twinkle", "pickled"])
def bench_hand_over_without_ray(benchmark: BenchmarkFixture, two_processes: Callable[[str], None], side: str) -> None:
    benchmark.group = "swap 4,096 rows of 4 KiB between 2 processes over gloo"
    benchmark.extra_info["side"] = "twinkle" if side == "twinkle" else "the same rows pickled"
    two_processes(side)
    benchmark(two_processes, side)
