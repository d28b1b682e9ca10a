"""The epoch of a source: every worker and every lane keeps its own."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.loading import Stream, flat
from tests.waiting import PATIENCE
from twinkle.dataloader import DataLoader
from twinkle.dataloader.epochs import set_epoch

if TYPE_CHECKING:
    from collections.abc import Iterator


class Shared(Stream):
    """A source whose counter of epochs is shared, and is set by all of its workers in the same moment."""

    def __init__(self, rows: int, workers: int) -> None:
        super().__init__(rows)
        self.counter = torch.tensor(0).share_memory_()
        self.wish = torch.tensor(7).share_memory_()
        self.both = multiprocessing.get_context("fork").Barrier(workers, timeout=PATIENCE)

    def set_epoch(self, epoch: int) -> None:
        step = epoch - self.counter
        self.both.wait()
        self.counter += step

    def __iter__(self) -> Iterator[int]:
        self.both.wait()
        yield from (100 * int(self.counter) + 1000 * int(self.wish) + row for row in range(self.rows))


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_that_share_a_counter_of_epochs_do_not_hear_each_other(persistent: bool) -> None:
    source = Shared(16, 2)
    loader = DataLoader(source, batch_size=4, num_workers=2, persistent_workers=persistent, collate_fn=list)
    for epoch in range(3):
        source.wish += 1
        assert flat(loader) == [100 * epoch + 1000 * int(source.wish) + row for row in range(16)]
    assert int(source.counter) == 0


@pytest.mark.parametrize("persistent", [False, True])
def test_a_shuffled_stream_of_hugging_face_is_in_the_same_epoch_in_all_workers(persistent: bool) -> None:
    import datasets

    def rows(**options: Any) -> tuple[list[list[int]], int]:
        stream = datasets.Dataset.from_dict({"x": list(range(32))}).to_iterable_dataset().shuffle(seed=1, buffer_size=8)
        loader = DataLoader(stream, batch_size=4, **options)
        return [[row for batch in loader for row in batch["x"].tolist()] for _ in range(3)], stream.epoch

    alone, _ = rows()
    together, epoch = rows(num_workers=2, persistent_workers=persistent)
    assert together == alone
    # The counter of the loop's own copy is what the workers would share.
    assert epoch == 0


def test_only_what_an_epoch_writes_is_no_longer_shared() -> None:
    class Wrapped(Stream):
        def __init__(self) -> None:
            super().__init__(1)
            self.parts = [Inner(), Inner()]
            self.wish = torch.tensor(7).share_memory_()

        def set_epoch(self, epoch: int) -> None:
            for part in self.parts:
                part.set_epoch(epoch)

    class Inner:
        def __init__(self) -> None:
            self.counter = torch.tensor(0).share_memory_()

        def set_epoch(self, epoch: int) -> None:
            self.counter.fill_(epoch)

    source = Wrapped()
    wish, counters = source.wish, [part.counter for part in source.parts]
    set_epoch(source, 0, own=True)
    set_epoch(source, 3, own=True)
    assert source.wish is wish
    assert [int(counter) for counter in counters] == [0, 0]
    assert [int(part.counter) for part in source.parts] == [3, 3]
    # In the loop the source is the caller's, and stays as it is made.
    ours = Wrapped()
    set_epoch(ours, 3, own=False)
    assert all(part.counter.is_shared() and int(part.counter) == 3 for part in ours.parts)
