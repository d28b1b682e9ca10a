"""The epoch loop of a training script: `set_epoch`, checkpoints in the body, and a resume that repeats nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loading import Stream, chunks, epoch_of, flat, loader_of, mesh_of, rank_of, state_after
from tests.sources import InShards, Sized
from twinkle.dataloader import DataLoader
from twinkle.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def rows_of(kind: str) -> Any:
    return {"rows": range(8), "sized stream": Sized(8, 8), "stream": Stream(8)}[kind]


def trained(loader: DataLoader, first: int, last: int, checkpoint: Callable[[int, Any], None]) -> list[Any]:
    """The loop of every training script."""
    seen = []
    for epoch in range(first, last):
        loader.set_epoch(epoch)
        for batch in loader:
            seen.append(batch)
            checkpoint(epoch, loader.state_dict())
    return seen


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["rows", "sized stream", "stream"])
def test_a_run_that_resumes_after_any_step_repeats_nothing(kind: str, workers: int) -> None:
    options: dict[str, Any] = {"batch_size": 4, "collate_fn": list, "num_workers": workers}
    saved: list[tuple[int, Any]] = []
    whole = trained(DataLoader(rows_of(kind), **options), 0, 3, lambda *at: saved.append(at))
    assert len(whole) == 6
    for step, (epoch, state) in enumerate(saved, 1):
        loader = DataLoader(rows_of(kind), **options)
        loader.load_state_dict(state)
        assert trained(loader, epoch, 3, lambda *_: None) == whole[step:], (step, state)


def test_the_end_of_an_epoch_is_an_iteration_of_nothing() -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True}
    state = state_after(None, range(8), 2, **options)
    assert (state["epoch"], state["next_row"]) == (1, 0)
    loader = loader_of(None, 0, range(8), **options)
    loader.load_state_dict(state)
    for _ in range(2):
        loader.set_epoch(0)
        assert (len(loader), loader.state_dict(), loader.epoch) == (0, state, 1)
    assert list(loader) == []
    assert (len(loader), loader.state_dict()) == (2, state)
    assert list(loader) == epoch_of(None, 0, range(8), state, **options)
    assert loader.epoch == 2


def test_a_skip_to_the_end_of_an_epoch_is_its_end() -> None:
    loader = loader_of(None, 0, range(8), batch_size=4)
    loader.skip_consumed_samples(16)
    loader.set_epoch(1)
    assert (list(loader.steps()), loader.epoch) == ([], 2)
    assert list(loader) == chunks(range(8), 4)


def test_any_other_epoch_is_moved_to() -> None:
    state = state_after(None, range(8), 4, batch_size=4)
    assert (state["epoch"], state["next_row"]) == (2, 0)
    loader = loader_of(None, 0, range(8), batch_size=4)
    for epoch in (0, 2, 3):
        loader.load_state_dict(state)
        loader.set_epoch(1)
        loader.set_epoch(epoch)
        assert len(list(loader)) == 2
        assert loader.epoch == epoch + 1
    # An epoch that this loader itself has come to the end of is read again.
    loader.set_epoch(3)
    assert len(list(loader)) == 2


class Growing:
    """A batch sampler with one batch more in every epoch."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        return iter(chunks(range(4 * (self.epoch + 1)), 4))


def test_consumed_samples_are_those_of_epochs_of_any_length() -> None:
    loader = loader_of(None, 0, range(20), batch_sampler=Growing(), max_bad=1)
    whole, consumed = [], []
    for _ in range(4):
        for batch in loader:
            whole.append(batch)
            consumed.append(loader.get_state()["consumed_train_samples"])
    assert consumed == [4 * step for step in range(1, 11)]
    for step, count in enumerate(consumed, 1):
        again = loader_of(None, 0, range(20), batch_sampler=Growing())
        again.resume_from_checkpoint(count)
        assert again.consumed_train_samples == count
        seen = list(again)
        while again.epoch < 4:
            seen += list(again)
        assert seen[: 10 - step] == whole[step:]


def test_what_cannot_be_counted_is_left_out() -> None:
    loader = loader_of(None, 0, range(4), batch_sampler=Growing())
    loader.set_epoch(5000)
    assert "consumed_train_samples" not in loader.get_state()
    with pytest.raises(PlanError, match="may differ in length and 5000 are past, of which at most 1000 are counted"):
        _ = loader.consumed_train_samples
    mesh = mesh_of(dp=2)
    with rank_of(mesh, 0):
        shards = DataLoader(InShards([6, 2]), batch_size=4, device_mesh=mesh, collate_fn=list)
        batches = iter(shards)
        assert (next(batches), shards.get_state()["consumed_train_samples"]) == ([0, 1], 4)
        assert flat(batches) == [2, 3]
        assert shards.epoch == 1
    assert "consumed_train_samples" not in shards.get_state()
    with pytest.raises(PlanError, match="a stream that is read in several parts does not say how many rows its past"):
        _ = shards.consumed_train_samples


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 9))
def test_every_resume_goes_on_on_any_number_of_data_ranks(rows: int, batch: int, step: int) -> None:
    options: dict[str, Any] = {"batch_size": 2 * batch, "shuffle": True, "tail": "pad"}
    mesh = mesh_of(dp=2)

    def made(rank: int) -> DataLoader:
        return loader_of(mesh, rank, range(rows), **options)

    saved: list[tuple[int, Any]] = []
    with rank_of(mesh, 0):
        whole = trained(made(0), 0, 2, lambda *at: saved.append(at))
        epoch, state = saved[min(step, len(saved)) - 1]
        loader = made(0)
        loader.load_state_dict(state)
        assert trained(loader, epoch, 2, lambda *_: None) == whole[min(step, len(saved)) :]
