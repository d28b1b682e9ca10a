"""Loaders in four real processes with two workers each; every rank writes what it saw, and the test compares."""

from __future__ import annotations

import json
import sys
import threading
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tests.loading import Faulty, Noisy, Stream, mesh_of
from tests.sources import InShards
from tests.waiting import PATIENCE
from twinkle import DeviceMesh
from twinkle.dataloader import DataLoader
from twinkle.errors import MeshError, TwinkleError

SIZES = [5, 3, 7, 7, 2, 9, 0, 4, 6]
WORKERS: dict[str, Any] = {"num_workers": 2, "collate_fn": list}


def epochs(count: int, dataset: Any, **options: Any) -> Any:
    """The batches of some epochs, the lengths that were said, and the last state."""
    loader = DataLoader(dataset, **{**WORKERS, **options})
    said, seen = [], []
    for _ in range(count):
        said.append(len(loader) if hasattr(dataset, "__len__") else None)
        seen.append(list(loader))
    return {"epochs": seen, "said": said, "state": loader.state_dict()}


def refusal_of_state(dataset: Any, state: Any, row: int, **options: Any) -> str:
    """The words that refuse a cursor when the stream is read."""
    loader = DataLoader(dataset, **{**WORKERS, **options})
    loader.load_state_dict({**state, "epoch": 0, "next_row": row})
    try:
        list(loader)
    except TwinkleError as error:
        return str(error)
    return ""


def refusal(dataset: Any, **options: Any) -> Any:
    """The class and words of the refusal that ends an epoch, after the batches before it."""
    seen: list[Any] = []
    try:
        for batch in DataLoader(dataset, **{**WORKERS, **options}):
            seen.append(batch)
    except (TwinkleError, KeyError, TypeError) as error:
        return {"batches": seen, "error": type(error).__name__, "words": str(error)}
    return {"batches": seen, "error": None, "words": ""}


