"""Local mode where the ranks do not do the same, in four real processes: nobody gets rows that it did not ask for."""

from __future__ import annotations

from typing import Any

import pytest

import twinkle
from tests.remote.launched_apart import Parts
from tests.torchrun import seen_by_ranks
from twinkle import DeviceMesh
from twinkle.errors import RemoteCallError
from twinkle.remote.agreement import Said, mark_of, ranks_text, words_of
from twinkle.remote.waiting import raise_told

#: What the ranks say in each case: which of them, and what they do.
CALLS = {
    "another_method": [("rank 0", "calls Part.one (component 0)"), ("ranks 1 to 3", "calls Part.other (component 0)")],
    "another_object": [("rank 0", "calls Part.one (component 0)"), ("ranks 1 to 3", "calls Part.one (component 1)")],
    "another_handle": [("ranks 0, 1, 3", "reads rows of Part.one (handle"), ("rank 2", "reads rows of Part.other (h")],
    "another_argument": [
        ("ranks 0, 1, 3", "calls Part.one (component 0): hands over as rows Part.one (handle"),
        ("rank 2", "calls Part.one (component 0): hands over as rows Part.other (handle"),
    ],
    "another_row": [
        ("ranks 0, 1, 3", "reads rows of Part.one (handle 4): row 0 of shard 0"),
        ("rank 2", "reads rows of Part.one (handle 4): row 1 of shard 3"),
    ],
    "a_mapped_one": [
        ("ranks 0, 1, 3", "reads rows of Part.one (handle 7)"),
        ("rank 2", "reads rows of Part.one (handle 8)"),
    ],
    "printed_on_one": [("rank 0", "reads rows of Part.one"), ("ranks 1 to 3", "calls Part.one (component 0)")],
    "one_call_more": [("ranks 0 to 2", "calls Part.rank (component 0)"), ("rank 3", "calls Part.one (component 0)")],
    "one_object_less": [("ranks 0 to 2", "makes Part"), ("rank 3", "calls Part.rank (component 0)")],
    "a_loader_that_fails": [
        ("ranks 0, 1, 3", "calls Part.one (component 0): hands over as rows a batch of a DataLoader (handle 2)"),
        (
            "rank 2",
            "calls Part.other (component 0): compares rows, which all ranks have after its DataLoader raised PlanError",
        ),
    ],
    "a_longer_loader": [
        ("ranks 0, 1, 3", "calls Part.rank (component 0)"),
        ("rank 2", "calls Part.one (component 0): hands over as rows a batch of a DataLoader (handle 3)"),
    ],
    "other_rows_of_an_argument": [("all ranks", "say 'calls Part.one (component 0): hands over as rows Part.one")],
    "another_split": [("all ranks", "say 'calls Part.split_here (component 0): tells its results', but of other rows")],
    "another_split_of_an_argument": [
        ("all ranks", "say 'calls Part.split_here (component 0): hands over as rows Part.one (handle")
    ],
}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of four ranks saw."""
    return seen_by_ranks(4, "tests.remote.launched_apart", tmp_path_factory.mktemp("seen"))


@pytest.mark.parametrize("case", CALLS)
def test_ranks_at_different_calls_are_told_who_does_what_and_get_no_rows(ranks: Any, case: str) -> None:
    for one in ranks:
        told, after = one["apart"][case]
        assert told.startswith("RemoteCallError: the ranks of this job are at different calls: ")
        for who, what in CALLS[case]:
            assert f"{who}: {what}" in told or f"{who} {what}" in told
        assert "every rank makes the same calls in the same order" in told
        # Whoever catches it is not let go on out of step.
        assert "call shutdown() and initialize() on every rank" in after
    assert len({one["apart"][case][0] for one in ranks}) == 1


THREADS = {
    "several_threads": "reads rows of Part.one (handle 4)",
    "several_threads_that_call": "calls Part.one (component 1)",
    "several_threads_that_make": "makes Part",
}


@pytest.mark.parametrize("case", THREADS)
def test_a_second_thread_is_refused_while_one_calls_and_ends_the_exchange(ranks: Any, case: str) -> None:
    for rank, one in enumerate(ranks):
        told, after = one["apart"][case]
        # Both threads hear of it.
        assert told.count(f"thread MainThread of rank {rank} {THREADS[case]} while another thread is in") == 2
        assert "one thread of each rank makes all calls" in told
        assert "no longer reach each other: thread MainThread" in after


def test_global_columns_are_cut_and_come_once(ranks: Any) -> None:
    for one in ranks:
        assert one["rows"]["columns"] == one["rows"]["column"] == list(range(8))
        assert one["rows"]["own columns"] == [7] * 4


def test_rows_of_the_whole_job_that_differ_are_refused_on_every_rank(ranks: Any) -> None:
    for one in ranks:
        rows = one["rows"]
        words = (
            "PlanError: Part.one: rows is the whole of the job's rows, the same on every rank, and the ranks brought"
        )
        assert f"{words} 2 different ones (ranks 0 to 2: 8 rows; rank 3: 8 rows)" in rows["differ"]
        assert f"{words} 2 different ones (ranks 0, 2, 3: 8 rows; rank 1: 7 rows)" in rows["shorter"]
        assert f"{words} 4 different ones" in rows["zipped"]
        # What cannot be pickled need not travel.
        assert rows["locks"] == "accepted"
        assert rows["after"] == list(range(8))


def test_plain_rows_that_all_shards_brought_alike_are_refused_unless_they_are_marked(ranks: Any) -> None:
    for one in ranks:
        rows = one["rows"]
        for words, count in ((rows["all alike"], 2), (rows["pulled"], 8)):
            assert f"ranks 0 and 1 brought the same {count} rows of rows to different shards" in words
            assert "wrap what all ranks have in Global" in words
        assert rows["own"] == [0, 0, 1, 1, 2, 2, 3, 3]
        assert rows["really own"] == [5] * 4
        assert rows["some alike"] == [0, 0, 1, 1]
        assert "0 rows over 4 data shards" in rows["no rows"]


def test_a_call_that_one_rank_cannot_make_is_refused_on_all_and_they_go_on(ranks: Any) -> None:
    for rank, one in enumerate(ranks):
        where = "RemoteCallError: Part.one failed on rank 1: " if rank != 1 else ""
        assert one["rows"]["refused on one"].startswith(f"{where}PlanError: Part.one: rows is a int")
        where = "RemoteCallError: Part.split_here failed on rank 2: " if rank != 2 else ""
        told = f"{where}PlanError: Part.split_here: split(8, 4) must return a Layout of 8 rows over 4 shards, not 5"
        assert one["rows"]["split on one"] == told
        assert one["rows"]["refused on all"].startswith("PlanError: Part.one: rows is a int")


def test_constructors_interrupts_and_what_cannot_be_read_are_told(ranks: Any) -> None:
    for rank, one in enumerate(ranks):
        failures = one["failures"]
        built = "RemoteCallError: Part.__init__ failed on worker 1 (dp=1; rank 1): ValueError: nothing is built here"
        assert failures["constructor"] == built
        raised, long, mapped = failures["trace"]
        assert raised.count('raise ValueError("nothing is built here")') == 1
        assert "on worker 1:\nTraceback" in raised or rank == 1
        assert mapped.count("return 1 / (row - 7)") == 1
        assert "map failed on rank 3: ZeroDivisionError" in mapped
        assert failures["long"].endswith("x ... (100012 characters) ... " + "x" * 1000)
        assert long.count('raise ValueError("x" * 100_000)') == 1
        assert len(failures["long"]) < 2_500
        assert len(long) < 22_000 or rank == 3
        told = "RemoteCallError: Part.interrupted failed on worker 2 (dp=2; rank 2): KeyboardInterrupt: "
        assert failures["interrupted"] == (f"{told}KeyboardInterrupt()" if rank != 2 else "interrupted")
        mapped = "RemoteCallError: map failed on rank 2: KeyboardInterrupt: KeyboardInterrupt()"
        assert failures["interrupted map"] == (mapped if rank != 2 else "interrupted")
        if rank:
            assert f"Part.unreadable: rank {rank} cannot unpickle what rank 0 sent: OSError" in failures["unreadable"]
        assert failures["uncopied"].startswith(
            "RemoteCallError: Part.one failed on worker 1 (dp=1; rank 1; rows 2 to 3)"
        )
        assert failures["uncopied"].endswith(
            "PlanError: a lock that is handed on, or is given twice, cannot be copied: "
            "TypeError: cannot pickle '_thread.lock' object"
        )
        assert failures["after"] == list(range(8))


def test_who_hears_of_one_failure_hears_in_a_note_of_the_others(ranks: Any) -> None:
    for rank, one in enumerate(ranks):
        (words, noted), (stopped, stopped_noted), alone, mapped, built = one["failures"]["several"]
        named = max(rank, 1)
        assert f"failed on worker {named} (dp={named}; rank {named}): ValueError: rank {named} fails" in words
        others = [f"worker {other}: ValueError: rank {other} fails" for other in (1, 2, 3) if other != named]
        assert noted == ["failed as well so far: " + "\n".join(others)]
        # A rank that was interrupted itself goes on with that.
        assert stopped == "interrupted" if rank == 2 else f"failed on worker {named} " in stopped
        assert rank == 2 or "worker 2: KeyboardInterrupt: KeyboardInterrupt()" in stopped_noted[0]
        assert alone[1] == []
        named = max(rank, 2)
        assert f"map failed on rank {named}: ZeroDivisionError" in mapped[0]
        assert mapped[1] == [
            f"failed as well so far: rank {5 - named}: ZeroDivisionError: " + mapped[0].partition("Error: ")[2]
        ]
        assert built[1][0].count("ValueError: nothing is built here") == 3


def test_words_of_others_are_bounded() -> None:
    told = [(f"failure {rank}", "") for rank in range(12)]
    with pytest.raises(RemoteCallError, match="failed on worker 0") as raised:
        raise_told("A.f", told, None, 0, lambda rank: {"worker": rank, "coordinates": None, "rank": rank})
    (note,) = raised.value.__notes__
    assert note.startswith("failed as well so far: worker 1: failure 1\nworker 2: failure 2")
    assert note.endswith("worker 8: failure 8\n... (11)")


def test_a_mesh_with_ranks_that_the_job_does_not_have_is_refused_when_a_component_is_made(ranks: Any) -> None:
    for one in ranks:
        wide, far, loader = one["meshes"]
        assert "PlacementError: Part: DeviceMesh(dp=16) has ranks 0 to 15, and this job has 4 processes" in wide
        assert "has ranks 0, 9, and this job has 4 processes, ranks 0 to 3: start 10 processes" in far
        assert "RemoteDataLoader: " in loader
        assert "DeviceMesh(dp=5) has ranks 0 to 4" in one["global mesh"]


def test_the_default_group_of_torch_is_the_user_s(ranks: Any) -> None:
    every, rows = [0, 1, 2, 3], list(range(8))
    assert all(one["groups"] == [False, 4.0, every, rows, 4.0, every, rows, every, every, every] for one in ranks)


def test_a_tensor_that_wants_a_gradient_wants_it_where_it_arrives_alone_and_launched(ranks: Any) -> None:
    assert all(one["gradients"] == [True] * 4 for one in ranks)
    twinkle.initialize("local")
    try:
        part = Parts(device_mesh=DeviceMesh.from_sizes(dp_size=4))
        assert part.wants_gradient(part.gradient([1, 2])) == [True, True]
    finally:
        twinkle.shutdown()


def test_a_mark_is_the_same_for_the_same_and_ranks_are_told_in_runs() -> None:
    assert mark_of(1, "calls A.f", (2, 3)) == mark_of(1, "calls A.f", (2, 3)) < 2**63
    assert len({mark_of(number, doing, key) for number in range(3) for doing in "ab" for key in range(3)}) == 18
    assert ranks_text([3]) == "rank 3"
    assert ranks_text([0, 1, 3, 5, 6, 7]) == "ranks 0, 1, 3, 5 to 7"
    assert ranks_text(range(0, 40, 2)).endswith("14, ... (20)")
    said = [Said(1, "", f"does {rank // 2}", "it failed" if rank == 3 else "") for rank in range(4)]
    assert words_of(said) == "ranks 0, 1: does 0; rank 2: does 1; rank 3: does 1 after it failed"
