"""Bad rows: replaced deterministically and alike on replicas, listed, limited, and never from outside the order."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import IterableDataset

from tests.loading import Faulty, chunks, epoch_of, flat, leads, loader_of, mesh_of, rank_of
from twinkle.dataloader import DataLoader
from twinkle.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore:row .* comes in its place")


def test_a_bad_row_ends_the_run_unless_some_are_allowed() -> None:
    with pytest.raises(
        PlanError, match=r"row 5 at position 5 of epoch 0 is bad \(OSError: row 5 is torn\); max_bad=0"
    ) as caught:
        epoch_of(None, 0, Faulty(8, raising=[5]), batch_size=4)
    assert (caught.value.row, caught.value.position, caught.value.epoch) == (5, 5, 0)
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(PlanError, match=r"row 2 at position 2 of epoch 0 is bad \(it is None\)"):
        epoch_of(None, 0, Faulty(8, none=[2]), batch_size=4)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_before_a_bad_row_arrive_first(workers: int) -> None:
    batches = iter(DataLoader(Faulty(12, raising=[9]), batch_size=4, num_workers=workers, collate_fn=list))
    assert [next(batches), next(batches)] == chunks(range(8), 4)
    with pytest.raises(PlanError, match="row 9 at position 9") as caught:
        next(batches)
    assert workers == 0 or "OSError: row 9 is torn" in caught.value.__notes__[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_row_is_replaced_by_a_row_of_the_same_order(workers: int) -> None:
    # D44: the same row was tried twenty times, then training stopped.
    data = Faulty(12, raising=[5], none=[6])
    loader = DataLoader(data, batch_size=4, max_bad=2, num_workers=workers, collate_fn=list)
    batches = list(loader)
    replaced = loader.state_dict()["replaced"]
    assert [(entry["epoch"], entry["position"], entry["row"]) for entry in replaced] == [(0, 5, 5), (0, 6, 6)]
    expected = list(range(12))
    for entry in replaced:
        expected[entry["position"]] = entry["by"]
    assert batches == chunks(expected, 4)
    assert not {5, 6} & set(expected)
    assert list(DataLoader(data, batch_size=4, max_bad=2, collate_fn=list)) == batches


@given(st.data())
def test_other_shards_do_not_notice(data: st.DataObject) -> None:
    rows, seed = 4 * data.draw(st.integers(2, 10)), data.draw(st.integers(0, 1000))
    bad = data.draw(st.sets(st.integers(0, rows - 1), max_size=rows // 3))
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": seed}
    mesh = mesh_of(dp=2)
    for rank in range(2):
        clean = epoch_of(mesh, rank, range(rows), **options)
        mended = epoch_of(mesh, rank, Faulty(rows, raising=bad), max_bad=rows, max_retries=rows, **options)
        for before, after in zip(clean, mended, strict=True):
            for row, now in zip(before, after, strict=True):
                assert now not in bad
                assert row in bad or now == row


def test_what_comes_instead_depends_on_no_resume_and_no_number_of_data_ranks() -> None:
    data = Faulty(24, raising=[3, 8, 20])
    options: dict[str, Any] = {"batch_size": 8, "shuffle": True, "max_bad": 9}
    alone = [sorted(step) for step in epoch_of(None, 0, data, **options)]
    parts = [epoch_of(mesh_of(dp=4), rank, data, **options) for rank in range(4)]
    assert [sorted(flat(step)) for step in zip(*parts, strict=True)] == alone
    state = {**loader_of(None, 0, data, **options).state_dict(), "next_row": 8}
    assert [sorted(step) for step in epoch_of(None, 0, data, state, **options)] == alone[1:]


def test_a_row_that_a_sampler_leaves_out_never_comes_in() -> None:
    # D43: rows of a held-out split leaked in.
    sampler = [0, 1, 2, 3]
    rows = flat(epoch_of(None, 0, Faulty(20, raising=[2]), batch_size=2, sampler=sampler, max_bad=1))
    assert len(rows) == 4
    assert set(rows) <= {0, 1, 3}
    rows = flat(epoch_of(None, 0, Faulty(20, raising=[2]), batch_sampler=[[0, 1], [2, 3]], max_bad=1))
    assert len(rows) == 4
    assert set(rows) <= {0, 1, 3}


def test_a_sampler_that_gives_four_rows_gives_four() -> None:
    assert epoch_of(None, 0, range(20), batch_size=4, sampler=range(4), max_bad=5) == [[0, 1, 2, 3]]


def test_more_bad_rows_than_allowed_end_the_run_and_loaded_ones_count() -> None:
    data = Faulty(12, raising=[1, 6, 10])
    loader = DataLoader(data, batch_size=4, max_bad=2, collate_fn=list)
    with pytest.raises(PlanError, match=r"3 bad rows are more than max_bad=2: \[1, 6, 10\]"):
        list(loader)
    early = DataLoader(data, batch_size=4, max_bad=2, collate_fn=list)
    batches = iter(early)
    next(batches), next(batches)
    again = DataLoader(data, batch_size=4, max_bad=2, collate_fn=list)
    again.load_state_dict(early.state_dict())
    with pytest.raises(PlanError, match="3 bad rows are more than max_bad=2"):
        list(again)


def test_a_bad_row_that_is_met_twice_counts_once() -> None:
    loader = DataLoader(Faulty(8, raising=[1]), batch_size=4, max_bad=1, collate_fn=list)
    next(iter(loader)), next(iter(loader))
    assert len(loader.state_dict()["replaced"]) == 1


def test_tries_are_limited() -> None:
    with pytest.raises(PlanError, match=r"row \d+ at position 0 .* the last of 2 drawn for row 0 \(max_retries=2\)"):
        epoch_of(None, 0, Faulty(50, raising=range(50)), batch_size=2, max_bad=9, max_retries=2)
    with pytest.raises(PlanError, match="there is no other row to draw"):
        epoch_of(None, 0, Faulty(1, raising=[0]), batch_size=1, max_bad=9)


def test_every_other_row_is_tried_before_giving_up() -> None:
    assert epoch_of(None, 0, Faulty(5, raising=[0, 1, 2, 4]), batch_size=5, max_bad=5) == [[3] * 5]


def test_a_pair_with_a_bad_row_is_replaced_as_a_pair() -> None:
    loader = DataLoader(Faulty(12, raising=[5]), batch_size=4, group=2, shuffle=True, max_bad=1, collate_fn=list)
    rows = [pair for batch in loader for pair in chunks(batch, 2)]
    assert all(second == first + 1 and first % 2 == 0 for first, second in rows)
    assert 4 not in flat(rows)
    assert [entry["row"] for entry in loader.state_dict()["replaced"]] == [4, 5]


def test_a_bad_row_that_is_padded_is_replaced_by_one_row() -> None:
    loader = loader_of(mesh_of(dp=2), 0, Faulty(9, raising=[8]), batch_size=4, tail="pad", max_bad=1, min_batch_size=4)
    with rank_of(mesh_of(dp=2), 0):
        last = list(loader)[-1]
    assert len(set(last)) == 1
    assert len(loader.state_dict()["replaced"]) == 1


@pytest.mark.parametrize("rows", [[0, 1, 2, 0], ["", "a", "", "b"], [[], [1], [], [2]], [np.zeros(2), np.ones(2)] * 2])
def test_only_none_is_invalid(rows: list[Any]) -> None:
    # D45: falsy rows and rows of several elements were "no valid data".
    assert len(epoch_of(None, 0, rows, batch_size=2)) == 2
    assert len(next(iter(DataLoader([torch.zeros(2), torch.ones(2)], batch_size=2)))) == 2


def test_random_numbers_do_not_depend_on_whether_a_row_had_to_be_replaced() -> None:
    class Drawing(Faulty):
        def __getitem__(self, row: int) -> Any:
            drawn = float(torch.rand(()))
            return (super().__getitem__(row), drawn)

    clean = flat(epoch_of(None, 0, Drawing(8), batch_size=4))
    mended = flat(epoch_of(None, 0, Drawing(8, raising=[0]), batch_size=4, max_bad=1))
    assert [drawn for _, drawn in mended] == [drawn for _, drawn in clean]


def test_a_row_that_fails_only_once_is_replaced_all_the_same_and_the_rest_is_read_again() -> None:
    class Flaky(Faulty):
        seen: ClassVar[Counter[int]] = Counter()

        def __getitem__(self, row: int) -> int:
            self.seen[row] += 1
            if row == 3 and self.seen[3] == 1:
                raise OSError("once")
            return row

    loader = DataLoader(Flaky(8), batch_size=8, max_bad=1, collate_fn=list)
    (batch,) = loader
    assert batch[:3] == [0, 1, 2]
    assert loader.state_dict()["replaced"][0]["row"] == 3


def test_without_a_process_group_replicas_cannot_agree_on_another_row() -> None:
    with pytest.raises(PlanError, match=r"its 2 replicas cannot agree on another: initialise torch.distributed"):
        epoch_of(mesh_of(dp=2, tp=2), 0, Faulty(8, raising=[1]), batch_size=4, max_bad=3)
    assert len(epoch_of(mesh_of(dp=2, tp=2), 0, Faulty(8), batch_size=4, max_bad=3)) == 2


def test_an_error_of_collate_is_its_own() -> None:
    def broken(rows: list[Any]) -> Any:
        raise KeyError("length")

    with pytest.raises(KeyError, match="length"):
        epoch_of(None, 0, range(4), batch_size=2, max_bad=3, collate_fn=broken)


def test_getitems_is_used_and_checked() -> None:
    class Many(Faulty):
        calls: ClassVar[list[list[int]]] = []

        def __getitems__(self, rows: list[int]) -> list[Any]:
            self.calls.append(rows)
            return [self[row] for row in rows][: 4 if rows[0] < 4 else 2]

    data = Many(8)
    with pytest.raises(PlanError, match="__getitems__ was asked for 4 rows and gave 2"):
        epoch_of(None, 0, data, batch_size=4)
    assert data.calls == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_leads_are_one_rank_for_each_data_rank() -> None:
    assert leads(mesh_of(dp=2, tp=2)) == [0, 2]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_that_live_on_replace_by_rows_of_each_epochs_own_order(context: str) -> None:
    def epochs(**workers: Any) -> list[Any]:
        sampler = torch.utils.data.RandomSampler(range(8), generator=torch.Generator().manual_seed(3))
        loader = DataLoader(
            Faulty(8, raising=[5]), batch_size=4, sampler=sampler, max_bad=9, collate_fn=list, **workers
        )
        return [list(loader) for _ in range(3)]

    assert epochs(num_workers=1, persistent_workers=True, multiprocessing_context=context) == epochs()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_a_collate_function_that_stops_an_iteration_is_an_error_and_no_end(workers: int, *, stream: bool) -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(8))

    def stopping(rows: list[int]) -> list[int]:
        return rows if rows[0] < 4 else next(iter(()))

    loader = DataLoader(Stream() if stream else range(8), batch_size=2, collate_fn=stopping, num_workers=workers)
    batches = iter(loader)
    assert [next(batches), next(batches)] == [[0, 1], [2, 3]]
    with pytest.raises(PlanError, match="batch at position 4 of epoch 0 raised StopIteration, which is no end"):
        next(batches)


def test_only_the_bad_rows_of_the_own_data_rank_count() -> None:
    # One bad row in the share of each of two data ranks, and the state of one of them loaded by both.
    mesh, data = mesh_of(dp=2), Faulty(8, none=[0, 2])
    options: dict[str, Any] = {"batch_size": 4, "max_bad": 1}
    for saver in range(2):
        loader = loader_of(mesh, saver, data, **options)
        with rank_of(mesh, saver):
            list(loader)
        state = json.loads(json.dumps(loader.state_dict()))
        assert [entry["data_rank"] for entry in state["replaced"]] == [saver]
        for rank in range(2):
            resumed = loader_of(mesh, rank, data, **options)
            resumed.load_state_dict(state)
            assert resumed.state_dict() == state
            with rank_of(mesh, rank):
                assert len(list(resumed)) == 2
            entries = resumed.state_dict()["replaced"]
            assert sorted((entry["epoch"], entry["data_rank"]) for entry in entries) == [(0, saver), (1, rank)]


def test_rows_named_by_tuples_are_the_same_rows_after_a_resume() -> None:
    class Pairs:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, row: tuple[int, int]) -> Any:
            return None if row == (0, 1) else row

    options: dict[str, Any] = {"batch_size": 2, "sampler": [(0, 0), (0, 1), (1, 0), (1, 1)], "max_bad": 1}
    loader = loader_of(None, 0, Pairs(), **options)
    with pytest.warns(UserWarning, match=r"row \(0, 1\) at position 1"):
        first = list(loader)
    state = loader.state_dict()
    assert json.loads(json.dumps(state)) == state
    assert state["replaced"][0]["row"] == [0, 1]
    again = loader_of(None, 0, Pairs(), **options)
    again.load_state_dict(json.loads(json.dumps(state)))
    assert len(list(again)) == len(first)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_warning_says_why(workers: int) -> None:
    data = Faulty(8, raising=[1], none=[6])
    with pytest.warns(UserWarning, match="comes in its place") as told:
        list(DataLoader(data, batch_size=4, max_bad=2, num_workers=workers, collate_fn=list))
    words = [str(one.message) for one in told]
    assert len(words) == 2
    assert words[0].startswith("row 1 at position 1 of epoch 0 is bad (OSError: row 1 is torn); row ")
    assert words[1].startswith("row 6 at position 6 of epoch 0 is bad (it is None); row ")
    with pytest.warns(UserWarning, match="comes in its place") as told:
        list(DataLoader(Faulty(8, raising=[1]), batch_size=4, group=2, max_bad=2, num_workers=workers))
    first, second = (str(one.message) for one in told)
    assert first.startswith("row 0 at position 0 of epoch 0 stands beside a bad one in its group; row ")
    assert second.startswith("row 1 at position 1 of epoch 0 is bad (OSError: row 1 is torn); row ")


class Spotted(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([0, None, 2, 3])


def test_the_warning_of_a_stream_says_why() -> None:
    with pytest.warns(UserWarning, match=r"row 1 at position 1 of epoch 0 is bad \(it is None\); row "):
        list(DataLoader(Spotted(), batch_size=4, max_bad=1, collate_fn=list))
    with pytest.warns(UserWarning, match="comes in its place") as told:
        list(DataLoader(Spotted(), batch_size=4, group=2, max_bad=1, collate_fn=list))
    assert str(told[0].message).startswith("row 0 at position 0 of epoch 0 stands beside a bad one in its group; row 2")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("error", [MemoryError, SystemError])
def test_an_error_that_says_nothing_of_a_row_is_raised(error: type[Exception], workers: int) -> None:
    class Failing(Faulty):
        def __getitem__(self, row: int) -> int:
            if row == 5:
                raise error("not the row's fault")
            return row

    class FailingTogether(Failing):
        def __getitems__(self, rows: list[int]) -> list[int]:
            return [self[row] for row in rows]

    for kind in (Failing, FailingTogether):
        batches = iter(DataLoader(kind(8), batch_size=4, max_bad=8, num_workers=workers, collate_fn=list))
        assert next(batches) == [0, 1, 2, 3]
        with pytest.raises(error, match="not the row's fault"):
            next(batches)


def test_a_stream_that_ran_out_of_memory_is_read_on_from_a_saved_cursor() -> None:
    class Tight(IterableDataset[int]):
        fails = True

        def __iter__(self) -> Iterator[int]:
            for row in range(12):
                if row == 6 and self.fails:
                    raise MemoryError("not now")
                yield row

    source = Tight()
    loader = DataLoader(source, batch_size=4, max_bad=1, collate_fn=list)
    with pytest.raises(MemoryError, match="not now"):
        list(loader)
    source.fails = False
    loader.load_state_dict(loader.state_dict())
    assert list(loader) == [[4, 5, 6, 7], [8, 9, 10, 11]]


def test_a_bulk_read_that_fails_where_its_rows_do_not_is_told_once() -> None:
    class Half(Faulty):
        def __getitems__(self, rows: list[int]) -> list[int]:
            raise RuntimeError("no such column")

    with pytest.warns(UserWarning, match="__getitems__ of Half failed") as told:
        assert flat(DataLoader(Half(8), batch_size=4, collate_fn=list)) == list(range(8))
    words = "__getitems__ of Half failed (RuntimeError: no such column), but each of its 4 rows can be read"
    assert [str(one.message) for one in told] == [f"{words}: they are read one by one"]


def test_a_row_for_which_none_is_drawn_says_so() -> None:
    for rows, retries, words in ((8, 0, "max_retries=0 draws no other row"), (1, 5, "there is no other row to draw")):
        loader = DataLoader(Faulty(rows, none=[0]), batch_size=1, max_bad=1, max_retries=retries)
        with pytest.raises(PlanError, match=rf"row 0 at position 0 of epoch 0 is bad \(it is None\); {words}"):
            list(loader)
