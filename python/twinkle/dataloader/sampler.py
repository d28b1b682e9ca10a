"""`DeviceMeshSampler`: the share of each global batch that is this process's own."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from twinkle.dataloader.cut import Cut, EvenGrid, GivenGrid, dropped_words, nominal_size
from twinkle.dataloader.place import mesh_of, place_of
from twinkle.dataloader.seeds import Randomness
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
        least = 0 if min_batch_size is None else whole(min_batch_size, "min_batch_size", PlanError, least=1)
        self._cut = Cut(place_of(self.device_mesh).shards, min_batch_size=least)
        self.min_batch_size = self._cut.least
        self._skip = whole(skip_samples, "skip_samples", PlanError)

    def __iter__(self) -> Iterator[list[Any]]:
        """One pass over the batches; only the first one skips."""
        skip, self._skip = self._skip, 0
        shard = place_of(self.device_mesh).shard
        return self._shares(skip, shard)

    def _shares(self, skip: int, shard: int | None) -> Iterator[list[Any]]:
        waiting: list[Any] = []
        sizes: list[int] = []
        declared = getattr(self.batch_sampler, "batch_size", None)
        nominal = declared if isinstance(declared, int) else 0
        for given in chain(self.batch_sampler, [None]):
            final = given is None
            if given is not None:
                batch = list(given)
                if skip >= len(batch):
                    skip -= len(batch)
                    continue
                waiting += batch[skip:]
                skip = 0
                sizes.append(len(batch))
                nominal = nominal or len(batch)
            # One batch stays behind until it is known whether it is the last.
            while sizes and (final or len(waiting) > sizes[0]):
                size, sizes = sizes[0], sizes[1:]
                taken, waiting = waiting[:size], waiting[size:]
                if taken:
                    last = final and not waiting
                    yield from self._share(taken, shard, short=len(taken) < size or (last and size < max(nominal, self._cut.shards)))

    def _share(self, batch: list[Any], shard: int | None, *, short: bool) -> Iterator[list[Any]]:
        layout = self._cut.short(len(batch)) if short else self._cut.whole(len(batch))
        if layout is None:
            warnings.warn(dropped_words(len(batch), self._cut), stacklevel=3)
            return
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
            # Sizes are known only by looking. Nothing outside notices the draws that this may take.
            with Randomness(0):
                sizes = [len(batch) for batch in sampler]
            grid = GivenGrid(sizes, nominal_size(sizes, None), Cut(1))
        return grid.count(self._skip, self._cut) if count else 0
