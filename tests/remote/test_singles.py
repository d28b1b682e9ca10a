"""One row or many: what a mapping with `input_ids` or `messages` is in the place of rows, in every mode."""

from __future__ import annotations

from collections import UserDict, deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.remote import feeding
from tests.remote.inline import component, inline_ray
from twinkle import DeviceMesh, Global, Rows, Same
from twinkle.dataloader import DataLoader
from twinkle.errors import PlanError
from twinkle.remote import RemoteDataLoader, traffic

# A type checker does not see what the decorator adds.
Model: Any = feeding.Model

SAMPLES: Any = [{"input_ids": torch.arange(3) + at, "labels": at} for at in range(4)]
HALVES = [
    {"input_ids": [[0, 1, 2], [1, 2, 3]], "labels": [0, 1]},
    {"input_ids": [[2, 3, 4], [3, 4, 5]], "labels": [2, 3]},
]
TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


@pytest.fixture
def two() -> Iterator[Any]:
    with inline_ray():
        yield component(Model, DeviceMesh.from_sizes(dp_size=2))


def batch() -> dict[str, Any]:
    (made,) = torch.utils.data.DataLoader(SAMPLES, batch_size=4)
    return dict(made)


@pytest.mark.parametrize(
    "make",
    [
        batch,
        lambda: {"input_ids": batch()["input_ids"].tolist(), "labels": [0, 1, 2, 3]},
        lambda: {"input_ids": list(batch()["input_ids"]), "labels": batch()["labels"].numpy()},
        lambda: UserDict(batch()),
    ],
)
def test_a_batch_that_is_declared_is_columns(two: Any, make: Any) -> None:
    assert two.declared(make()) == two.declared(Rows(make())) == two.first(Rows(make())) == HALVES
    assert two.sparse(make()) == two.padded(make()) == HALVES
    assert two.declared(Global(make())) == HALVES


def test_a_batch_of_conversations_that_is_declared_is_columns(two: Any) -> None:
    talks = {"messages": [TALK, TALK[:1]], "input_ids": [[1, 2], [3]]}
    found = [{"messages": [TALK], "input_ids": [[1, 2]]}, {"messages": [TALK[:1]], "input_ids": [[3]]}]
    assert two.declared(talks) == found


def test_a_batch_that_nobody_declared_is_refused_with_the_ways_out(two: Any) -> None:
    words = r"first: batch may be one row, or the columns of many: its input_ids is of shape \(4, 3\); pass Rows\(x\) "
    with pytest.raises(PlanError, match=words + r"where every value is .* and \[x\] where it is one row"):
        two.first(batch())
    with pytest.raises(PlanError, match="input_ids is a list of 2 items, each a list; pass"):
        two.first({"input_ids": [[1], [2]]})
    with inline_ray(), pytest.raises(PlanError, match="may be one row"):
        component(Model, DeviceMesh.from_sizes(tp_size=2)).first(batch())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"input_ids": [1, [2]]}, "input_ids is a list of 2 items, each a int or list"),
        ({"messages": [("user", "hi"), ("assistant", "hello")]}, "messages is a list of 2 items, each a tuple"),
        (
            {"messages": [{"role": ["user", "user"], "content": ["hi", "ho"]}], "labels": [1, 2]},
            "messages is a list of 1 items, each a dict",
        ),
        ({"messages": TALK, "input_ids": [[1], [2]]}, "messages is a list of 2 items, each a dict and input_ids is a"),
        ({"messages": "hi", "input_ids": [[1], [2]]}, "messages is a str and input_ids is a list"),
    ],
)
def test_what_stays_unclear_is_refused_declared_or_not(two: Any, value: Any, words: str) -> None:
    for call in (two.first, two.declared, two.sparse, two.padded):
        with pytest.raises(PlanError, match=words):
            call(value)
    with pytest.raises(PlanError, match=words):
        two.declared(Global(value))


