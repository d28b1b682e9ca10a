"""`DeviceMeshSampler`: the share of each global batch that is this process's own."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from twinkle.dataloader.cut import Cut, EvenGrid, GivenGrid, dropped_words
from twinkle.dataloader.owned import generators_kept, generators_of, parts_of
from twinkle.dataloader.place import mesh_of, place_of
from twinkle.dataloader.seeds import Randomness, hashed
from twinkle.dataloader.source import check_uncut
from twinkle.errors import PlanError
from twinkle.platform.checks import whole

if TYPE_CHECKING:
    from twinkle.mesh import DeviceMesh

__all__ = ["DeviceMeshSampler"]


class DeviceMeshSampler:
    """A batch sampler of this process's rows: each global batch of another batch sampler, cut by the mesh.

    All ranks of one data rank get the same rows. The last batch is yielded if it has at least `min_batch_size` rows and
    one for every data rank. `skip_samples` leaves out as many rows of the first pass; a batch that this cuts is filled
    up again with the rows behind it, so no row is lost and all later batches have their size.

    A sampler that would draw from the global generators, which differ from rank to rank, draws from the number of the
    pass; give it a `generator` to have a seed of its own, the same on all ranks. Passes are counted from 0: a training
    script calls `set_epoch(epoch)` before each, so that a restarted job goes on in the order of its epoch.

    `device_mesh=None` is the mesh of `twinkle.initialize`, or none outside any job: then batches stay whole. Refused: a
    job of several processes without a mesh, a process outside its mesh, batches with fewer rows than data ranks.

    >>> from twinkle.dataloader import DeviceMeshSampler
    >>> list(DeviceMeshSampler([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]], None, skip_samples=3))
    [[3, 4, 5, 6], [7, 8, 9, 10], [11]]
    """

    def __init__(
        self,
        batch_sampler: Iterable[Sequence[Any]],
        device_mesh: DeviceMesh | None,
        min_batch_size: int | None = None,
        skip_samples: int = 0,
    ) -> None:
        if not isinstance(batch_sampler, Iterable):
            raise PlanError(f"batch_sampler must be iterable, not a {type(batch_sampler).__name__}")
        self.batch_sampler = batch_sampler
        self.device_mesh = mesh_of(device_mesh)
        check_uncut(None, batch_sampler, place_of(self.device_mesh).shards)
        least = 0 if min_batch_size is None else whole(min_batch_size, "min_batch_size", PlanError, least=1)
        self._cut = Cut(place_of(self.device_mesh).shards, min_batch_size=least)
        self.min_batch_size = self._cut.least
        self._skip = whole(skip_samples, "skip_samples", PlanError)
        self._passes, self._chosen = 0, False
        self._generators = generators_of(batch_sampler)
        #: This process's rows of a batch, by the size of the batch.
        self._own: dict[int, slice] = {}

    @property
    def shards(self) -> int:
        """Into how many shares a batch is cut."""
        return self._cut.shards

    def set_epoch(self, epoch: int) -> None:
        """The next pass is that of an epoch, in a restarted job too; it is handed on to the batch sampler."""
        self._passes, self._chosen = whole(epoch, "epoch", PlanError), True
        for part in parts_of(self.batch_sampler):
            if callable(getattr(part, "set_epoch", None)):
                part.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[Any]]:
        """One pass over the batches; only the first one skips."""
        skip, self._skip = self._skip, 0
        self._own = {}
        if self._chosen:
            for place, generator in enumerate(self._generators):
                generator.renew(self._passes, place)
        seed, self._passes = hashed(self._passes), self._passes + 1
        return self._shares(self._drawn(seed), skip, place_of(self.device_mesh).shard)

    def _drawn(self, seed: int) -> Iterator[Any]:
        """The batches, drawn alike on all ranks."""
        sampler: Any = self.batch_sampler
        if self._cut.shards == 1:
            return iter(sampler)
        world = Randomness(seed)
        with world:
            batches = iter(sampler)
            first = list(islice(batches, 1))
        rest = batches if _draws_once(sampler) else _inside(world, batches)
        return chain(first, rest)

    def _shares(self, batches: Iterator[Any], skip: int, shard: int | None) -> Iterator[list[Any]]:
        declared = getattr(self.batch_sampler, "batch_size", None)
        nominal = declared if isinstance(declared, int) else 0
        # Rows that wait until it is known whether more come, and the sizes of the batches they are to make.
        waiting: list[Any] = []
        sizes: list[int] = []
        held, known = 0, self._own.get
        for given in batches:
            batch = given if isinstance(given, list) else list(given)
            if held and held == len(waiting):
                # The common case: one whole batch waits, and it is known now that it was not the last.
                own = known(held)
                yield self._whole(waiting, shard) if own is None else waiting[own]
                waiting = batch
                if held != len(batch):
                    sizes[0] = held = len(batch)
            elif skip >= len(batch):
                skip -= len(batch)
                nominal = nominal or len(batch)
            else:
                nominal = nominal or len(batch)
                waiting, skip = waiting + batch[skip:], 0
                sizes.append(len(batch))
                while len(waiting) > sizes[0]:
                    size = sizes.pop(0)
                    yield self._whole(waiting[:size], shard)
                    waiting = waiting[size:]
                held = sizes[0] if len(sizes) == 1 else 0
        for size in sizes:
            taken, waiting = waiting[:size], waiting[size:]
            if len(taken) == size and (waiting or size >= max(nominal, self._cut.shards)):
                yield self._whole(taken, shard)
            elif taken:
                yield from self._short(taken, shard)

    def _whole(self, batch: list[Any], shard: int | None) -> list[Any]:
        if shard is None:
            return batch
        own = self._own.get(len(batch))
        if own is None:
            rows = self._cut.whole(len(batch)).rows(shard)
            own = self._own[len(batch)] = slice(int(rows[0]), int(rows[-1]) + 1)
        return batch[own]

    def _short(self, batch: list[Any], shard: int | None) -> Iterator[list[Any]]:
        layout = self._cut.short(len(batch))
        if layout is None:
            warnings.warn(dropped_words(len(batch), self._cut), stacklevel=3)
        else:
            yield batch if shard is None else [batch[row] for row in layout.rows(shard).tolist()]

    def __len__(self) -> int:
        """How many batches the next pass yields; TypeError where the batch sampler has no length."""
        sampler: Any = self.batch_sampler
        count = len(sampler)
        from torch.utils.data import BatchSampler

        if type(sampler) is BatchSampler:
            rows = len(sampler.sampler)  # type: ignore[arg-type]
            rows = rows - rows % sampler.batch_size if sampler.drop_last else rows
            grid: EvenGrid | GivenGrid = EvenGrid(rows, sampler.batch_size)
        else:
            # Sizes are known only by looking. Nobody notices the draws that this may take.
            with Randomness(0), generators_kept(sampler):
                sizes = [len(batch) for batch in sampler]
            declared = getattr(sampler, "batch_size", None)
            nominal = declared if isinstance(declared, int) else (sizes or [0])[0]
            grid = GivenGrid(sizes, max(nominal, self._cut.shards), Cut(1))
        return grid.count(self._skip, self._cut) if count else 0


def _inside(world: Randomness, batches: Iterator[Any]) -> Iterator[Any]:
    """The batches, each asked for in a world of random numbers."""
    while True:
        with world:
            batch = list(islice(batches, 1))
        if not batch:
            return
        yield batch[0]


def _draws_once(sampler: Any) -> bool:
    """Whether a batch sampler draws nothing from the global generators behind its first batch."""
    from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
    from torch.utils.data import WeightedRandomSampler as Weighted

    inner = sampler.sampler if type(sampler) is BatchSampler else sampler
    return type(inner) in {list, tuple, range, SequentialSampler, RandomSampler, SubsetRandomSampler, Weighted}
