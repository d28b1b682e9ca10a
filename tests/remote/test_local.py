"""Local mode: the same classes in this process, and in eight real processes of torchrun over gloo."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import twinkle
from tests.remote import components
from tests.torchrun import seen_by_ranks
from twinkle import DeviceMesh, Global, Rows, Same, Sharded, remote_class, remote_function
from twinkle.errors import PlacementError, PlanError, RemoteCallError
from twinkle.remote import waiting

# A type checker does not see what the decorator adds.
Echo: Any = components.Echo
Loader: Any = components.Loader


@pytest.fixture
def alone() -> Iterator[Any]:
    twinkle.initialize("local")
    yield Echo(2)
    twinkle.shutdown()


def test_without_initialize_a_component_is_a_plain_object() -> None:
    component: Any = Echo(2)
    assert component.factor == 2
    assert component.same([1, 2]) == [1, 2]


def test_alone_the_same_declarations_hold(alone: Any) -> None:
    handle = alone.same([1, 2, 3])
    assert isinstance(handle, Sharded)
    assert handle.local == [1, 2, 3]
    assert alone.pulled(handle.select([2, 0])) == [3, 1]
    assert alone.mean_number([4.0]) == 4.0
    assert alone.by_key([1, 2])["tags"] == [["a", "b"]]
    assert alone.rows_seen(Rows([1, 2]), Same([3, 4]), more=Global([5, 6])) == [([1, 2], ([3, 4],), {"more": [5, 6]})]
    with pytest.raises(PlanError, match=r"worker 0 returned 1 rows|returned 1 rows at 'rows', expected 2"):
        alone.wrong_length([1, 2])
    with pytest.raises(ValueError, match="this shard fails"):
        alone.fails_on([1, 2], 0)
    # There is nothing to end here.
    with pytest.raises(ValueError, match="no row is zero"):
        alone.strict([0, 1])
    assert alone.strict([1, 2]) == [1, 2]


def test_alone_a_plain_list_is_given_as_it_is_and_not_copied(alone: Any) -> None:
    writer: Any = components.Writer()
    given = [{"ids": [0]}, {"ids": [1]}]
    assert writer.number(given)[1] is given[1]
    locked = [threading.Lock()]
    handle = writer.same(locked)
    assert handle.local == locked
    with pytest.raises(PlanError, match=r"a list that is handed on, or is given twice, cannot be copied: TypeError"):
        handle.gather()


def test_alone_a_mesh_of_any_size_holds_every_row_here(alone: Any) -> None:
    component: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=4))
    assert component.pulled(list(range(3))) == [0, 1, 2]
    loader: Any = Loader(8, device_mesh=DeviceMesh.from_sizes(dp_size=4))
    assert component.pulled(loader.batch(3)) == [0, 1, 2]


@remote_class()
class _Taking:
    """Takes so many seconds by a clock of its own."""

    clock = 0.0

    @remote_function(timeout=0.5)
    def takes(self, seconds: float) -> None:
        _Taking.clock += seconds


def test_alone_a_method_that_takes_too_long_is_an_error_when_it_is_done(
    alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: _Taking.clock))
    taking: Any = _Taking()
    assert taking.takes(0.4) == [None]
    with pytest.raises(RemoteCallError, match=r"_Taking.takes was not done after 0\.5 s") as late:
        taking.takes(0.6)
    assert (late.value.method, late.value.timeout) == ("_Taking.takes", 0.5)


def test_alone_every_worker_is_this_one(alone: Any) -> None:
    assert alone.everything(1, x=2) == [((1,), {"x": 2})]
    assert alone.by_collector([1, 2]) == (1, [2])


def test_group_names_are_checked_in_local_mode_too() -> None:
    twinkle.initialize("local", groups=[{"name": "actor", "ranks": 2, "device_type": "cpu"}])
    try:
        Echo(remote_group="actor")
        with pytest.raises(PlacementError, match="'sampler' is no group"):
            Echo(remote_group="sampler")
    finally:
        twinkle.shutdown()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of eight ranks saw."""
    return seen_by_ranks(8, "tests.remote.launched", tmp_path_factory.mktemp("seen"))