@pytest.mark.parametrize(
    "value",
    [
        {"input_ids": [11, 12, 13, 14], "labels": [1, 2, 3, 4]},
        {"input_ids": range(4)},
        {"input_ids": np.arange(4), "labels": np.arange(4)},
        {"input_ids": torch.arange(4)},
        {"input_ids": list(torch.arange(4))},
        {"input_ids": [], "id": 7},
        {"messages": TALK},
        {"messages": ["system", "user"], "input_ids": [1, 2]},
        {"messages": np.array(TALK, dtype=object)},
    ],
)
def test_a_flat_sequence_of_ids_or_a_conversation_is_one_row(two: Any, value: Any) -> None:  # D17, D18
    empty = (
        r"1 row over 2 data shards: shards \[1\] would be empty; batch (is one row|may be one row, or \d in c.*), as "
    )
    ways = r"its .*: pass Rows\(x\) where every value is a column, \[x\] or more of them .*, and Same\(x\) where every"
    for call in (two.first, two.declared):
        with pytest.raises(PlanError, match=empty + ways):
            call(value)
    with pytest.raises(PlanError, match=empty + ways):
        two.declared(Global(value))
    alone = component(Model, DeviceMesh.from_sizes(tp_size=2))
    assert alone.first(value) == alone.declared(value) == [feeding.plain(dict(value))] * 2


UNCLEAR: list[dict[str, Any]] = [
    {"messages": ["a", "b", "c", "d"], "labels": (1, 2, 3, 4)},
    {"messages": ("a", "b", "c", "d"), "more": {"labels": np.arange(4)}},
    {"messages": ["a", "b", "c", "d"], "labels": deque(range(4)), "scores": torch.arange(4)},
]


@pytest.mark.parametrize(
    "value",
    [
        {"input_ids": [11, 12, 13, 14], "labels": [1, 2, 3, 4]},
        {"input_ids": range(4), "labels": np.arange(4)},
        {"input_ids": torch.arange(4), "labels": [1, 2, 3, 4]},
    ],
)
def test_flat_ids_and_labels_as_long_are_one_row_however_empty_shards_are_filled(two: Any, value: Any) -> None:
    row = feeding.plain(dict(value))
    for given in (value, Global(value)):
        assert two.sparse(given) == [row, []]
        assert two.padded(given) == [row, {**row, "labels": [-100] * 4}]


@pytest.mark.parametrize("value", UNCLEAR)
def test_what_may_be_one_row_or_columns_of_texts_is_neither_repeated_nor_left_to_one_worker(
    two: Any, value: Any
) -> None:
    words = r"1 row over 2 data shards; batch may be one row, or 4 in columns, as its messag.*Rows\(x\)"
    for given in (value, Global(value)):
        for call in (two.sparse, two.padded):
            with pytest.raises(PlanError, match=words):
                call(given)
    with pytest.raises(PlanError, match=words):
        two.padded(value, value)
    plain = feeding.plain(dict(value))
    assert two.sparse([value]) == [[plain], []]
    assert two.sparse(Same(value)) == [plain] * 2
    halves = two.sparse(Rows(value))
    assert halves == two.declared(Rows(value))
    key = next(iter(value))
    assert [half[key] for half in halves] == [plain[key][:2], plain[key][2:]]


def test_a_mapping_beside_one_row_is_one_row(two: Any) -> None:
    value = {"input_ids": [1, 2, 3], "labels": [1, 2, 3]}
    pad = {"input_ids": [1, 2, 3], "labels": [-100] * 3}
    assert two.padded(value, [7]) == [value, pad]
    assert two.padded([7], value) == [[7], [7]]
    assert two.padded({"input_ids": [1]}, value) == [{"input_ids": [1]}] * 2
    with pytest.raises(PlanError, match=r"batch has 1 rows and more has 3; .*rows; batch is one row, as its .*Rows"):
        two.padded(value, [7, 8, 9])


@pytest.mark.parametrize(
    "value",
    [
        {"input_ids": [], "labels": []},
        {"input_ids": torch.zeros(0), "labels": []},
        {"input_ids": torch.zeros(0, 3), "more": {"labels": []}},
        {"messages": [], "input_ids": []},
    ],
)
def test_columns_without_rows_arrive_as_columns_on_every_worker(two: Any, value: Any) -> None:
    assert two.sparse(value) == two.sparse(Rows(value)) == two.sparse(Global(value)) == [feeding.plain(value)] * 2
    for call in (two.declared, two.padded):
        with pytest.raises(PlanError, match="0 rows"):
            call(value)


