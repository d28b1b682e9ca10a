"""Iterable sources with the habits that real ones have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from tests.loading import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator


class Dying(Stream):
    """A generator that raises at row 5, and would then look like the end of the data."""

    def __iter__(self) -> Iterator[int]:
        for row in range(self.rows):
            if row == 5:
                raise OSError("row 5 is torn")
            yield row


class Spotty(Stream):
    """An iterator that goes on after an error, and gives None now and then."""

    def __iter__(self) -> Iterator[int]:
        return Spotted(self.rows)  # type: ignore[return-value]


class Spotted:
    def __init__(self, rows: int) -> None:
        self.rows, self.at = rows, -1

    def __iter__(self) -> Spotted:
        return self

    def __next__(self) -> int | None:
        self.at += 1
        if self.at >= self.rows:
            raise StopIteration
        if self.at == 5:
            raise OSError("row 5 is torn")
        return None if self.at == 10 else self.at


class ByWorker(Stream):
    """A source that shares its rows out among the torch workers, as the manual says."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from range(first, self.rows, step)


class Drawing(Stream):
    """A source that shuffles and augments with the global generators."""

    def __iter__(self) -> Iterator[Any]:
        order = torch.randperm(self.rows).tolist()
        for row in order:
            yield row, float(torch.rand(()))


class InShards(IterableDataset[int]):
    """A source in shards of its own, which says which rows were read of it."""

    def __init__(self, sizes: list[int], first: int = 0, read: list[int] | None = None) -> None:
        self.sizes, self.first = sizes, first
        self.read: list[int] = [] if read is None else read

    @property
    def num_shards(self) -> int:
        return len(self.sizes)

    def shard(self, *, num_shards: int, index: int) -> InShards:
        start, stop = (len(self.sizes) * end // num_shards for end in (index, index + 1))
        return type(self)(self.sizes[start:stop], self.first + sum(self.sizes[:start]), self.read)

    def __iter__(self) -> Iterator[int]:
        for row in range(self.first, self.first + sum(self.sizes)):
            self.read.append(row)
            yield row


class Forgetful(InShards):
    """A source that gives every lane as many shards, and forgets the rest."""

    def shard(self, *, num_shards: int, index: int) -> InShards:
        each = len(self.sizes) // num_shards
        first = self.first + sum(self.sizes[: index * each])
        return type(self)(self.sizes[index * each : (index + 1) * each], first, self.read)


class Sized(Stream):
    """A stream that says how long it is, truly or not."""

    def __init__(self, rows: int, said: int) -> None:
        super().__init__(rows)
        self.said = said

    def __len__(self) -> int:
        return self.said


class SeededByWorker(Stream):
    """A source that takes the seed of its shuffle from its torch worker."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        generator = torch.Generator().manual_seed(0 if info is None else info.seed)
        yield from torch.randperm(self.rows, generator=generator).tolist()