def what_is_seen(rank: int) -> dict[str, Any]:
    """One entry a scenario, the same scenarios in the same order on all ranks."""
    dp, tp = mesh_of(dp=4), mesh_of(dp=2, tp=2)
    permuted_mesh = DeviceMesh([[3, 1], [0, 2]], ("dp", "cp"))
    seen: dict[str, Any] = {}
    try:
        DataLoader(range(8), batch_size=4)
    except MeshError as error:
        seen["no mesh"] = str(error)
    for tail in ("keep", "drop", "pad"):
        seen[tail] = epochs(2, range(45), batch_size=10, shuffle=True, device_mesh=dp, tail=tail)
    seen["persistent"] = epochs(2, range(45), batch_size=10, shuffle=True, device_mesh=dp, persistent_workers=True)
    seen["replicas"] = epochs(2, Noisy(16), batch_size=8, shuffle=True, device_mesh=tp)
    seen["positions"] = epochs(1, range(8), batch_size=8, device_mesh=permuted_mesh)
    # Row 5 is bad on leads only, row 9 on peers only: the leads decide.
    torn = [5] if rank % 2 == 0 else []
    seen["leads decide"] = epochs(1, Faulty(16, raising=torn), batch_size=8, device_mesh=tp, max_bad=2)
    seen["a peer cannot follow"] = refusal(
        Faulty(16, raising=[9] if rank % 2 else []), batch_size=8, device_mesh=tp, max_bad=2
    )
    seen["too many"] = refusal(Faulty(16, raising=[1, 9, 14]), batch_size=8, device_mesh=tp, max_bad=1)
    source = InShards([6, 6, 6, 6])
    seen["shards"] = {**epochs(1, source, batch_size=8, device_mesh=dp, num_workers=0), "read": source.read}
    seen["shards by workers"] = epochs(2, InShards([6, 6, 6, 6]), batch_size=8, device_mesh=dp)
    for tail in ("keep", "drop", "pad"):
        seen[f"uneven shards, {tail}"] = epochs(1, InShards([7, 6, 5, 6]), batch_size=8, device_mesh=dp, tail=tail)
        seen[f"very uneven shards, {tail}"] = epochs(
            2, InShards([5, 20, 0, 20]), batch_size=8, device_mesh=dp, tail=tail
        )
    seen["very uneven shards of replicas"] = epochs(1, InShards([9, 2]), batch_size=4, device_mesh=tp, max_bad=1)
    # Behind the third and the fifth batch: the second of these ends inside what a batch would be of all shards.
    saved = seen["very uneven shards, keep"]["state"]
    for row in (24, 33):
        whole = DataLoader(InShards([5, 20, 0, 20]), batch_size=8, device_mesh=dp, collate_fn=list)
        whole.load_state_dict({**saved, "epoch": 0, "next_row": row})
        seen[f"very uneven shards, resumed at {row}"] = {"epochs": [list(whole)]}
    # Other numbers of workers on every rank: they read ahead otherwise.
    seen["more shards than lanes"] = epochs(2, InShards(SIZES), batch_size=16, device_mesh=dp, num_workers=rank)
    source = InShards(SIZES)
    seen["more shards than lanes, read"] = {
        **epochs(1, source, batch_size=16, device_mesh=dp, num_workers=0),
        "read": source.read,
    }
    behind = refusal_of_state(InShards(SIZES), saved, 800, batch_size=8, device_mesh=dp)
    seen["a cursor behind the end"] = behind
    seen["one rank cannot collate the end of a stream"] = refusal(
        InShards([1, 2, 3, 9]), batch_size=8, device_mesh=dp, collate_fn=failing_on(rank == 2)
    )
    seen["replicas of torn shards"] = epochs(
        1, Torn([3, 9], rank), batch_size=4, device_mesh=tp, max_bad=2, num_workers=rank
    )
    seen["one rank cannot collate a stream"] = refusal(
        Stream(22), batch_size=8, device_mesh=dp, collate_fn=failing_on(rank == 2), num_workers=rank % 2
    )
    for kind, rows in (("rows", range(16)), ("a stream", Stream(16))):
        for who, failing in (("lead", 2), ("peer", 3)):
            options = {"collate_fn": failing_on(rank == failing), "num_workers": rank // 2}
            seen[f"a {who} cannot collate {kind}"] = refusal(rows, batch_size=8, device_mesh=tp, max_bad=1, **options)
    seen["what cannot be pickled"] = refusal(
        Unpickled([3, 4, 4, 4]), batch_size=8, device_mesh=dp, collate_fn=len, num_workers=rank // 2
    )
    seen["what cannot be shared"] = refusal(
        Unpickled([3, 4, 4, 0]), batch_size=8, device_mesh=dp, collate_fn=len, num_workers=0
    )
    seen["stream"] = epochs(1, Stream(22), batch_size=8, device_mesh=dp)
    seen["stream of replicas"] = epochs(1, Stream(22), batch_size=8, device_mesh=tp, max_bad=1)
    seen["different streams"] = refusal(Stream(22 - rank), batch_size=8, device_mesh=dp)
    # Rows 2 and 10, both of data rank 1.
    for kind, torn_source in (("a stream", Gaps(24, (2, 10))), ("shards", TwoBad([6, 6, 6, 6]))):
        seen[f"too many bad rows of {kind}"] = refusal(torn_source, batch_size=8, device_mesh=dp, max_bad=1)
    seen["split by its owner"] = split_by_its_owner(rank, dp)
    for name, length, options in (("seeds", 8, {"seed": rank, "shuffle": True}), ("lengths", 8 + 4 * rank, {})):
        dist.barrier()
        seen[f"{name} that differ"] = refusal(range(length), batch_size=4, device_mesh=dp, num_workers=0, **options)
    keys = [frozenset({f"a{number}", f"b{number}"}) for number in range(8)]
    seen["keys"] = list(DataLoader(keyed(keys), batch_size=4, device_mesh=dp, sampler=keys, collate_fn=list))
    seen["one rank resumes"] = told_of_start(rank, dp)
    peeked = DataLoader(range(8), batch_size=4, device_mesh=dp, collate_fn=list)
    if rank == 0:
        next(iter(peeked))
    seen["one rank peeks"] = [list(peeked), list(peeked)]
    return seen


def failing_on(here: bool) -> Any:
    """A collate function that fails from row 8 on, if here."""

    def collate(rows: list[int]) -> list[int]:
        if here and rows[0] >= 8:
            raise KeyError("no such column")
        return rows

    return collate


class Torn(InShards):
    """Shards of which rows 5 and 6 cannot be read, nor row 9 by a lead."""

    def __init__(self, sizes: list[int], rank: int, first: int = 0) -> None:
        super().__init__(sizes, first)
        self.rank = rank

    def shard(self, *, num_shards: int, index: int) -> InShards:
        part = InShards(self.sizes, self.first).shard(num_shards=num_shards, index=index)
        return Torn(part.sizes, self.rank, part.first)

    def __iter__(self) -> Any:
        bad = {5, 6} if self.rank % 2 else {5, 6, 9}
        return (None if row in bad else row for row in super().__iter__())


class TwoBad(InShards):
    """Shards of which rows 6 and 9 cannot be read."""

    def __iter__(self) -> Any:
        return (None if row in (6, 9) else row for row in super().__iter__())


class Gaps(Stream):
    """A stream with bad rows."""

    def __init__(self, rows: int, bad: tuple[int, ...]) -> None:
        super().__init__(rows)
        self.bad = bad

    def __iter__(self) -> Any:
        return (None if row in self.bad else row for row in super().__iter__())


def keyed(keys: list[Any]) -> Any:
    """A data set that is asked by these keys, each of which has its place as its row."""
    return {key: place for place, key in enumerate(keys)}


def told_of_start(rank: int, mesh: DeviceMesh) -> list[str]:
    """What is warned of where one rank alone has loaded a state."""
    loader = DataLoader(range(16), batch_size=4, device_mesh=mesh, collate_fn=list)
    if rank == 0:
        loader.skip_consumed_samples(8)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        dist.barrier()
        next(iter(loader))
    return [str(one.message) for one in told]


class Unpickled(InShards):
    """Rows that stay in the process that read them."""

    def __iter__(self) -> Any:
        return (threading.Lock() for _ in super().__iter__())


def split_by_its_owner(rank: int, mesh: DeviceMesh) -> Any:
    """A data set of Hugging Face, split over the ranks before it comes here."""
    from datasets import Dataset
    from datasets.distributed import split_dataset_by_node

    table = Dataset.from_dict({"x": list(range(24))})
    half = split_dataset_by_node(table.to_iterable_dataset(4), rank=rank, world_size=4)
    loader = DataLoader(half, batch_size=8, device_mesh=mesh, num_workers=1, collate_fn=list)
    return [[row["x"] for row in batch] for batch in loader]


def main(out: Path) -> None:
    """Runs under torchrun."""
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE))
    rank = dist.get_rank()
    seen = what_is_seen(rank)
    (out / f"{rank}.json").write_text(json.dumps(seen))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
