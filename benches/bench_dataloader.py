"""Loading beside torch's DistributedSampler and accelerate's BatchSamplerShard, at a million rows.

Each round begins an epoch and takes so many batches of one rank, so that what a side does once an epoch (a permutation,
a list of all indices) is in its time. A million rows over 8 data ranks in global batches of 512 are 1,954 steps.
"""

from __future__ import annotations

import importlib.util
import tracemalloc
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, default_collate
from torch.utils.data import DataLoader as TorchLoader

from twinkle import DeviceMesh
from twinkle.dataloader import DataLoader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_benchmark.fixture import BenchmarkFixture

ROWS, RANKS, RANK, BATCH, SKIPPED = 1_000_000, 8, 3, 512, 900_000
MESH = DeviceMesh.from_sizes(dp_size=RANKS)


class Rows:
    """Rows that cost as little as a row can."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> int:
        return row


class Samples(Rows):
    """Rows of 128 tokens each."""

    tokens = torch.arange(128)

    def __getitem__(self, row: int) -> Any:
        return {"input_ids": self.tokens + row, "labels": row}


@pytest.fixture(autouse=True)
def _one_rank_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", str(RANK))
    monkeypatch.setenv("WORLD_SIZE", str(RANKS))


def of_twinkle(dataset: Any) -> Callable[[], Iterator[Any]]:
    """A function that begins an epoch and gives its batches."""
    loader = DataLoader(dataset, batch_size=BATCH, device_mesh=MESH, shuffle=True)
    return lambda: iter(loader)


def of_torch(dataset: Any) -> Callable[[], Iterator[Any]]:
    """The same with torch alone."""
    sampler: Any = DistributedSampler(dataset, num_replicas=RANKS, rank=RANK, shuffle=True)
    loader = TorchLoader(dataset, batch_size=BATCH // RANKS, sampler=sampler)
    return lambda: iter(loader)


def of_accelerate(dataset: Any) -> Callable[[], Iterator[Any]]:
    """The same with accelerate."""
    from accelerate.data_loader import BatchSamplerShard

    sampler = BatchSampler(RandomSampler(dataset), BATCH // RANKS, drop_last=False)
    loader = TorchLoader(dataset, batch_sampler=BatchSamplerShard(sampler, num_processes=RANKS, process_index=RANK))
    return lambda: iter(loader)


SIDES: dict[str, Callable[[Any], Callable[[], Iterator[Any]]]] = {
    "twinkle": of_twinkle,
    "torch DistributedSampler": of_torch,
}
if importlib.util.find_spec("accelerate") is not None:
    SIDES["accelerate BatchSamplerShard"] = of_accelerate


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("rows", [Rows, Samples], ids=["numbers", "tokens"])
def bench_an_epoch(benchmark: BenchmarkFixture, side: str, rows: type[Rows]) -> None:
    kind = "numbers" if rows is Rows else "128 tokens a row"
    benchmark.group = f"one rank's epoch of 1,000,000 shuffled rows, 64 rows a step ({kind}), 1,954 steps"
    begin = SIDES[side](rows())
    benchmark.extra_info["side"] = side

    def epoch() -> int:
        return sum(1 for _ in begin())

    steps = benchmark.pedantic(epoch, rounds=5 if benchmark.enabled else 1, iterations=1)
    assert steps in (1953, 1954)
    if benchmark.stats is not None:
        benchmark.extra_info["batches per second"] = round(steps / benchmark.stats.stats.median)


def orders_of_twinkle() -> Iterator[Any]:
    """The index batches of one rank, without reading a row."""
    from twinkle._core import permuted

    share = BATCH // RANKS
    for first in range(RANK * share, ROWS - share, BATCH):
        yield permuted(42, 0, ROWS, first, first + share).tolist()


def orders_of_torch() -> Iterator[Any]:
    """The same with torch."""
    rows: Any = Rows()
    sampler: Any = DistributedSampler(rows, num_replicas=RANKS, rank=RANK, shuffle=True)
    return iter(BatchSampler(sampler, BATCH // RANKS, drop_last=False))


@pytest.mark.parametrize("side", ["twinkle", "torch DistributedSampler"])
def bench_the_order_of_an_epoch(benchmark: BenchmarkFixture, side: str) -> None:
    benchmark.group = "indices of one rank's epoch of 1,000,000 shuffled rows, 1,954 steps"
    benchmark.extra_info["side"] = side
    batches = orders_of_twinkle if side == "twinkle" else orders_of_torch
    benchmark.pedantic(lambda: sum(1 for _ in batches()), rounds=5 if benchmark.enabled else 1, iterations=1)
    tracemalloc.start()
    for _ in islice(batches(), 10):
        pass
    benchmark.extra_info["peak bytes of the order"] = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def bench_the_first_batch_after_a_skip(benchmark: BenchmarkFixture) -> None:
    benchmark.group = "first batch after skipping 900,000 of 1,000,000 shuffled rows"
    benchmark.extra_info["side"] = "twinkle"
    loader = DataLoader(Samples(), batch_size=BATCH, device_mesh=MESH, shuffle=True)

    def resume() -> Any:
        loader.skip_consumed_samples(SKIPPED)
        return next(iter(loader))

    batch = benchmark(resume)
    assert batch["labels"].shape == (BATCH // RANKS,)


def bench_the_first_batch_after_a_skip_with_torch_alone(benchmark: BenchmarkFixture) -> None:
    benchmark.group = "first batch after skipping 900,000 of 1,000,000 shuffled rows"
    benchmark.extra_info["side"] = "torch, batches skipped by islice of the sampler"
    sampler: Any = DistributedSampler(Samples(), num_replicas=RANKS, rank=RANK, shuffle=True)  # type: ignore[arg-type]
    batches = BatchSampler(sampler, BATCH // RANKS, drop_last=False)
    data = Samples()

    def resume() -> Any:
        rows = next(islice(batches, SKIPPED // BATCH, None))
        return default_collate([data[row] for row in rows])

    batch = benchmark.pedantic(resume, rounds=5 if benchmark.enabled else 1, iterations=1)
    assert batch["labels"].shape == (BATCH // RANKS,)


def shares_of_twinkle(batches: Any) -> Any:
    """One rank's part of every global batch."""
    from twinkle.dataloader import DeviceMeshSampler

    return DeviceMeshSampler(batches, MESH)


def shares_of_accelerate(batches: Any) -> Any:
    """The same with accelerate."""
    from accelerate.data_loader import BatchSamplerShard

    return BatchSamplerShard(batches, num_processes=RANKS, process_index=RANK, split_batches=True)


CUTTERS = {
    "twinkle": shares_of_twinkle,
    **({"accelerate BatchSamplerShard": shares_of_accelerate} if len(SIDES) > 2 else {}),
}


@pytest.mark.parametrize("side", CUTTERS)
def bench_cutting_the_batches_of_a_batch_sampler(benchmark: BenchmarkFixture, side: str) -> None:
    benchmark.group = "one rank's part of 1,954 global batches of 512 rows, 1,000,000 rows in order"
    benchmark.extra_info["side"] = side
    sampler = CUTTERS[side](BatchSampler(range(ROWS), BATCH, drop_last=False))
    steps = benchmark.pedantic(lambda: sum(1 for _ in sampler), rounds=5 if benchmark.enabled else 1, iterations=1)
    assert steps == 1954
