"""A data loader in a worker of its own: batches read ahead, handed over as shards, none through the driver."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

import pytest

from tests.remote import components
from twinkle import DeviceMesh
from twinkle.errors import PlanError, RemoteCallError
from twinkle.remote import RemoteDataLoader, traffic

pytestmark = pytest.mark.usefixtures("job")
Echo: Any = components.Echo
Loader: Any = RemoteDataLoader
MESH = DeviceMesh.from_axes({"pp": 2, "dp": 2, "tp": 2})


class Broken:
    """A data set of which one row raises."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, at: int) -> int:
        if at == 5:
            raise OSError("bad row")
        return at


class Ending:
    """A data set that ends the thread that reads it."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, at: int) -> int:
        if at == 5:
            raise SystemExit(3)
        return at


def loader(dataset: Any, **options: Any) -> Any:
    options = {"collate_fn": list, **options}
    return Loader(dataset, batch_size=4, device_mesh=MESH, remote_group="cpu2", **options)


@pytest.fixture(params=["worker", "driver"])
def place(request: pytest.FixtureRequest) -> Any:
    """Makes loaders that read in a worker, or in this process."""
    if request.param == "worker":
        return loader
    return lambda dataset, **options: Loader(dataset, **{"batch_size": 4, "collate_fn": list, **options})


@pytest.fixture(scope="module")
def actor(job: None) -> Any:
    return Echo(device_mesh=MESH, remote_group="cpu8")


def test_batches_pass_from_the_loader_to_the_workers_without_the_driver(actor: Any) -> None:
    source = loader(range(10))
    assert len(source) == 3
    traffic.reset()
    batches = list(source)
    seen = [[rows for rows, *_ in actor.rows_seen(batch)] for batch in batches[:2]]
    assert (traffic.driver_rows, traffic.moved_rows) == (0, 2 * 4 * 4)
    assert seen[0] == [[0, 1], [0, 1], [2, 3], [2, 3]] * 2
    assert [batch.layout.shards for batch in batches] == [2, 2, 2]
    assert [list(batch) for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_columns_become_a_mapping_of_handles(actor: Any) -> None:
    source = loader(range(8), collate_fn=components.columns)
    first = next(iter(source))
    assert list(first) == ["id", "square"]
    assert [rows["square"] for rows, *_ in actor.rows_seen(first)][0::2] == [[0, 1], [4, 9], [0, 1], [4, 9]]


def test_fields_of_samples_are_columns_and_what_holds_no_rows_stays(actor: Any) -> None:
    source = loader([(at, f"row {at}") for at in range(8)], collate_fn=None)
    number, text = next(iter(source))
    assert (actor.pulled(number).tolist(), list(actor.pulled(text))) == ([0, 1, 2, 3], [f"row {at}" for at in range(4)])
    mixed = next(iter(loader(range(8), collate_fn=components.mixed)))
    assert (mixed["count"], mixed["name"], list(mixed["pair"][1])) == (4, "batch", [0, 1, 2, 3])
    with pytest.raises(RemoteCallError, match=r"batch\['short'\] of a batch has 1 rows, and this process has 4 of the"):
        next(iter(loader(range(8), collate_fn=components.short)))


def test_the_state_is_that_of_the_batch_handed_out_last(actor: Any) -> None:
    source = loader(range(16), prefetch=3)
    batches = iter(source)
    assert list(next(batches)) == [0, 1, 2, 3]
    state = source.state_dict()
    other = loader(range(16))
    other.load_state_dict(state)
    assert [list(batch) for batch in other] == [list(batch) for batch in batches]


def test_epochs_follow_one_another() -> None:
    source = loader(range(8), shuffle=True)
    first, second = ([list(batch) for batch in source] for _ in range(2))
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(8))
    assert first != second


def test_what_reading_raises_is_raised_where_the_batch_is_asked_for() -> None:
    batches = iter(loader(Broken()))
    assert list(next(batches)) == [0, 1, 2, 3]
    with pytest.raises(RemoteCallError, match="bad row"):
        next(batches)


def test_without_a_group_it_reads_in_the_driver(actor: Any) -> None:
    source = Loader(range(4), batch_size=4, device_mesh=MESH, collate_fn=list)
    (batch,) = list(source)
    assert actor.pulled(batch) == [0, 1, 2, 3]


ENDED = "this iteration was ended by a newer one: a loader has one iteration at a time, make another loader"


def test_an_iteration_that_a_newer_one_has_ended_is_refused_at_once(place: Any) -> None:
    source = place(range(12))
    with pytest.raises(PlanError, match=re.escape(ENDED)):
        list(zip(source, source, strict=True))
    nested = ([list(outer), *(list(inner) for inner in source)] for outer in source)
    assert next(nested) == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    with pytest.raises(PlanError, match=re.escape(ENDED)):
        next(nested)
    assert [list(batch) for batch in source] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_loading_a_state_ends_the_iteration_that_is_going_on_unless_the_state_is_refused(place: Any) -> None:
    source = place(range(16), prefetch=1)
    batches = iter(source)
    next(batches)
    state = source.state_dict()
    with pytest.raises((PlanError, RemoteCallError), match="seed"):
        source.load_state_dict({**state, "seed": 7})
    assert list(next(batches)) == [4, 5, 6, 7]
    source.load_state_dict(state)
    with pytest.raises(PlanError, match=r"ended by load_state_dict\(\): a loader has one"):
        next(batches)
    assert (len(source), [next(iter(batch)) for batch in source]) == (3, [4, 8, 12])


def test_a_data_set_that_ends_the_reading_thread_leaves_nobody_waiting(place: Any) -> None:
    source = place(Ending())
    batches = iter(source)
    assert list(next(batches)) == [0, 1, 2, 3]
    for _ in range(2):
        with pytest.raises(RemoteCallError, match="reading a batch ended with SystemExit: 3"):
            source.next_batch()


def test_an_epoch_that_has_ended_stays_at_its_end_and_none_begun_has_no_batch(place: Any) -> None:
    source = place(range(4))
    with pytest.raises((PlanError, RemoteCallError), match=r"next_batch\(\) comes after begin\(\)"):
        source.next_batch()
    assert len(list(source)) == 1
    assert source.next_batch() is None


def test_an_iteration_that_is_abandoned_begins_its_epoch_again_whatever_was_read_ahead(place: Any) -> None:
    first, second = place(range(8), shuffle=True, prefetch=9), place(range(8), shuffle=True)
    begun = iter(first)
    early = list(next(begun))
    assert list(next(iter(first))) == early
    assert [[list(batch) for batch in first] for _ in range(2)] == [[list(batch) for batch in second] for _ in range(2)]


def test_the_length_during_an_iteration_is_that_of_the_iteration(place: Any) -> None:
    source = place(range(16), prefetch=9)
    batches = iter(source)
    next(batches)
    source.load_state_dict(source.state_dict())
    batches = iter(source)
    next(batches)
    assert (len(source), len(list(batches)), len(source)) == (3, 2, 4)


@pytest.mark.parametrize("prefetch", [0, -1, 1.5, "x", True])
def test_a_prefetch_that_is_no_number_of_batches_is_refused(place: Any, prefetch: Any) -> None:
    with pytest.raises(PlanError, match="prefetch must be an integer >= 1, not"):
        place(range(4), prefetch=prefetch)
