"""Local mode in four real processes: what travels, what comes back, what loaders give, as in one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import twinkle
from tests.remote.examples import outcome
from tests.torchrun import seen_by_ranks

#: Random calls; a seed that fails names its example.
SEEDS = 120


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of four ranks saw."""
    return seen_by_ranks(4, "tests.remote.launched_four", tmp_path_factory.mktemp("seen"), str(SEEDS))


@pytest.fixture
def alone() -> Iterator[None]:
    twinkle.initialize("local")
    yield
    twinkle.shutdown()


def test_four_ranks_and_one_process_give_the_same(ranks: Any, alone: None) -> None:
    assert [one["rank"] for one in ranks] == [0, 1, 2, 3]
    for seed in range(SEEDS):
        expected = json.loads(json.dumps(outcome(seed)))
        assert [one["laws"][seed] for one in ranks] == [expected] * 4, f"seed {seed}"


def test_tensors_keep_their_dtype_and_shape_from_rank_to_rank(ranks: Any) -> None:
    for one in ranks:
        shapes, alike, first, (shape, total, gradient), empty = one["tensors"]
        assert shapes == {
            "half": ["tensor", "torch.bfloat16", [6, 600]],
            "flags": ["tensor", "torch.bool", [6, 600]],
            "fixed": ["array", "float64", [6, 300]],
        }
        assert alike
        # The numbers of each shard begin at 0, and bfloat16 rounds them alike everywhere.
        assert first == [1200.0, 600.0, 0.0, 1200.0]
        # Two rows of 200 and two of 500, widened with zeros.
        assert (shape, total, gradient) == ([4, 500], 2.0 * (2 * 200 + 2 * 500), True)
        assert empty == ["tensor", "torch.bfloat16", [1, 600]]


def test_tensors_of_a_device_go_over_its_backend_where_every_rank_has_one(ranks: Any) -> None:
    over_backend, through_cpu = [True, True], [False, True]
    assert all(one["accelerator"] == [over_backend, through_cpu] for one in ranks)


def test_every_rank_has_the_results_of_all_workers(ranks: Any) -> None:
    for one in ranks:
        by_worker, by_function, shares, *_ = one["results"]
        assert by_worker == [0, 1]
        assert by_function == [2, [2, 1]]
        assert shares == [[6, 7], [6, 7]]
        assert one["results"][-1] == [0, 1, 2, 3]


def test_inside_a_method_this_process_is_a_worker(ranks: Any) -> None:
    outer = [[rank, rank, [[rank]]] for rank in range(4)]
    assert all(one["results"][3] == outer for one in ranks)


def test_what_fails_on_one_rank_is_raised_on_all(ranks: Any) -> None:
    for one in ranks:
        lock, failed, outside, mapped, unsent, lengths = one["results"][4:10]
        assert "Maker.lock: rank 1 cannot send its result, a lock: TypeError: cannot pickle" in lock
        assert failed == (
            "RemoteCallError: Maker.fails_on failed on worker 2 (dp=2; rank 2): ValueError: this rank fails"
        )
        assert outside == "accepted"
        assert mapped == "RemoteCallError: map failed on rank 2: ZeroDivisionError: division by zero"
        assert "reading rows: rank 0 cannot send rows of its shard: TypeError" in unsent
        assert lengths == [0, 1, 2, 3]


def test_a_plain_loop_over_a_plain_loader_gives_handles(ranks: Any) -> None:
    for rank, one in enumerate(ranks):
        shown, count, rest, wrong, steps = one["loading"]
        mine = [2 * rank, 2 * rank + 1]
        assert shown["id"] == [["tensor", "torch.int64", [2], mine], ["tensor", "torch.int64", [8]]]
        assert shown["pair"] == [["tensor", "torch.float64", [2], mine], ["tensor", "torch.float64", [8]]]
        assert shown["text"][0] == ["list", *(f"row {at}" for at in mine)]
        assert shown["more"][1] == ["tensor", "torch.int64", [8, 3]]
        assert count == 2
        assert rest == [["row 10", "row 11"]]
        assert "batch['x']['y'] of a batch has 1 rows, and this process has 2 of the batch" in wrong
        assert steps == ["dict", "dict"]


def test_ranks_outside_the_mesh_of_a_loader_have_its_handles(ranks: Any) -> None:
    for rank, one in enumerate(ranks):
        found, states, rest, count, torn, refused, everywhere, after = one["launched"]
        place = {3: 0, 1: 1}.get(rank)
        for step, (local, pulled, pair) in enumerate(found):
            start = 4 * step + 2 * (place or 0)
            assert local == (None if place is None else ["tensor", "torch.int64", [2], [start, start + 1]])
            assert pulled == pair == list(range(4 * step, 4 * step + 4))
        assert states == [[4, 0, 3], [8, 0, 3]]
        assert (rest, count) == ([[8, 9, 10, 11]], 3)
        assert ("RemoteDataLoader failed on rank 1: " in torn) == (rank != 1)
        assert "row 6 at position 6 of epoch 0 is bad (OSError: torn row)" in torn
        assert "tail must be 'keep', 'drop' or 'pad', not 'cut'" in refused
        assert everywhere[0] == [2 * rank, 2 * rank + 1]
        newer, refused_state, second, loaded, prefetch = everywhere[1]
        assert newer.startswith("PlanError: this iteration was ended by a newer one: a loader has one iteration at a")
        assert ("seed" in refused_state, second) == (True, [4, 5, 6, 7])
        assert loaded.startswith("PlanError: this iteration was ended by load_state_dict(): ")
        assert prefetch == "PlanError: prefetch must be an integer >= 1, not 0"
        assert after == [0, 1, 2, 3]


def test_a_job_that_was_shut_down_can_begin_again(ranks: Any) -> None:
    words = "RemoteCallError: reading rows: the job was shut down"
    assert all(one["again"] == [words, [1, 2, 3, 4]] for one in ranks)
