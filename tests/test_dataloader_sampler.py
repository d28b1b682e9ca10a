"""`DeviceMeshSampler`: each global batch cut by the mesh, skips that lose nothing, exact lengths."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from tests.loading import chunks, flat, mesh_of, rank_of, steps_of
from twinkle.dataloader import DeviceMeshSampler
from twinkle.errors import MeshError, PlanError, RankError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinkle import DeviceMesh

pytestmark = pytest.mark.filterwarnings("ignore:the last .* rows of the epoch are dropped")


def passes(mesh: DeviceMesh | None, rank: int, batches: Any, count: int = 1, **options: Any) -> list[list[list[int]]]:
    """What a rank gets in so many passes, each as long as was said."""
    with rank_of(mesh, rank):
        sampler = DeviceMeshSampler(batches, mesh, **options)
        result = []
        for _ in range(count):
            said = len(sampler)
            result.append(list(sampler))
            assert said == len(result[-1])
    return result


@given(st.integers(0, 40), st.integers(4, 9), st.integers(0, 45), st.sampled_from([None, 1, 4]), st.booleans())
def test_it_cuts_as_the_loader_does(rows: int, batch: int, skip: int, least: int | None, listed: bool) -> None:
    mesh = mesh_of(dp=4)
    batches: Any = BatchSampler(SequentialSampler(range(rows)), batch, drop_last=False)
    if listed:
        batches = list(batches)
    parts = [passes(mesh, rank, batches, min_batch_size=least, skip_samples=skip)[0] for rank in range(4)]
    start = min(skip, rows)
    naive = steps_of(mesh, range(start, rows), batch_size=batch, min_batch_size=least)
    assert [flat(step) for step in zip(*parts, strict=True)] == naive


def test_a_skip_inside_a_batch_regroups_and_does_not_end_the_epoch() -> None:
    # B38, D39: a cut batch below the minimum made the sampler return.
    batches = chunks(range(12), 4)
    assert passes(mesh_of(dp=2), 0, batches, skip_samples=3) == [[[3, 4], [7, 8]]]
    assert passes(mesh_of(dp=2), 1, batches, skip_samples=3) == [[[5, 6], [9, 10]]]
    ten = BatchSampler(SequentialSampler(range(10)), 4, drop_last=False)
    for skip, steps in ((3, 1), (5, 1), (2, 2), (4, 1)):
        assert len(passes(mesh_of(dp=4), 0, ten, skip_samples=skip)[0]) == steps
    hundred = BatchSampler(SequentialSampler(range(100)), 8, drop_last=False)
    assert passes(mesh_of(dp=4), 0, hundred, skip_samples=6)[0][:2] == [[6, 7], [14, 15]]


def test_only_the_first_pass_skips() -> None:
    # D40.
    assert passes(None, 0, chunks(range(8), 4), 3, skip_samples=4) == [
        [[4, 5, 6, 7]],
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[0, 1, 2, 3], [4, 5, 6, 7]],
    ]


def test_its_length_is_exact() -> None:
    # D50: 9 rows, batch 4, dp2 was 3 and yielded 2; a skip of 8 of 16 was 4 and yielded 2.
    nine = BatchSampler(SequentialSampler(range(9)), 4, drop_last=False)
    assert len(passes(mesh_of(dp=2), 0, nine)[0]) == 2
    sixteen = BatchSampler(SequentialSampler(range(16)), 4, drop_last=False)
    assert len(passes(mesh_of(dp=2), 0, sixteen, skip_samples=8)[0]) == 2
    dropping = BatchSampler(SequentialSampler(range(10)), 4, drop_last=True)
    assert passes(None, 0, dropping, skip_samples=3) == [[[3, 4, 5, 6], [7]]]


def test_the_minimum_holds_without_a_mesh() -> None:
    # B41.
    with pytest.warns(UserWarning, match="the last 2 rows of the epoch are dropped"):
        assert passes(None, 0, chunks(range(10), 4), min_batch_size=3) == [[[0, 1, 2, 3], [4, 5, 6, 7]]]


def test_replicas_get_the_same_rows() -> None:
    # B43.
    mesh = mesh_of(dp=2, cp=2)
    parts = [passes(mesh, rank, chunks(range(8), 4)) for rank in range(4)]
    assert parts[0] == parts[1] == [[[0, 1], [4, 5]]]
    assert parts[2] == parts[3] == [[[2, 3], [6, 7]]]


def test_torchs_loader_takes_it_as_a_batch_sampler() -> None:
    with rank_of(mesh_of(dp=2), 1):
        sampler = DeviceMeshSampler(chunks(range(8), 4), mesh_of(dp=2))
        loader: DataLoader[Any] = DataLoader(range(8), batch_sampler=sampler)  # type: ignore[arg-type]
        assert len(loader) == 2
        assert [batch.tolist() for batch in loader] == [[2, 3], [6, 7]]


def test_batches_of_several_sizes_are_each_cut_and_regrouped_by_their_own_sizes() -> None:
    sizes = [[0, 1, 2, 3], [4, 5], [6, 7, 8]]
    assert passes(mesh_of(dp=2), 0, sizes) == [[[0, 1], [4], [6, 7]]]
    assert passes(None, 0, sizes, skip_samples=1) == [[[1, 2, 3, 4], [5, 6], [7, 8]]]


def test_a_batch_without_a_length_has_none() -> None:
    class Endless:
        def __iter__(self) -> Iterator[list[int]]:
            yield [0, 1]
            yield [2, 3]

    sampler = DeviceMeshSampler(Endless(), None)
    assert list(sampler) == [[0, 1], [2, 3]]
    with pytest.raises(TypeError, match="Endless"):
        len(sampler)


def test_what_it_refuses() -> None:
    with pytest.raises(PlanError, match=r"2 rows over 4 data shards: shards \[2, 3\] would be empty"):
        passes(mesh_of(dp=4), 0, [[0, 1], [2, 3]])
    with (
        rank_of(mesh_of(dp=4), 0),
        pytest.raises(PlanError, match=r"3 rows over 4 data shards: shards \[3\] would be empty"),
    ):
        list(DeviceMeshSampler([[0, 1, 2, 3], [4, 5, 6], [7, 8, 9, 10]], mesh_of(dp=4)))
    with (
        rank_of(mesh_of(dp=8), 5),
        pytest.raises(RankError, match=r"this process is rank 5, which is not one of the 2 places of"),
    ):
        DeviceMeshSampler([[0]], mesh_of(dp=2))
    with pytest.raises(MeshError, match="this is a job of 4 processes"), rank_of(mesh_of(dp=4), 0):
        DeviceMeshSampler([[0]], None)
    with pytest.raises(PlanError, match="min_batch_size must be an integer >= 1, not 0"):
        DeviceMeshSampler([[0]], None, min_batch_size=0)
    with pytest.raises(PlanError, match="skip_samples must be an integer >= 0, not -1"):
        DeviceMeshSampler([[0]], None, skip_samples=-1)
    with pytest.raises(PlanError, match="batch_sampler must be iterable, not a int"):
        DeviceMeshSampler(3, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("own", [None, torch.Generator, random.Random])
def test_a_restarted_sampler_takes_up_the_pass_of_its_epoch(own: Any) -> None:
    def batches() -> Any:
        if own is random.Random:
            return Owning(random.Random(7))
        generator = None if own is None else torch.Generator().manual_seed(7)
        return BatchSampler(RandomSampler(range(16), generator=generator), 4, drop_last=False)

    mesh = mesh_of(dp=2)
    with rank_of(mesh, 1):
        sampler = DeviceMeshSampler(batches(), mesh)
        epochs = []
        for epoch in range(3):
            sampler.set_epoch(epoch)
            epochs.append(list(sampler))
        assert len({tuple(flat(epoch)) for epoch in epochs}) == 3
        restarted = DeviceMeshSampler(batches(), mesh, skip_samples=8)
        restarted.set_epoch(1)
        assert [list(restarted), list(restarted)] == [epochs[1][2:], epochs[2]]
        with pytest.raises(PlanError, match="epoch must be an integer >= 0, not -1"):
            restarted.set_epoch(-1)


class Owning:
    """A batch sampler with a generator of its own, which hears of epochs."""

    def __init__(self, generator: random.Random) -> None:
        self.own, self.epoch = generator, -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        rows = self.own.sample(range(16), 16)
        return iter(chunks(rows, 4))


def test_the_epoch_is_handed_on_to_the_sampler() -> None:
    batches = Owning(random.Random(1))
    DeviceMeshSampler(batches, None).set_epoch(3)
    assert batches.epoch == 3
