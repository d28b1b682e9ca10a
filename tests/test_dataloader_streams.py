"""Iterable data: by position, by shards, with workers, resumed, and never ended by an error."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loading import (
    Faulty,
    Stream,
    braided,
    chunks,
    epoch_of,
    flat,
    leads,
    loader_of,
    mesh_of,
    rank_of,
    state_after,
    steps_of,
)
from tests.sources import ByWorker, Drawing, Dying, InShards, SeededByWorker, Sized, Spotted, Spotty
from twinkle.dataloader import DataLoader
from twinkle.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.filterwarnings("ignore:the last .* rows of the epoch are dropped"),
    pytest.mark.filterwarnings("ignore:row .* comes in its place"),
    pytest.mark.filterwarnings("ignore:the .* shards of this .* are read in"),
]


@given(st.integers(0, 30), st.integers(4, 9), st.sampled_from(["keep", "drop", "pad"]), st.integers(0, 12))
def test_a_stream_is_cut_as_rows_are(rows: int, batch: int, tail: str, skip: int) -> None:
    mesh = mesh_of(dp=4)
    options: dict[str, Any] = {"batch_size": batch, "tail": tail}
    same = steps_of(
        mesh,
        range(max(rows, skip)),
        {**loader_of(mesh, 0, range(max(rows, skip)), **options).state_dict(), "next_row": skip},
        **options,
    )
    state = {**loader_of(mesh, 0, Stream(rows), **options).state_dict(), "next_row": skip}
    if skip <= rows:
        assert steps_of(mesh, Stream(rows), state, **options) == same
    else:
        with pytest.raises(PlanError, match=f"at row {skip} of epoch 0, but there the stream ends after {rows} rows"):
            steps_of(mesh, Stream(rows), state, **options)


def test_a_cursor_behind_the_end_of_a_stream_is_refused() -> None:
    loader = DataLoader(Stream(10), batch_size=4, collate_fn=list)
    loader.resume_from_checkpoint(10)
    assert list(loader) == []
    assert list(loader) == chunks(range(10), 4)
    loader.resume_from_checkpoint(25)
    for _ in range(2):
        with pytest.raises(PlanError, match="at row 25 of epoch 0, but there the stream ends after 10 rows") as refusal:
            list(loader)
        assert refusal.value.next_row == 25


@pytest.mark.parametrize("workers", [0, 2])
def test_a_cursor_behind_the_end_of_all_shards_is_refused(workers: int) -> None:
    # Two rows of each in a batch of four: 0 1 3 4, 2 5 6, 7 8, 9 10.
    options: dict[str, Any] = {"batch_size": 4, "num_workers": workers}
    state = loader_of(mesh_of(dp=2), 0, InShards([3, 8]), **options).state_dict()
    for row, rows in ((12, [9, 10]), (14, []), (16, [])):
        assert flat(steps_of(mesh_of(dp=2), InShards([3, 8]), {**state, "next_row": row}, **options)) == rows
    for row in (15, 20):
        with pytest.raises(PlanError, match=f"at row {row} of epoch 0, but there the stream ends after 11 rows"):
            steps_of(mesh_of(dp=2), InShards([3, 8]), {**state, "next_row": row}, **options)


@pytest.mark.parametrize("source", [Stream, ByWorker, Drawing, SeededByWorker])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_stream_does_not_depend_on_the_number_of_workers(source: type[Stream], workers: int) -> None:
    # D47; and a source that cuts itself by worker is not cut twice.
    options: dict[str, Any] = {"batch_size": 4}
    alone = steps_of(mesh_of(dp=2), source(22), **options)
    assert len(flat(alone)) == 22
    assert steps_of(mesh_of(dp=2), source(22), num_workers=workers, **options) == alone
    state = state_after(mesh_of(dp=2), source(22), 3, num_workers=workers, **options)
    assert steps_of(None, source(22), state, **options) == alone[3:]


def test_the_next_epoch_of_a_stream_begins_it_anew_with_other_random_numbers() -> None:
    loader = DataLoader(Drawing(10), batch_size=5, collate_fn=list, num_workers=1, persistent_workers=True)
    first, second = list(loader), list(loader)
    assert sorted(row for row, _ in flat(first)) == sorted(row for row, _ in flat(second)) == list(range(10))
    assert first != second
    assert loader.epoch == 2
    again = DataLoader(Drawing(10), batch_size=5, collate_fn=list)
    again.set_epoch(1)
    assert list(again) == second


def test_the_minimum_holds_for_a_stream() -> None:
    # B41.
    with pytest.warns(UserWarning, match="the last 2 rows of the epoch are dropped"):
        assert epoch_of(None, 0, Stream(10), batch_size=4, min_batch_size=3) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("max_bad", [0, 9])
def test_a_dead_generator_is_an_error_and_not_an_end(workers: int, max_bad: int) -> None:
    # D48: silent end after 5 rows of 100.
    batches = iter(DataLoader(Dying(100), batch_size=2, max_bad=max_bad, num_workers=workers, collate_fn=list))
    assert [next(batches), next(batches)] == [[0, 1], [2, 3]]
    with pytest.raises(PlanError, match=r"the source died at row 5 \(OSError: row 5 is torn\)"):
        next(batches)


def test_an_iterator_that_ends_right_after_an_error_is_dead_too() -> None:
    class Rows(Spotted):
        def __next__(self) -> int:
            self.at += 1
            if self.at == 3:
                raise OSError("gone")
            if self.at > 3:
                raise StopIteration
            return self.at

    class Source(Stream):
        def __iter__(self) -> Iterator[int]:
            return Rows(9)  # type: ignore[return-value]

    with pytest.raises(PlanError, match=r"the source died at row 3 \(OSError: gone\)"):
        epoch_of(None, 0, Source(9), batch_size=2, max_bad=5)


def test_a_dead_part_of_a_chain_is_an_error_too() -> None:
    class Chained(Stream):
        def __iter__(self) -> Iterator[int]:
            return chain(Dying(9), range(9, 20))

    with pytest.raises(PlanError, match=r"the source died at row 5 \(OSError: row 5 is torn\)"):
        epoch_of(None, 0, Chained(20), batch_size=2, max_bad=5)


def test_a_mapped_source_goes_on_behind_a_bad_row() -> None:
    class Mapped(Stream):
        def __iter__(self) -> Iterator[int]:
            return map(Faulty(9, raising=[3]).__getitem__, range(9))  # type: ignore[arg-type]

    rows = epoch_of(None, 0, Mapped(9), batch_size=3, max_bad=1)
    assert rows == [[0, 1, 2], [5, 4, 5], [6, 7, 8]]


def test_bad_rows_of_a_stream_are_replaced_within_their_share() -> None:
    options: dict[str, Any] = {"batch_size": 4, "max_bad": 2}
    loaders = [loader_of(mesh_of(dp=2), rank, Spotty(16), **options) for rank in range(2)]
    got = []
    for rank, loader in enumerate(loaders):
        with rank_of(mesh_of(dp=2), rank):
            got.append(list(loader))
    assert got[0] == [[0, 1], [4, 4], [8, 9], [12, 13]]
    assert got[1] == [[2, 3], [6, 7], [11, 11], [14, 15]]
    assert [(e["position"], e["by"]) for e in loaders[0].state_dict()["replaced"]] == [(5, 4)]
    assert [(e["position"], e["by"]) for e in loaders[1].state_dict()["replaced"]] == [(10, 11)]
    with pytest.raises(PlanError, match=r"row 5 of the stream in epoch 0 is bad \(OSError: row 5 is torn\); max_bad=0"):
        epoch_of(mesh_of(dp=2), 0, Spotty(16), batch_size=4)
    assert epoch_of(mesh_of(dp=2), 1, Spotty(9), batch_size=4) == [[2, 3], [6, 7]]


def test_a_share_without_a_good_row_cannot_be_mended() -> None:
    with pytest.raises(PlanError, match=r"row 5 of the stream .* so is every row of its share"):
        epoch_of(mesh_of(dp=4), 1, Spotty(16), batch_size=4, max_bad=2)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_source_in_shards_gives_every_row_once(workers: int) -> None:
    source = InShards([6, 6, 6, 6])
    steps = steps_of(mesh_of(dp=2), source, batch_size=8, num_workers=workers)
    assert steps == [[0, 1, 6, 7, 12, 13, 18, 19], [2, 3, 8, 9, 14, 15, 20, 21], [4, 5, 10, 11, 16, 17, 22, 23]]


def test_a_source_in_shards_is_resumed_on_any_number_of_data_ranks() -> None:
    options: dict[str, Any] = {"batch_size": 8}
    whole = steps_of(mesh_of(dp=2), InShards([6] * 4), **options)
    state = state_after(mesh_of(dp=2), InShards([6] * 4), 1, **options)
    assert state["order"] == "stream of 4 lanes by 2"
    for mesh in (None, mesh_of(dp=4), mesh_of(dp=8), mesh_of(dp=3)):
        assert steps_of(mesh, InShards([6] * 4), state, **options) == whole[1:]
    natural = state_after(None, InShards([6] * 4), 1, **options)
    assert natural["order"] == "stream"
    assert steps_of(mesh_of(dp=2), InShards([6] * 4), natural, **options) == chunks(range(8, 24), 8)
    rows = braided([range(6), range(6, 12), range(12, 18), range(18, 24)], 2)
    assert steps_of(mesh_of(dp=2), InShards([6] * 4), {**state, "next_row": 4}, **options) == chunks(rows[4:], 8)
    with pytest.raises(PlanError, match="row 4 is inside a batch of 8 rows"):
        loader_of(mesh_of(dp=2), 0, InShards([6] * 4), **options).skip_consumed_samples(4)
    with pytest.raises(PlanError, match="counts in the order 'stream of 4 lanes by 2', but this loader's order is"):
        loader_of(mesh_of(dp=2), 0, InShards([6] * 2), **options).load_state_dict(state)


@given(st.lists(st.integers(0, 9), min_size=4, max_size=4), st.sampled_from(["keep", "drop", "pad"]), st.integers(0, 4))
def test_uneven_shards_lose_nothing_but_what_the_tail_drops(sizes: list[int], tail: str, skip: int) -> None:
    options: dict[str, Any] = {"batch_size": 8, "tail": tail}
    starts = [sum(sizes[:at]) for at in range(4)]
    shards = [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    rows = braided(shards, 2)
    least = {"keep": 4, "drop": 8, "pad": 1}[tail]
    expected = [step for step in chunks(rows, 8) if len(step) >= least]
    found = steps_of(mesh_of(dp=4), InShards(sizes), **options)
    assert [sorted(set(step)) for step in found] == list(map(sorted, expected))
    assert tail == "pad" or found == expected
    if len(expected) > skip:
        state = state_after(mesh_of(dp=4), InShards(sizes), skip, **options)
        for mesh in (None, mesh_of(dp=2), mesh_of(dp=4)):
            rest = steps_of(mesh, InShards(sizes), state, **options)
            # What fewer ranks keep of the end, more may drop.
            assert tail == "pad" or rest[: len(found) - skip] == found[skip:]


def test_what_short_batches_of_shards_drop_is_counted() -> None:
    with pytest.warns(UserWarning, match="the last 1 rows of the epoch are dropped"):
        assert flat(epoch_of(mesh_of(dp=4), 0, InShards([5, 1, 1, 2]), batch_size=4)) == [0, 1]


def test_a_state_of_parts_is_resumed_where_the_length_is_known() -> None:
    class Known(InShards):
        def __len__(self) -> int:
            return sum(self.sizes)

    options: dict[str, Any] = {"batch_size": 8}
    for sizes in ([6] * 4, [7, 3, 9, 1]):
        state = state_after(mesh_of(dp=2), Known(sizes), 1, **options)
        assert state["n"] is None
        whole = steps_of(mesh_of(dp=2), Known(sizes), **options)
        for ranks in (None, mesh_of(dp=1), mesh_of(dp=4)):
            assert steps_of(ranks, Known(sizes), state, **options) == whole[1:]
            loader = loader_of(ranks, 0, Known(sizes), **options)
            loader.load_state_dict(state)
            with pytest.raises(TypeError, match="how long each of its shards is shows when it is read"):
                len(loader)
        # And the other way round: what one rank saved is gone on with as one stream, which has a length.
        alone = state_after(None, Known(sizes), 1, **options)
        loader = loader_of(mesh_of(dp=2), 0, Known(sizes), **options)
        loader.load_state_dict(alone)
        assert alone["n"] == sum(sizes)
        assert len(loader) == -(-sum(sizes) // 8) - 1


def test_without_a_mesh_shards_come_one_after_the_other() -> None:
    assert epoch_of(None, 0, InShards([6, 3]), batch_size=4) == chunks(range(9), 4)


def test_a_stream_has_a_length_only_if_its_source_has() -> None:
    with pytest.raises(TypeError, match=r"a loader of a Stream has no len\(\): its source has none"):
        len(DataLoader(Stream(9), batch_size=2))
    with pytest.raises(TypeError, match="how long each of its shards is shows when it is read"):
        len(loader_of(mesh_of(dp=2), 0, InShards([4, 4]), batch_size=4))
    loader = DataLoader(Sized(9, 9), batch_size=2, collate_fn=list)
    assert len(loader) == len(list(loader)) == 5
    loader.skip_consumed_samples(4)
    assert len(loader) == len(list(loader)) == 3


@pytest.mark.parametrize(("rows", "said", "words"), [(7, 9, "ended after 7"), (12, 9, "gave 10 or more")])
def test_a_source_that_says_a_false_length_is_refused(rows: int, said: int, words: str) -> None:
    with pytest.raises(PlanError, match=f"the length of the stream is {said} rows, but in epoch 0 it {words}"):
        epoch_of(None, 0, Sized(rows, said), batch_size=2)


def test_groups_of_a_stream_are_never_torn() -> None:
    parts = [epoch_of(mesh_of(dp=2), rank, Stream(12), batch_size=6, group=2) for rank in leads(mesh_of(dp=2))]
    assert parts == [[[0, 1, 2, 3], [6, 7, 8, 9]], [[4, 5], [10, 11]]]
    with pytest.raises(PlanError, match="the stream ended inside a group: 1 rows are no multiple of 2"):
        epoch_of(None, 0, Stream(5), batch_size=4, group=2)


def test_a_plain_iterable_is_a_stream_and_an_iterator_is_refused() -> None:
    class Plain:
        def __iter__(self) -> Iterator[int]:
            return iter(range(5))

    assert epoch_of(None, 0, Plain(), batch_size=2) == [[0, 1], [2, 3], [4]]
    with pytest.raises(PlanError, match="a list_iterator can be read only once"):
        DataLoader(iter([1, 2]), batch_size=1)


@pytest.mark.parametrize("option", [{"shuffle": True}, {"sampler": [0]}])
def test_a_stream_comes_in_its_own_order(option: dict[str, Any]) -> None:
    with pytest.raises(
        PlanError,
        match=f"a Stream is a stream, which comes in its own order; leave out .{re.escape(str(list(option))[1:])}",
    ):
        DataLoader(Stream(4), batch_size=2, **option)


def test_datasets_of_hugging_face() -> None:
    import datasets

    table = datasets.Dataset.from_dict({"x": list(range(24)), "name": [f"row {i}" for i in range(24)]})
    mesh = mesh_of(dp=2)
    rows = [row["x"] for step in steps_of(mesh, table, batch_size=8, shuffle=True, num_workers=1) for row in step]
    assert sorted(rows) == list(range(24)) != rows
    batch = next(iter(DataLoader(table.with_format("torch"), batch_size=4)))
    assert batch["x"].tolist() == [0, 1, 2, 3]
    assert batch["name"] == ["row 0", "row 1", "row 2", "row 3"]

    stream = table.to_iterable_dataset(num_shards=4)
    for workers in (0, 2):
        steps = [[row["x"] for row in step] for step in steps_of(mesh, stream, batch_size=8, num_workers=workers)]
        assert steps == [[0, 1, 6, 7, 12, 13, 18, 19], [2, 3, 8, 9, 14, 15, 20, 21], [4, 5, 10, 11, 16, 17, 22, 23]]
    assert [row["x"] for row in flat(epoch_of(None, 0, stream, batch_size=8, num_workers=2))] == list(range(24))

    shuffled = table.to_iterable_dataset(num_shards=4).shuffle(seed=3, buffer_size=10)
    loader = DataLoader(shuffled, batch_size=8, collate_fn=list)
    epochs = [[row["x"] for batch in loader for row in batch] for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert [sorted(epoch) for epoch in epochs] == [list(range(24))] * 2
    # It shuffles otherwise as soon as it sees a worker.
    options: dict[str, Any] = {"batch_size": 4}
    alone = epoch_of(None, 0, shuffled, **options)
    for workers in (1, 2):
        assert epoch_of(None, 0, shuffled, num_workers=workers, **options) == alone
    state = state_after(None, shuffled, 2, **options)
    assert epoch_of(None, 0, shuffled, state, num_workers=2, **options) == alone[2:]


def test_a_source_that_its_owner_has_split_is_not_split_again() -> None:
    from datasets import Dataset
    from datasets.distributed import split_dataset_by_node

    half = split_dataset_by_node(Dataset.from_dict({"x": list(range(8))}).to_iterable_dataset(2), rank=1, world_size=2)
    with pytest.raises(PlanError, match=r"split by its owner for rank 1 of 2, but this process is data rank 0 of 2"):
        loader_of(mesh_of(dp=2), 0, half, batch_size=4)
    with pytest.raises(
        PlanError, match=r"split over 2 data ranks, which can end together only when torch.distributed is"
    ):
        epoch_of(mesh_of(dp=2), 1, half, batch_size=4)
