"""What the loader refuses, in which words, and that nothing else ever comes out of wrong input."""

from __future__ import annotations

import copy
import operator
import pickle
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loading import loader_of, mesh_of, rank_of
from twinkle import DeviceMesh
from twinkle.dataloader import DataLoader
from twinkle.errors import MeshError, PlanError, RankError, TwinkleError
from twinkle.runtime import current

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "give exactly one of batch_size (of the global batch) and batch_sampler, not neither"),
    (
        {"batch_size": 2, "batch_sampler": [[0]]},
        "give exactly one of batch_size (of the global batch) and batch_sampler, not both, batch_size=2",
    ),
    ({"batch_size": 0}, "batch_size must be an integer >= 1, not 0"),
    ({"batch_size": 2.0}, "batch_size must be an integer >= 1, not 2.0"),
    ({"batch_size": True}, "batch_size must be an integer >= 1, not True"),
    ({"batch_size": 2, "min_batch_size": 3}, "min_batch_size 3 is above batch_size 2"),
    ({"batch_size": 2, "min_batch_size": 0}, "min_batch_size must be an integer >= 1, not 0"),
    ({"batch_size": 2, "tail": "wrap"}, "tail must be 'keep', 'drop' or 'pad', not 'wrap'"),
    ({"batch_size": 2, "shuffle": 1}, "shuffle must be True or False, not 1"),
    ({"batch_size": 2, "seed": -1}, "seed must be an integer >= 0, not -1"),
    ({"batch_size": 2, "seed": 2**63}, f"seed must be at most {2**63 - 1}, not {2**63}"),
    ({"batch_size": 3, "group": 2}, "batch_size 3 is no multiple of group=2"),
    ({"batch_size": 6, "group": 3}, "the data set has 8 rows, which are no multiple of group=3"),
    ({"batch_size": 6, "group": 3, "sampler": [0, 1]}, "the sampler gives 2 rows, which are no multiple of group=3"),
    ({"batch_size": 2, "max_bad": -1}, "max_bad must be an integer >= 0, not -1"),
    ({"batch_size": 2, "max_retries": "x"}, "max_retries must be an integer >= 0, not 'x'"),
    ({"batch_size": 2, "shuffle": True, "sampler": [0]}, "['shuffle', 'sampler'] each say the order of the rows"),
    ({"batch_sampler": [[0]], "shuffle": True}, "['shuffle', 'batch_sampler'] each say the order of the rows"),
    ({"batch_size": 2, "sampler": 3}, "a sampler must be iterable, not a int"),
    ({"batch_size": 2, "sampler": iter([0])}, "a list_iterator can be read only once; give a sampler whose __iter__"),
    ({"batch_sampler": [[0, 1], 2]}, "a batch sampler gives lists of indices; its batch 1 is 2"),
    ({"batch_size": 2, "drop_last": True}, "drop_last= is not accepted: say tail='drop'"),
    ({"batch_size": 2, "generator": None}, "generator= is not accepted: the order comes from seed= and the epoch"),
    ({"batch_size": 2, "in_order": False}, "in_order= is not accepted: batches always come in order"),
    ({"batch_size": 2, "num_worker": 2}, "a DataLoader has no keyword 'num_worker'; of torch's it takes ["),
    ({"batch_size": 2, "num_workers": -1}, "num_workers must be an integer >= 0, not -1"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
def test_options_are_refused_in_these_words(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=re.escape(words)):
        iter(DataLoader(range(8), **options))


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (3, "dataset must have __getitem__ and __len__, or __iter__; 3 (int) has neither"),
        (None, "dataset must have __getitem__ and __len__, or __iter__; None (NoneType) has neither"),
        ((row for row in range(3)), "a generator can be read only once"),
    ],
)
def test_what_is_no_data_set_is_refused(dataset: Any, words: str) -> None:
    with pytest.raises(PlanError, match=re.escape(words)):
        DataLoader(dataset, batch_size=2)


