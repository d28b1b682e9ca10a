"""Loaders in real processes: four ranks under torchrun with two workers each, and a job that is killed and goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pytest

from tests.loading import Noisy, braided, chunks, epoch_of, mesh_of, steps_of
from tests.sources import InShards
from tests.support import LIMIT, ROOT, clean_environment, run
from twinkle._core import permuted

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:the last .* rows of the epoch are dropped")


def torchrun(processes: int, job: str, *arguments: object) -> list[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return [*command, "-m", f"tests.jobs.{job}", *map(str, arguments)]


def environment() -> dict[str, str]:
    return clean_environment(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", PYTHONPATH=f"{ROOT / 'python'}:{ROOT}")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of four ranks saw in each scenario."""
    out = tmp_path_factory.mktemp("seen")
    run(torchrun(4, "loading_in_four", out), environment=environment())
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(4)]


def joined(seen: list[dict[str, Any]], scenario: str, epoch: int = 0) -> list[list[Any]]:
    """The global batches: the rows of all four ranks, step by step."""
    parts = [rank[scenario]["epochs"][epoch] for rank in seen]
    return [[row for part in step for row in part] for step in zip(*parts, strict=True)]


def test_a_job_without_a_mesh_is_refused(seen: list[dict[str, Any]]) -> None:
    assert all("this is a job of 4 processes" in rank["no mesh"] for rank in seen)