def test_the_reference_flow_hands_rows_from_rank_to_rank(ranks: Any) -> None:
    assert [one["rank"] for one in ranks] == list(range(8))
    for one in ranks:
        seen, moved, ids, picked, mapped = one["reference_flow"]
        assert seen == [([0, 1, 2, 3, 4], [5, 6, 7, 8, 9])[worker // 2 % 2] for worker in range(8)]
        assert moved == 5
        assert ids == list(range(10))
        assert picked == [9, 0, 0, 4]
        assert mapped == [at * 2 for at in range(10)]


def test_a_plain_list_is_each_rank_s_own_rows_if_replicas_agree(ranks: Any) -> None:
    for one in ranks:
        joined, words, cut, short, mean, by_key = one["plain_lists"]
        assert joined == [0, 1, 2, 10, 11]
        assert "ranks 0 and 1 are replicas of shard 0 and brought different ones" in words
        assert "Global" in words
        assert "handle.map" in words
        assert cut == list(range(7))
        assert "1 row over 2 data shards" in short
        assert (mean, by_key) == (2.6, 2.2)


def test_derived_handles_cross_meshes_with_other_axes(ranks: Any) -> None:
    assert all(one["balanced"] == [[9, 1, 4, 3, 8, 2, 6, 5, 7, 7, 1], True] for one in ranks)


def test_pads_are_made_where_the_rows_arrive(ranks: Any) -> None:
    labels = [[{"labels": label}] for label in ([0], [1], [-100], [-100])]
    assert all(one["padding"] == [labels, [[0], [1]]] for one in ranks)


def test_every_rank_learns_of_a_failure_on_one(ranks: Any) -> None:
    for rank, one in enumerate(ranks):
        failed, short, drifted, after = one["failures"]
        own = rank if rank in (4, 5) else 4
        assert failed == (
            f"RemoteCallError: Echo.fails_on failed on worker {own} (dp=2, tp={own % 2}; rank {own}; rows 4 to 5): "
            "ValueError: this shard fails"
        )
        assert "returned 1 rows at 'rows', expected 2" in short
        assert "ranks 0 and 1 are replicas of shard 0" in drifted
        assert after == list(range(8))


def test_execute_first_and_slice_hold_for_ranks(ranks: Any) -> None:
    lead = [None if rank % 2 else [rank // 2 + 1] for rank in range(8)]
    assert all(one["first_alone"] == [list(range(8)), [2, 4], [[rank] for rank in range(8)], lead] for one in ranks)


def test_rows_that_every_rank_has_already_become_a_handle(ranks: Any) -> None:
    mine = [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [5, 6, 7, 8], [5, 6, 7, 8], None, None, None, None]
    for rank, one in enumerate(ranks):
        local, pulled, after = one["brought"]
        assert (local, pulled) == (mine[rank], list(range(9)))
        assert after == (None if rank % 2 else [rank, rank + 1])


def test_the_mesh_of_a_launcher_is_its_world(ranks: Any) -> None:
    assert all(one["mesh"] == "True" for one in ranks)


def test_every_rank_reads_its_share_and_together_they_are_one_batch(ranks: Any) -> None:
    for rank, one in enumerate(ranks):
        share = rank // 2
        assert one["loaded"] == [
            [[2 * share, 2 * share + 1], list(range(8))],
            [[8 + share], list(range(8, 12))],
        ]


def test_handles_of_several_components_are_one_argument(ranks: Any) -> None:
    given = [0, 1, 2, 3, 4, 5, 12, 6, 6, *range(20, 28)]
    pads = [[[2]], [[3]], [[9]], [[-100]]]
    for rank, one in enumerate(ranks):
        seen, moved, joined, repeated, padded, zipped, refused = one["joined"]
        share = given[:9] if rank // 2 % 2 == 0 else given[9:]
        assert seen == [given[:9] if worker // 2 % 2 == 0 else given[9:] for worker in range(8)]
        assert moved == len(share)
        assert joined == list(range(13))
        assert repeated == [10, 10, 11, 11, 12, 12, 20, 20, 21, 21]
        assert padded == [labels for (labels,) in pads]
        assert zipped == [[5, 5], [6, 12], [7, 14]]
        assert "handles of different rows cannot be joined: list; ndarray of int64" in refused