def test_arguments_by_position_are_refused() -> None:
    with pytest.raises(PlanError, match="only the data set is given by position; 32 is perhaps batch_size=, which is"):
        DataLoader(range(8), 32)  # type: ignore[arg-type]


def test_a_stream_of_ready_batches_is_told_how() -> None:
    ready = Unsized(TypeError, stream=True)
    with pytest.raises(PlanError, match=r"not neither; of a stream of ready batches, batch_size is how many"):
        DataLoader(ready, batch_size=None)
    assert list(DataLoader(ready, batch_size=1, collate_fn=operator.itemgetter(0))) == list(range(6))


def test_fewer_rows_than_data_ranks_are_refused_at_once() -> None:
    words = (
        "batch_size=2 is the size of the global batch, of which each of the mesh's 4 data ranks needs a row: it must"
    )
    with pytest.raises(PlanError, match=f"{words} be at least 4"):
        loader_of(mesh_of(dp=4), 0, range(8), batch_size=2)
    with pytest.raises(PlanError, match=r"4 data ranks needs a group of 2 rows: it must be at least 8"):
        loader_of(mesh_of(dp=4), 0, range(8), batch_size=4, group=2)
    loader = loader_of(mesh_of(dp=2), 0, range(8), batch_sampler=[[0, 1], [2], [3, 4]])
    words = "batch 1 of the batch sampler has 1 rows; over 2 data ranks in groups of 1 a batch"
    with rank_of(mesh_of(dp=2), 0), pytest.raises(PlanError, match=words):
        iter(loader)


def test_a_process_outside_the_mesh_is_refused() -> None:
    # D55, B14, B15: it got the rows of shard 0.
    mesh = DeviceMesh([4, 5, 6, 7])
    with (
        rank_of(mesh, 1),
        pytest.raises(RankError, match="this process is rank 1, which is not one of the 4 places of"),
    ):
        DataLoader(range(8), batch_size=4, device_mesh=mesh)
    with pytest.raises(RankError, match="this process is no rank of any job"):
        DataLoader(range(8), batch_size=4, device_mesh=mesh)


def test_a_job_without_a_mesh_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(
        MeshError, match=r"this is a job of 4 processes \(WORLD_SIZE\) and the loader has no device_mesh"
    ):
        DataLoader(range(8), batch_size=4)
    with pytest.raises(MeshError, match=r"device_mesh must be a twinkle.DeviceMesh or None, not a str"):
        DataLoader(range(8), batch_size=4, device_mesh="dp4")  # type: ignore[arg-type]


def test_a_mesh_that_is_a_view_cuts_no_rows() -> None:
    with rank_of(mesh_of(dp=4), 0), pytest.raises(TwinkleError, match="split"):
        DataLoader(range(8), batch_size=4, device_mesh=mesh_of(dp=2, tp=2).flatten(("dp", "tp"), "all"))


def test_the_mesh_of_initialize_is_used_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    # D56: a mesh must not be dropped.
    monkeypatch.setattr(current, "device_mesh", mesh_of(dp=2))
    with rank_of(mesh_of(dp=2), 1):
        assert list(DataLoader(range(4), batch_size=4, collate_fn=list)) == [[2, 3]]


@pytest.mark.parametrize("component", [None, mesh_of(dp=1)])
def test_a_driver_and_a_component_of_one_worker_get_whole_batches(
    monkeypatch: pytest.MonkeyPatch, component: DeviceMesh | None
) -> None:
    monkeypatch.setattr(current, "positions", () if component is None else (0,))
    monkeypatch.setattr(current, "positions_mesh", component)
    loader = DataLoader(range(10), batch_size=8, device_mesh=mesh_of(dp=4), tail="pad", collate_fn=list)
    steps = list(loader.steps())
    assert [step.batch for step in steps] == [list(range(8)), [8, 9]]
    assert [step.shard for step in steps] == [None, None]
    assert [steps[1].layout.take(steps[1].batch, shard) for shard in range(4)] == [[8], [9], [8], [9]]
    with pytest.warns(UserWarning, match="the last 2 rows of the epoch are dropped on all ranks: a batch needs 4 rows"):
        assert len(list(DataLoader(range(10), batch_size=8, device_mesh=mesh_of(dp=4)))) == 1


