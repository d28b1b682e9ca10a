"""What it costs one rank of a large job to have its process groups, on torch's fake backend: no network, only torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from twinkle import DeviceMesh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_benchmark.fixture import BenchmarkFixture

AXES = ("dp", "pp", "tp")
#: One run times few rounds: each leaves torch with its groups until they are destroyed.
ROUNDS = 5


def sizes(ranks: int) -> dict[str, int]:
    return {"dp": ranks // 128, "pp": 16, "tp": 8}


@pytest.fixture
def job(request: pytest.FixtureRequest) -> Iterator[int]:
    """A job of so many ranks, of which this process is one in the middle."""
    ranks: int = request.param
    dist.init_process_group("fake", rank=ranks // 2 + 77, world_size=ranks, store=FakeStore())
    yield ranks
    dist.destroy_process_group()


def measured(
    benchmark: BenchmarkFixture, job: int, side: str, make: Callable[[], Any], clear: Callable[[], Any]
) -> None:
    def setup() -> None:
        clear()

    benchmark.group = f"the three groups of one rank, {job} ranks"
    benchmark.extra_info["side"] = side
    benchmark.pedantic(make, setup=setup, rounds=ROUNDS if benchmark.enabled else 1)


@pytest.mark.parametrize("job", [1024, 65_536], indirect=True)
def bench_make_groups(benchmark: BenchmarkFixture, job: int) -> None:
    def make() -> DeviceMesh:
        mesh = DeviceMesh.from_axes(sizes(job))
        mesh.make_groups(*AXES)
        return mesh

    measured(benchmark, job, "twinkle", make, DeviceMesh.from_axes(sizes(job)).release_groups)
    mesh = make()
    assert [dist.get_process_group_ranks(mesh.get_dim_group(axis)) for axis in AXES] == [
        list(mesh.group_of(axis)) for axis in AXES
    ]


@pytest.mark.parametrize("job", [1024, 65_536], indirect=True)
def bench_init_device_mesh(benchmark: BenchmarkFixture, job: int) -> None:
    shape = tuple(sizes(job).values())
    measured(
        benchmark,
        job,
        "torch init_device_mesh",
        lambda: dist.init_device_mesh("cpu", shape, mesh_dim_names=AXES),
        lambda: None,
    )