@pytest.mark.parametrize(("tail", "rows"), [("keep", 45), ("drop", 40), ("persistent", 45)])
def test_the_ranks_together_read_every_batch(seen: list[dict[str, Any]], tail: str, rows: int) -> None:
    for epoch in range(2):
        assert joined(seen, tail, epoch) == chunks(permuted(42, epoch, 45, 0, 45).tolist()[:rows], 10)
    assert {tuple(rank[tail]["said"]) for rank in seen} == {(-(-rows // 10),) * 2}
    assert all(rank[tail]["state"] == seen[0][tail]["state"] for rank in seen)
    assert (seen[0][tail]["state"]["epoch"], seen[0][tail]["state"]["next_row"]) == (2, 0)


def test_a_padded_batch_has_one_size_on_all_ranks(seen: list[dict[str, Any]]) -> None:
    assert [len(rank["pad"]["epochs"][0][-1]) for rank in seen] == [2, 2, 2, 2]
    assert set(joined(seen, "pad")[-1]) == set(permuted(42, 0, 45, 40, 45).tolist())


def test_replicas_read_the_same_rows_with_the_same_random_numbers(seen: list[dict[str, Any]]) -> None:
    ranks = [rank["replicas"]["epochs"] for rank in seen]
    assert ranks[0] == ranks[1] != ranks[2] == ranks[3]
    alone = epoch_of(mesh_of(dp=2, tp=2), 0, Noisy(16), batch_size=8, shuffle=True)
    assert ranks[0][0] == json.loads(json.dumps(alone))


def test_rows_go_by_position_and_not_by_rank(seen: list[dict[str, Any]]) -> None:
    assert [rank["positions"]["epochs"][0] for rank in seen] == [
        [[4, 5, 6, 7]],
        [[0, 1, 2, 3]],
        [[4, 5, 6, 7]],
        [[0, 1, 2, 3]],
    ]


def test_the_lead_decides_which_row_is_bad_and_its_peers_follow(seen: list[dict[str, Any]]) -> None:
    ranks = [rank["leads decide"] for rank in seen]
    assert ranks[0] == ranks[1]
    assert ranks[2] == ranks[3]
    (replaced,) = [entry for rank in ranks[::2] for entry in rank["state"]["replaced"]]
    assert (replaced["position"], replaced["row"], replaced["data_rank"]) == (5, 5, 1)
    assert ranks[2]["epochs"][0][0] == [4, replaced["by"], 6, 7]
    assert ranks[0]["epochs"][0] == [[0, 1, 2, 3], [8, 9, 10, 11]]


def test_a_peer_that_cannot_read_what_its_lead_could_is_refused(seen: list[dict[str, Any]]) -> None:
    words = "row 9 at position 9 of epoch 0 is bad (OSError: row 9 is torn); the lead of its shard could read it"
    told = [rank["a peer cannot follow"] for rank in seen]
    assert [words in one["words"] for one in told] == [False, True, False, False]
    # Its lead would wait for it in vain in the next batch.
    assert "replica 1 of data rank 0 could not read its batch at position 8 of epoch 0" in told[0]["words"]
    assert [len(one["batches"]) for one in told] == [1, 1, 2, 2]


def test_what_a_peer_cannot_make_of_its_rows_ends_its_lead_too(seen: list[dict[str, Any]]) -> None:
    for kind in ("rows", "a stream"):
        told = [rank[f"a peer cannot collate {kind}"] for rank in seen]
        assert [one["error"] for one in told[2:]] == ["PlanError", "KeyError"]
        assert [len(one["batches"]) for one in told[2:]] == [1, 1]
        words = "could not read" if kind == "a stream" else "replica 1 of data rank 1 could not read its batch at"
        assert words in told[2]["words"]


def test_too_many_bad_rows_end_all_replicas_of_the_shard_alike(seen: list[dict[str, Any]]) -> None:
    assert [rank["too many"]["error"] for rank in seen] == ["PlanError", "PlanError", None, None]
    assert "2 bad rows are more than max_bad=1: [1, 9]" in seen[0]["too many"]["words"]
    assert seen[0]["too many"] == seen[1]["too many"]


def test_each_rank_opens_only_its_own_shards(seen: list[dict[str, Any]]) -> None:
    # D49: every rank read the whole stream.
    assert [rank["shards"]["read"] for rank in seen] == chunks(range(24), 6)
    assert joined(seen, "shards") == [
        [0, 1, 6, 7, 12, 13, 18, 19],
        [2, 3, 8, 9, 14, 15, 20, 21],
        [4, 5, 10, 11, 16, 17, 22, 23],
    ]
    assert joined(seen, "shards by workers") == joined(seen, "shards by workers", 1) == joined(seen, "shards")


def test_ranks_with_uneven_shards_end_together(seen: list[dict[str, Any]]) -> None:
    rows = braided([range(7), range(7, 13), range(13, 18), range(18, 24)], 2)
    for tail in ("keep", "drop", "pad"):
        assert joined(seen, f"uneven shards, {tail}") == chunks(rows, 8)


def test_longer_shards_fill_the_batches_to_their_end(seen: list[dict[str, Any]]) -> None:
    # Shards of 5, 20, 0 and 20 rows, two of each in a batch: from the first batch on one rank has nothing of its own.
    rows = braided([range(5), range(5, 25), range(25, 25), range(25, 45)], 2)
    steps = chunks(rows, 8)
    for epoch in range(2):
        assert joined(seen, "very uneven shards, keep", epoch) == steps
        assert joined(seen, "very uneven shards, drop", epoch) == steps[:-1]
    # Places count what a batch of all shards would have: the third of these begins behind 6 + 6 + 5 rows.
    assert joined(seen, "very uneven shards, resumed at 24") == chunks(rows[17:], 8)
    assert joined(seen, "very uneven shards, resumed at 33") == chunks(rows[22:], 8)
    padded = joined(seen, "very uneven shards, pad")
    assert [set(step) for step in padded] == [set(step) for step in steps]
    assert {len(part) for rank in seen for part in rank["very uneven shards, pad"]["epochs"][0]} <= {1, 2}
    assert all(rank["very uneven shards, keep"]["state"]["epoch"] == 2 for rank in seen)
    ranks = [rank["very uneven shards of replicas"]["epochs"][0] for rank in seen]
    assert ranks[0] == ranks[1]
    assert ranks[2] == ranks[3]
    assert [a + b for a, b in zip(ranks[0], ranks[2], strict=True)] == [[0, 1, 9, 10], [2, 3, 4, 5], [6, 7, 8]]


def test_shards_that_the_lanes_do_not_divide_are_each_read_by_one_rank(seen: list[dict[str, Any]]) -> None:
    # Nine shards in four lanes of 2, 2, 2 and 3, four rows of each in a batch.
    sizes = [5, 3, 7, 7, 2, 9, 0, 4, 6]
    ends = list(accumulate(sizes, initial=0))
    lanes = [range(ends[first], ends[stop]) for first, stop in ((0, 2), (2, 4), (4, 6), (6, 9))]
    for epoch in range(2):
        assert joined(seen, "more shards than lanes", epoch) == chunks(braided(lanes, 4), 16)
    assert joined(seen, "more shards than lanes, read") == chunks(braided(lanes, 4), 16)
    assert [rank["more shards than lanes, read"]["read"] for rank in seen] == list(map(list, lanes))


def test_a_cursor_behind_the_end_is_refused_on_all_ranks(seen: list[dict[str, Any]]) -> None:
    words = "the cursor is at row 800 of epoch 0, but there the stream ends after 43 rows"
    assert [rank["a cursor behind the end"] for rank in seen] == [words] * 4


def test_the_replicas_of_torn_shards_follow_their_lead_to_the_end(seen: list[dict[str, Any]]) -> None:
    # Rows 5 and 6 are all that one rank has for the second batch, which has rows 2, 5, 6 and 7 of both shards.
    ranks = [rank["replicas of torn shards"]["epochs"][0] for rank in seen]
    assert ranks[0] == ranks[1] == [[0, 1], [2, 2], [8, 8]]
    assert ranks[2] == ranks[3] == [[3, 4], [7, 7], [10, 11]]


def test_the_ranks_read_apart_as_one_process_reads_all(seen: list[dict[str, Any]]) -> None:
    for tail in ("keep", "drop"):
        alone = steps_of(mesh_of(dp=4), InShards([5, 20, 0, 20]), batch_size=8, tail=tail)
        assert joined(seen, f"very uneven shards, {tail}") == alone


def test_what_one_rank_cannot_read_is_an_error_on_all(seen: list[dict[str, Any]]) -> None:
    told = [rank["one rank cannot collate a stream"] for rank in seen]
    assert [one["error"] for one in told] == ["PlanError", "PlanError", "KeyError", "PlanError"]
    assert [len(one["batches"]) for one in told] == [1] * 4
    assert "another rank could not read its part of the batch at position 8 of epoch 0" in told[0]["words"]
    for kind in ("rows", "a stream"):
        told = [rank[f"a lead cannot collate {kind}"] for rank in seen]
        assert [one["error"] for one in told[2:]] == ["KeyError", "PlanError"]
        assert "the lead of data rank 1 could not read its batch at position 8 of epoch 0" in told[3]["words"]
    told = [rank["one rank cannot collate the end of a stream"] for rank in seen]
    assert [one["error"] for one in told] == ["PlanError", "PlanError", "KeyError", "PlanError"]
    # The ninth row is the second of the second batch as it would be of all shards.
    assert "another rank could not read its part of the batch at position 9 of epoch 0" in told[0]["words"]
    assert [one["batches"] for one in told] == [[[0, 1]], [[2, 3]], [[4, 6]], [[7, 5]]]
    told = [rank["what cannot be pickled"] for rank in seen]
    assert [one["batches"] for one in told] == [[2]] * 4
    assert [one["error"] for one in told] == ["TypeError", "TypeError", "PlanError", "PlanError"]
    assert "of the stream cannot leave their worker" in told[2]["words"]
    assert [rank["what cannot be shared"]["error"] for rank in seen] == ["TypeError"] * 3 + ["PlanError"]


def test_a_stream_in_one_piece_is_cut_by_position(seen: list[dict[str, Any]]) -> None:
    assert joined(seen, "stream") == chunks(range(22), 8)
    ranks = [rank["stream of replicas"]["epochs"] for rank in seen]
    assert ranks[0] == ranks[1]
    assert ranks[2] == ranks[3]


def test_streams_that_differ_from_rank_to_rank_are_refused(seen: list[dict[str, Any]]) -> None:
    words = (
        "the ranks read different streams: at the end of epoch 0 the ranks of each data rank found [[6], [5], [4], [3]]"
    )
    assert all(words in rank["different streams"]["words"] for rank in seen)


def test_ranks_whose_loaders_are_not_alike_are_told(seen: list[dict[str, Any]]) -> None:
    for kind, field in (("seeds", "seed"), ("lengths", "n")):
        told = [rank[f"{kind} that differ"] for rank in seen]
        # Whichever rank comes first has nobody to compare with.
        (first,) = [rank for rank, one in enumerate(told) if one["error"] is None]
        said = {"seed": [0, 1, 2, 3], "n": [8, 12, 16, 20]}[field]
        for rank, one in enumerate(told):
            words = (
                f"rank {first} made this loader with {field}={said[first]}, and rank {rank} with {field}={said[rank]}: "
                "loaders over one mesh are made alike and in the same order on all of its ranks, and this is number "
            )
            assert rank == first or (one["error"], one["batches"], words in one["words"]) == ("PlanError", [], True)


def test_a_rank_that_begins_elsewhere_is_told(seen: list[dict[str, Any]]) -> None:
    told = [rank["one rank resumes"] for rank in seen]
    words = "rank 0 began to read this loader at row 8 of epoch 0, and rank {} at row 0 of epoch 0: a state is loaded"
    others = "rank {} began to read this loader at row 0 of epoch 0, and rank 0 at row 8 of epoch 0: a state is loaded"
    if told[0]:
        # Another rank was first.
        assert any(told[0][0].startswith(others.format(rank)) for rank in (1, 2, 3))
        assert told[1:] == [[]] * 3
    else:
        assert all(told[rank][0].startswith(words.format(rank)) for rank in (1, 2, 3))


def test_rows_that_print_otherwise_on_every_rank_are_the_same_rows(seen: list[dict[str, Any]]) -> None:
    assert [rank["keys"] for rank in seen] == [[[rank], [rank + 4]] for rank in range(4)]


@pytest.mark.parametrize("kind", ["a stream", "shards"])
def test_too_many_bad_rows_of_one_data_rank_are_heard_by_all(seen: list[dict[str, Any]], kind: str) -> None:
    words = [rank[f"too many bad rows of {kind}"]["words"] for rank in seen]
    assert "2 bad rows are more than max_bad=1" in words[1]
    for rank in (0, 2, 3):
        assert "another rank could not read its part of the batch" in words[rank]


def test_nobody_waits_for_a_rank_that_only_looks(seen: list[dict[str, Any]]) -> None:
    assert [rank["one rank peeks"] for rank in seen] == [[[[rank], [rank + 4]]] * 2 for rank in range(4)]


def test_a_stream_that_its_owner_split_is_not_split_again(seen: list[dict[str, Any]]) -> None:
    assert [rank["split by its owner"] for rank in seen] == [
        chunks(range(start, start + 6), 2) for start in range(0, 24, 6)
    ]


def test_a_job_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 12, "shuffle": True}
    whole = [[row for row, *_ in step] for epoch in range(2) for step in uninterrupted(epoch, options)]
    killed = subprocess.run(
        torchrun(4, "loading_until_killed", tmp_path, 2, 2, 4),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert killed.returncode != 0
    assert "SIGKILL" in killed.stderr or "exitcode: -9" in killed.stderr
    state = json.loads((tmp_path / "state.json").read_text())
    assert (state["epoch"], state["next_row"]) == (0, 36)
    run(torchrun(2, "loading_until_killed", tmp_path, 2, 1, 0), environment=environment())
    before, after = (logged(tmp_path, world) for world in (4, 2))
    # What the killed ranks did after the last saved state does not count.
    assert before[:3] + after == whole


def uninterrupted(epoch: int, options: dict[str, Any]) -> list[list[Any]]:
    """What four ranks read when nobody kills them."""
    from tests.loading import loader_of

    state = {**loader_of(mesh_of(dp=4), 0, Noisy(53), **options).state_dict(), "epoch": epoch}
    return steps_of(mesh_of(dp=4), Noisy(53), state, **options)


def logged(folder: Path, world: int) -> list[list[int]]:
    """The global batches that the ranks of a job of this size wrote down."""
    logs = [(folder / f"of {world}, {rank}.jsonl").read_text().splitlines() for rank in range(world)]
    return [[row for line in step for row in json.loads(line)["rows"]] for step in zip(*logs, strict=False)]