def test_a_worker_of_a_component_has_its_own_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = mesh_of(dp=4)
    monkeypatch.setattr(current, "positions", (2,))
    monkeypatch.setattr(current, "positions_mesh", mesh)
    assert list(DataLoader(range(8), batch_size=8, collate_fn=list)) == [[4, 5]]


def test_a_loader_is_read_where_it_was_made() -> None:
    loader = loader_of(mesh_of(dp=2), 0, range(8), batch_size=4)
    with (
        rank_of(mesh_of(dp=2), 1),
        pytest.raises(PlanError, match="made for data rank 0, but this process is data rank 1"),
    ):
        iter(loader)


STATES: list[tuple[dict[str, Any], str]] = [
    ({"n": 9}, "the state counts 9 rows, but this data set has 8"),
    ({"seed": 7}, "the state was saved with seed 7, this loader has seed 42; give seed=7 to go on"),
    ({"order": "sequential"}, "the state counts in the order 'sequential', but this loader's order is 'permuted'"),
    ({"v": 2}, "this state is of version 2; version 1 is understood"),
    ({"next_row": 9}, "next_row 9 of the state is past its 8 rows"),
    ({"next_row": -1}, "next_row of the state must be an integer >= 0, not -1"),
    ({"epoch": "x"}, "epoch of the state must be an integer >= 0, not 'x'"),
    ({"replaced": [3]}, "replaced of the state is no list of replaced rows: [3]"),
    (
        {"replaced": [{"epoch": 0, "data_rank": 0, "position": [1], "row": 1, "by": 2}]},
        "position of a replaced row of the state must be an integer >= 0, not [1]",
    ),
]


@pytest.mark.parametrize(("change", "words"), STATES, ids=[words[:40] for _, words in STATES])
def test_a_state_of_something_else_is_refused(change: dict[str, Any], words: str) -> None:
    loader = DataLoader(range(8), batch_size=2, shuffle=True)
    before = loader.state_dict()
    with pytest.raises(PlanError, match=re.escape(words)):
        loader.load_state_dict({**before, **change})
    assert loader.state_dict() == before


def test_what_is_no_state_is_refused() -> None:
    loader = DataLoader(range(8), batch_size=2)
    with pytest.raises(PlanError, match="a state is what state_dict"):
        loader.load_state_dict(3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=re.escape("this state has no ['v', 'n', 'seed', 'epoch', 'next_row', 'batch'")):
        loader.load_state_dict({"consumed_train_samples": 8})
    grouped = DataLoader(range(8), batch_size=2, group=2)
    with pytest.raises(PlanError, match="next_row 1 of the state is inside a group of 2 rows"):
        grouped.load_state_dict({**grouped.state_dict(), "next_row": 1})
    with pytest.raises(PlanError, match="3 samples end inside a group of 2 rows"):
        grouped.skip_consumed_samples(3)
    with pytest.raises(PlanError, match="an epoch yields no rows, so 3 samples cannot have been consumed"):
        DataLoader([], batch_size=2).skip_consumed_samples(3)


def test_a_state_of_another_sampler_is_refused() -> None:
    state = DataLoader(range(8), batch_size=2, sampler=[0, 1, 2, 3]).state_dict()
    with pytest.raises(
        PlanError, match=r"the state counts in the order 'listed [0-9a-f]{32}', but this loader's order is 'listed"
    ):
        DataLoader(range(8), batch_size=2, sampler=[0, 1, 3, 2]).load_state_dict(state)