def test_what_is_the_same_for_all_is_said_so_inside_a_mapping(two: Any) -> None:
    alone = component(Model, DeviceMesh.from_sizes(tp_size=2))
    feature = {"input_ids": [1, 2, 3], "options": {"stop": Same(["a", "b"])}}
    bare = {"input_ids": [1, 2, 3], "options": {"stop": ["a", "b"]}}
    for call in (alone.first, alone.declared):
        assert call(feature) == [bare] * 2
    columns = {**batch(), "options": {"stop": Same(["a", "b"]), "scale": Same(2.0)}}
    found = [{**half, "options": {"stop": ["a", "b"], "scale": 2.0}} for half in HALVES]
    assert two.declared(columns) == two.first(Rows(columns)) == two.declared(Global(columns)) == found
    assert two.declared({"input_ids": Same([1, 2, 3]), "labels": [0, 1]}) == [
        {"input_ids": [1, 2, 3], "labels": [0]},
        {"input_ids": [1, 2, 3], "labels": [1]},
    ]
    made = two.wide([3, 3])
    assert two.declared({"x": [0, 1], "y": Same(made["ids"])})[1] == {"x": [1], "y": [[1, 1, 1]] * 2}
    with pytest.raises(PlanError, match=r"batch is one row, and there is a handle in it, in Same: pass .* gather\(\)"):
        alone.first({"input_ids": [1, 2, 3], "y": Same(made["ids"])})
    with pytest.raises(PlanError, match="batch has no columns, so no rows either"):
        two.declared({"x": Same([0, 1])})


def test_one_row_with_a_dimension_of_one_is_the_same_row_declared_or_not(two: Any) -> None:  # D18
    value = {"input_ids": torch.arange(5).reshape(1, 5), "labels": torch.arange(5).reshape(1, 5)}
    for call in (two.first, two.declared):
        with pytest.raises(PlanError, match="1 row over 2 data shards"):
            call(value)
    alone = component(Model, DeviceMesh.from_sizes(tp_size=2))
    assert alone.first(value) == alone.declared(value) == [feeding.plain(value)] * 2
    ragged = {**value, "labels": [1, 2, 3]}
    with pytest.raises(PlanError, match=r"batch\['input_ids'\] has 1 rows and batch\['labels'\] has 3"):
        alone.declared(ragged)


def test_a_mapping_of_handles_is_columns_declared_or_not(two: Any) -> None:
    made = two.wide([3, 3, 3, 3])
    columns = {"input_ids": made["ids"], "labels": made["labels"]}
    half = {"input_ids": [[1, 1, 1]] * 2, "labels": [[1, 1, 1]] * 2}
    for call in (two.first, two.declared, two.sparse, two.padded):
        assert call(columns) == [half, half]
    parts = {"input_ids": [made["ids"][:2], made["ids"][2:]], "labels": [1, 2, 3, 4]}
    assert two.declared(parts)[1]["labels"] == [3, 4]


def test_a_mapping_that_holds_itself_is_refused(two: Any) -> None:
    value: dict[str, Any] = {"input_ids": [{}]}
    value["input_ids"][0] = value
    with pytest.raises(PlanError, match="batch holds itself"):
        two.first(value)


@pytest.fixture(scope="module")
def on_ray(job: None) -> Any:
    return Model(device_mesh=DeviceMesh.from_sizes(dp_size=2), remote_group="cpu2")


def test_batches_of_a_loader_are_cut_whoever_reads_them(on_ray: Any) -> None:
    plain = DataLoader(SAMPLES, batch_size=4)
    assert [on_ray.declared(one) for one in plain] == [on_ray.first(Rows(one)) for one in plain] == [HALVES]
    with pytest.raises(PlanError, match="may be one row, or the columns of many"):
        on_ray.first(next(iter(plain)))
    loaders: Any = RemoteDataLoader
    remote = loaders(SAMPLES, batch_size=4, device_mesh=on_ray.device_mesh, remote_group="cpu4")
    traffic.reset()
    assert [on_ray.declared(one) for one in remote] == [on_ray.first(one) for one in remote] == [HALVES]
    assert traffic.driver_rows == 0


def test_the_pad_of_one_row_is_masked(two: Any) -> None:
    value = {"input_ids": [1, 2, 3], "labels": [1, 2, 3], "id": 5}
    pad = {"input_ids": [1, 2, 3], "labels": [-100] * 3, "id": 5}
    for given in (value, Global(value), [value]):
        found = two.padded(given)
        assert found == ([[value], [pad]] if given == [value] else [value, pad])
    features = {"input_ids": torch.arange(3), "id": 5, "more": {"labels": torch.arange(3)}}
    assert two.padded(features)[1]["more"] == {"labels": [-100] * 3}
    with pytest.raises(PlanError, match="loss_mask='labels' is not in pad 0 of this worker"):
        two.padded({"input_ids": [1]})
    assert two.padded({"input_ids": [1]}, value) == [{"input_ids": [1]}] * 2
    assert two.sparse(value) == [value, []]
    assert value == {"input_ids": [1, 2, 3], "labels": [1, 2, 3], "id": 5}
