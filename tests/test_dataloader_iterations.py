"""Iterations of a loader: several at once, abandoned ones, copies of it, and orders that were cut before."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, ChainDataset, DistributedSampler, IterableDataset, RandomSampler

from tests.loading import Faulty, chunks, epoch_of, flat, leads, loader_of, mesh_of, rank_of, steps_of
from twinkle.dataloader import DataLoader, DeviceMeshSampler
from twinkle.dataloader.seeds import Randomness, sow
from twinkle.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Counting(IterableDataset[int]):
    """A stream of so many rows; its length is torch's own, which only raises."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.rows))


class NoLength:
    """Rows by index, of which nobody knows how many there are."""

    def __getitem__(self, row: int) -> int:
        return row * 10


def test_an_iteration_that_shares_its_workers_with_a_newer_one_is_ended() -> None:
    loader = DataLoader(range(16), batch_size=2, num_workers=1, persistent_workers=True, collate_fn=list)
    older = iter(loader)
    assert next(older) == [0, 1]
    newer = iter(loader)
    assert next(newer) == [0, 1]
    with pytest.raises(PlanError, match="ended by a newer one of the same loader: with persistent_workers=True"):
        next(older)
    assert list(newer) == chunks(range(2, 16), 2)
    assert list(loader) == chunks(range(16), 2)


def test_a_loaded_position_counts_until_a_batch_of_it_is_delivered() -> None:
    class Late(Faulty):
        fails = True

        def __getitem__(self, row: int) -> int:
            if self.fails:
                raise OSError("not there yet")
            return row

    data = Late(12)
    loader = DataLoader(data, batch_size=4, collate_fn=list)
    loader.load_state_dict({**loader.state_dict(), "next_row": 8})
    iter(loader)
    with pytest.raises(PlanError, match="not there yet"):
        next(iter(loader))
    assert (loader.state_dict()["next_row"], len(loader)) == (8, 1)
    data.fails = False
    assert list(loader) == [[8, 9, 10, 11]]
    assert len(list(loader)) == 3


@pytest.mark.parametrize("stream", [False, True])
def test_a_loader_is_pickled_at_any_time_without_its_iteration(stream: bool) -> None:
    loader = DataLoader(Counting(8) if stream else range(8), batch_size=2)
    batches = iter(loader)
    next(batches)
    for _ in range(2):
        copied = pickle.loads(pickle.dumps(loader))
        assert copied.state_dict() == loader.state_dict()
        assert [batch.tolist() for batch in copied] == chunks(range(8), 2)
        list(batches)


def test_a_row_that_is_bad_in_every_epoch_is_one_bad_row() -> None:
    loader = DataLoader(Faulty(8, none=[5]), batch_size=4, max_bad=1, collate_fn=list)
    with pytest.warns(UserWarning, match="row 5 at position 5 of epoch [012] is bad"):
        epochs = [flat(loader) for _ in range(3)]
    assert all(5 not in epoch and len(epoch) == 8 for epoch in epochs)
    assert [row["row"] for row in loader.state_dict()["replaced"]] == [5, 5, 5]
    spoilt = DataLoader(Faulty(8, none=[2, 5]), batch_size=4, max_bad=1, collate_fn=list)
    with (
        pytest.warns(UserWarning, match="is bad"),
        pytest.raises(PlanError, match=re.escape("2 bad rows are more than max_bad=1: [2, 5]")),
    ):
        list(spoilt)


def test_the_state_is_plain_data_whatever_the_sampler_gives() -> None:
    loader = DataLoader(Faulty(8, none=[3]), batch_size=4, sampler=np.arange(8), max_bad=1, collate_fn=list)
    with pytest.warns(UserWarning, match="row 3 at position 3"):
        list(loader)
    state = loader.state_dict()
    assert json.loads(json.dumps(state)) == state


def test_a_stream_whose_length_only_raises_has_none() -> None:
    loader = DataLoader(ChainDataset([Counting(5), Counting(4)]), batch_size=2, collate_fn=list)
    assert flat(loader) == [*range(5), *range(4)]
    with pytest.raises(TypeError, match=re.escape("has no len()")):
        len(loader)


def test_a_sampler_says_the_rows_of_data_without_a_length() -> None:
    options: dict[str, Any] = {"batch_size": 2, "collate_fn": list}
    assert list(DataLoader(NoLength(), sampler=[4, 0, 2], **options)) == [[40, 0], [20]]
    with pytest.raises(PlanError, match=r"a NoLength is read by index but has no __len__.*a sampler= can say them"):
        DataLoader(NoLength(), **options)