def test_a_state_is_plain_data() -> None:
    import json

    loader = DataLoader(range(8), batch_size=2, shuffle=True)
    next(iter(loader))
    state = json.loads(json.dumps(loader.get_state()))
    assert state == {
        "v": 1,
        "n": 8,
        "seed": 42,
        "epoch": 0,
        "next_row": 2,
        "batch": 2,
        "tail": "keep",
        "order": "permuted",
        "replaced": [],
        "consumed_train_samples": 2,
    }
    DataLoader(range(8), batch_size=2, shuffle=True).load_state_dict(state)


def test_refusals_survive_pickling() -> None:
    with pytest.raises(PlanError) as caught:
        DataLoader(range(8), batch_size=3, group=2)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.batch_size, again.group) == (str(caught.value), 3, 2)


def test_importing_the_loader_loads_no_torch() -> None:
    from tests.support import run_python

    assert run_python("import sys, twinkle.dataloader; print('torch' in sys.modules)").strip() == "False"


NONSENSE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(-2, 9), max_size=4),
)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("batch_size", "min_batch_size", "shuffle", "seed", "tail", "group", "max_retries", "max_bad"),
                *("sampler", "batch_sampler", "device_mesh"),
            ]
        ),
        NONSENSE,
        max_size=5,
    ),
    st.one_of(st.builds(range, st.integers(0, 9)), NONSENSE),
)
def test_nonsense_is_refused_by_a_typed_error_or_it_works(options: dict[str, Any], dataset: Any) -> None:
    with suppress(TwinkleError):
        assert all(DataLoader(dataset, collate_fn=list, **options))


@given(
    st.dictionaries(st.sampled_from(["v", "n", "seed", "epoch", "next_row", "order", "replaced", "batch"]), NONSENSE)
)
def test_a_nonsense_state_is_refused_by_a_typed_error_or_it_works(change: dict[str, Any]) -> None:
    loader = DataLoader(range(8), batch_size=2, collate_fn=list)
    with suppress(TwinkleError):
        loader.load_state_dict({**loader.state_dict(), **change})
        assert len(loader) == len(list(loader))


class Unsized:
    """Rows with a `__len__` that only raises, as some write it."""

    def __init__(self, error: type[Exception], stream: bool) -> None:
        self.error, self.stream = error, stream

    def __iter__(self) -> Any:
        return iter(range(6))

    def __len__(self) -> int:
        raise self.error("how long?")


@pytest.mark.parametrize("error", [NotImplementedError, TypeError])
def test_a_length_that_only_raises_is_none(error: type[Exception]) -> None:
    rows = Unsized(error, stream=True)
    stream = DataLoader(rows, batch_size=4, collate_fn=list)
    assert list(stream) == [[0, 1, 2, 3], [4, 5]]
    with pytest.raises(TypeError, match="a loader of a Unsized has no len"):
        len(stream)
    assert list(DataLoader(range(6), sampler=rows, batch_size=4, collate_fn=list)) == [[0, 1, 2, 3], [4, 5]]


def test_more_rows_than_can_be_counted_are_refused() -> None:
    words = re.escape(f"a range has more than {2**63 - 1} rows; at most so many can be counted")
    for options in ({}, {"shuffle": True}):
        with pytest.raises(PlanError, match=words):
            DataLoader(range(2**64), batch_size=4, **options)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=words):
        len(DataLoader(range(4), sampler=range(2**64), batch_size=4))


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "persistent_workers": True}])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_loader_that_was_used_can_be_copied(copied: Any, options: dict[str, Any]) -> None:
    loader = DataLoader(range(8), batch_size=4, collate_fn=list, **options)
    batches = iter(loader)
    assert next(batches) == [0, 1, 2, 3]
    again = copied(loader)
    assert again.state_dict() == loader.state_dict()
    assert list(again) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert list(batches) == [[4, 5, 6, 7]]
    assert list(copied(loader)) == list(loader)
