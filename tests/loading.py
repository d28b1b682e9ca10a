"""What the tests of the data loader share: this process as any rank, and what all ranks of a mesh would read."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import IterableDataset

from twinkle import DeviceMesh
from twinkle.dataloader import DataLoader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@contextmanager
def rank_of(mesh: DeviceMesh | None, rank: int) -> Iterator[None]:
    """This process is one rank of a job in which the mesh is all or a part."""
    said = {} if mesh is None else {"RANK": str(rank), "WORLD_SIZE": str(int(np.max(mesh.mesh)) + 1)}
    before = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE")}
    os.environ.update(said)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def loader_of(mesh: DeviceMesh | None, rank: int, dataset: Any, **options: Any) -> DataLoader:
    """The loader that a rank makes; rows come as plain lists."""
    with rank_of(mesh, rank):
        return DataLoader(dataset, device_mesh=mesh, **{"collate_fn": list, **options})


def epoch_of(mesh: DeviceMesh | None, rank: int, dataset: Any, state: Any = None, **options: Any) -> list[list[Any]]:
    """The batches of one rank in one epoch, from a state if there is one."""
    loader = loader_of(mesh, rank, dataset, **options)
    if state is not None:
        loader.load_state_dict(state)
    with rank_of(mesh, rank):
        return list(loader)


def leads(mesh: DeviceMesh | None) -> list[int]:
    """One rank for each data rank, in data-rank order."""
    if mesh is None:
        return [0]
    shards = mesh.data_ranks().tolist()
    return [int(mesh.rank_at(shards.index(shard))) for shard in range(mesh.data_world_size)]


def steps_of(mesh: DeviceMesh | None, dataset: Any, state: Any = None, **options: Any) -> list[list[Any]]:
    """The global batches of one epoch: step by step, the rows of all data ranks in data-rank order."""
    ranks = [epoch_of(mesh, rank, dataset, state, **options) for rank in leads(mesh)]
    assert len({len(batches) for batches in ranks}) == 1, "every rank has the same number of steps"
    return [[row for part in step for row in part] for step in zip(*ranks, strict=True)]


def state_after(mesh: DeviceMesh | None, dataset: Any, steps: int, state: Any = None, **options: Any) -> dict[str, Any]:
    """The state of rank 0 after some steps, which may go on through several epochs."""
    rank = leads(mesh)[0]
    loader = loader_of(mesh, rank, dataset, **options)
    if state is not None:
        loader.load_state_dict(state)
    with rank_of(mesh, rank):
        left = steps
        while left:
            for _ in loader:
                left -= 1
                if not left:
                    break
    return loader.state_dict()


def chunks(rows: Iterable[Any], size: int) -> list[list[Any]]:
    """The naive batches."""
    listed = list(rows)
    return [listed[start : start + size] for start in range(0, len(listed), size)]


def braided(lanes: Iterable[Iterable[Any]], each: int) -> list[Any]:
    """The naive order of a stream in lanes: as many rows of each in turn, as long as there are any."""
    left = [list(lane) for lane in lanes]
    rows: list[Any] = []
    while any(left):
        rows += [row for lane in left for row in lane[:each]]
        left = [lane[each:] for lane in left]
    return rows


def flat(lists: Iterable[Iterable[Any]]) -> list[Any]:
    """The rows of all batches."""
    return [row for rows in lists for row in rows]


class Counted:
    """Rows 0, 1, ... that remember which of them were read."""

    def __init__(self, rows: int) -> None:
        self.rows, self.read = rows, []  # type: ignore[var-annotated]

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> int:
        if not 0 <= row < self.rows:
            raise IndexError(row)
        self.read.append(row)
        return row


class Faulty:
    """Rows 0, 1, ... of which some raise and some are None."""

    def __init__(self, rows: int, raising: Iterable[int] = (), none: Iterable[int] = ()) -> None:
        self.rows, self.raising, self.none = rows, set(raising), set(none)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> int | None:
        if row in self.raising:
            raise OSError(f"row {row} is torn")
        return None if row in self.none else row


class Noisy:
    """Rows that draw from every global generator, as augmentation does."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> tuple[int, float, float, float]:
        import random

        import torch

        return row, random.random(), float(np.random.rand()), float(torch.rand(()))


class Stream(IterableDataset[int]):
    """Rows 0, 1, ... from the beginning, as a generator."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[int]:
        yield from range(self.rows)


def mesh_of(**sizes: int) -> DeviceMesh:
    """A mesh from axis sizes, as `dp=2`."""
    return DeviceMesh.from_sizes(**{f"{name}_size": size for name, size in sizes.items()})  # type: ignore[arg-type]