@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_has_no_order_that_ranks_share(kind: Any) -> None:
    with pytest.raises(PlanError, match=f"a {kind.__name__} has no order that two processes share"):
        DataLoader(kind("abc"), batch_size=2)


def test_a_sampler_that_says_it_is_too_long_is_not_read() -> None:
    class Endless(list[int]):
        def __len__(self) -> int:
            return 2**40

        def __iter__(self) -> Iterator[int]:
            raise AssertionError("read")

    with pytest.raises(PlanError, match=f"at most {2**30} indices"):
        len(DataLoader(range(4), batch_size=2, sampler=Endless()))


def distributed(rows: int, ranks: int) -> Any:
    data: Any = range(rows)
    return DistributedSampler(data, num_replicas=ranks, rank=0, shuffle=False)


def cut_twice(mesh: Any) -> list[tuple[dict[str, Any], str]]:
    halves = distributed(16, 2)
    with rank_of(mesh, 0):
        shares = DeviceMeshSampler(BatchSampler(range(16), 8, drop_last=False), mesh)
    return [
        ({"batch_size": 4, "sampler": halves}, "a DistributedSampler gives the rows of one rank of 2 already"),
        (
            {"batch_sampler": BatchSampler(halves, 4, drop_last=False)},
            "a DistributedSampler gives the rows of one rank",
        ),
        ({"batch_sampler": shares}, "a DeviceMeshSampler gives the rows of one rank of 2 already"),
    ]


def test_an_order_that_was_cut_already_is_not_cut_again() -> None:
    mesh = mesh_of(dp=2)
    for options, words in cut_twice(mesh):
        with pytest.raises(PlanError, match=words):
            loader_of(mesh, 1, range(16), **options)
    with rank_of(mesh, 1), pytest.raises(PlanError, match="hand over the whole sampler"):
        DeviceMeshSampler(BatchSampler(distributed(16, 2), 4, drop_last=False), mesh)
    alone = distributed(4, 1)
    assert steps_of(mesh, range(4), sampler=alone, batch_size=4) == [[0, 1, 2, 3]]
    # Without a mesh nothing is cut here.
    assert epoch_of(None, 0, range(8), sampler=distributed(8, 2), batch_size=4) == [[0, 2, 4, 6]]


class Megatron:
    """A batch sampler that gives the rows of one data rank, as Megatron's do."""

    def __init__(self, size: int) -> None:
        self.data_parallel_rank, self.data_parallel_size = 0, size

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0, 1, 2, 3]])


def test_a_source_that_was_cut_already_is_not_cut_again() -> None:
    from accelerate.data_loader import IterableDatasetShard

    mesh = mesh_of(dp=2)
    with pytest.raises(PlanError, match="a Megatron gives the rows of one rank of 2 already, and the mesh would cut"):
        loader_of(mesh, 0, range(16), batch_sampler=Megatron(2))
    assert steps_of(mesh, range(16), batch_sampler=Megatron(1)) == [[0, 1, 2, 3]]

    def half(ranks: int) -> Any:
        return IterableDatasetShard(Counting(16), batch_size=4, num_processes=ranks, process_index=0)

    words = "a IterableDatasetShard gives the rows of one rank of 2 already, .* hand over the whole data set"
    with pytest.raises(PlanError, match=words):
        loader_of(mesh, 0, half(2), batch_size=4)
    assert steps_of(mesh, half(1), batch_size=4) == chunks(range(16), 4)
    assert flat(epoch_of(None, 0, half(2), batch_size=4)) == [*range(4), *range(8, 12)]


def test_data_that_only_counts_its_processes_is_not_taken_for_a_part() -> None:
    class Prepared(list[int]):
        num_processes = 8

    assert steps_of(mesh_of(dp=2), Prepared(range(4)), batch_size=4) == [[0, 1, 2, 3]]


def test_the_minimum_holds_for_batches_of_any_sizes() -> None:
    batches = [[0, 1, 2], [3, 4, 5, 6, 7], [8, 9]]
    with pytest.warns(UserWarning, match="the last 2 rows of the epoch are dropped"):
        assert list(DataLoader(range(10), batch_sampler=batches, min_batch_size=3, collate_fn=list)) == batches[:2]
    skipping = DeviceMeshSampler([[0, 1, 2, 3, 4], [5]], None, min_batch_size=4, skip_samples=5)
    with pytest.warns(UserWarning, match="the last 1 rows"):
        assert (len(skipping), list(skipping)) == (0, [])


class Drawing:
    """A batch sampler that draws each batch when it is asked for, from wherever its owner says."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[list[int]]:
        return ([int(self.draw(100)) for _ in range(8)] for _ in range(4))


def random_batches(kind: str) -> Any:
    if kind == "torch":
        return BatchSampler(RandomSampler(range(32)), 8, drop_last=False)
    return Drawing({"python": random.randrange, "numpy": np.random.randint}[kind])


@pytest.mark.parametrize("kind", ["torch", "python", "numpy"])
def test_ranks_cut_one_order_though_their_global_generators_differ(kind: str) -> None:
    mesh, passes = mesh_of(dp=4), []
    for rank in leads(mesh):
        sow(rank)
        with rank_of(mesh, rank):
            sampler = DeviceMeshSampler(random_batches(kind), mesh)
            with Randomness(rank):
                passes.append([list(sampler), list(sampler)])
    first, second = ([flat(shares) for shares in zip(*(one[at] for one in passes), strict=True)] for at in (0, 1))
    assert first != second
    with Randomness(7), rank_of(mesh, 0):
        assert [batch[:2] for batch in first] == list(DeviceMeshSampler(random_batches(kind), mesh))
    if kind == "torch":
        assert sorted(flat(first)) == sorted(flat(second)) == list(range(32))


@pytest.mark.parametrize("owned", [random.Random, np.random.default_rng, np.random.RandomState, None])
def test_looking_at_the_length_draws_nothing(owned: Any) -> None:
    def sampler() -> Any:
        generator = torch.Generator() if owned is None else owned(5)

        def draw(below: int) -> int:
            if owned is None:
                return int(torch.randint(below, (), generator=generator))
            named = {random.Random: "randrange", np.random.default_rng: "integers", np.random.RandomState: "randint"}
            return int(getattr(generator, named[owned])(below))

        made = Drawing(draw)
        made.generator = generator  # type: ignore[attr-defined]
        return made

    mesh = mesh_of(dp=2)
    with rank_of(mesh, 0):
        looked, plain = DeviceMeshSampler(sampler(), mesh), DeviceMeshSampler(sampler(), mesh)
        assert len(looked) == 4
        assert list(looked) == list(plain)


def test_two_loaders_in_two_threads_leave_the_generators_as_they_were() -> None:
    class Slow:
        def __len__(self) -> int:
            return 20

        def __getitem__(self, row: int) -> float:
            threading.Event().wait(0.001)
            return random.random()

    alone = flat(DataLoader(Slow(), batch_size=2, collate_fn=list))
    before = random.getstate(), torch.get_rng_state().tolist()
    found: dict[int, list[float]] = {}

    def read(at: int) -> None:
        found[at] = flat(DataLoader(Slow(), batch_size=2, collate_fn=list))

    threads = [threading.Thread(target=read, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: alone, 1: alone}
    assert (random.getstate(), torch.get_rng_state().tolist()) == before


def test_a_process_that_is_forked_inside_a_world_has_worlds_of_its_own() -> None:
    with Randomness():
        child = os.fork()
        if child == 0:
            with Randomness(3):
                random.random()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_iteration_that_has_failed_never_looks_like_its_end() -> None:
    for options in ({}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}):
        loader = DataLoader(Faulty(8, raising=[3]), batch_size=2, collate_fn=list, **options)  # type: ignore[arg-type]
        for begin in (loader.__iter__, loader.steps):
            batches: Any = begin()
            next(batches)
            with pytest.raises(PlanError, match="row 3 at position 3 of epoch 0 is bad"):
                next(batches)
            words = "this iteration has failed (PlanError: row 3 at position 3 of epoch 0 is bad"
            for _ in range(2):
                with pytest.raises(PlanError, match=re.escape(words)):
                    next(batches)
    stream = iter(DataLoader(Counting(8), batch_size=2, collate_fn=failing))
    for words in ("no batch", "this iteration has failed (KeyError: 'no batch'); begin another", "has failed"):
        with pytest.raises((KeyError, PlanError), match=re.escape(words)):
            next(stream)


def failing(rows: list[int]) -> list[int]:
    raise KeyError("no batch")


def test_an_iteration_that_is_over_stays_over() -> None:
    batches = iter(DataLoader(range(4), batch_size=2, collate_fn=list))
    assert list(batches) == [[0, 1], [2, 3]]
    assert [next(batches, None) for _ in range(2)] == [None, None]


def test_an_iteration_that_is_closed_is_over() -> None:
    for taken in range(2):
        loader = DataLoader(range(4), batch_size=2, num_workers=1, collate_fn=list)
        batches: Any = iter(loader)
        for _ in range(taken):
            next(batches)
        batches.close()
        assert next(batches, None) is None
        assert list(loader) == [[0, 1], [2, 3]]
