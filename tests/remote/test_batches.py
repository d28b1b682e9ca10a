"""What of a batch is rows, in one process: by type and then counted, never because a length happens to match."""

from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import twinkle
from tests.remote import feeding
from tests.support import run_python
from twinkle import DeviceMesh, Global, Sharded
from twinkle.dataloader import DataLoader
from twinkle.errors import PlanError
from twinkle.remote import RemoteDataLoader

Loaders: Any = RemoteDataLoader
Pair = namedtuple("Pair", ["id", "name"])


@dataclass
class Record:
    ids: Any
    name: str


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    twinkle.initialize("local")
    yield
    twinkle.shutdown()


def first(dataset: Any, **options: Any) -> Any:
    """The first batch of two rows, and the same of a loader that reads ahead."""
    batch, ahead = (next(iter(kind(dataset, batch_size=2, **options))) for kind in (DataLoader, Loaders))
    assert shape(batch) == shape(ahead)
    return batch


def shape(batch: Any) -> Any:
    """A batch with the word `rows` in the place of every handle."""
    if isinstance(batch, Sharded):
        return "rows"
    if isinstance(batch, (dict, UserDict)):
        return {key: shape(value) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [shape(value) for value in batch]
    if isinstance(batch, Record):
        return [shape(batch.ids), batch.name]
    return batch.tolist() if hasattr(batch, "tolist") else batch


def test_what_torch_collates_is_columns_where_samples_have_several_fields() -> None:
    assert shape(first([(1, 2.0, "a"), (3, 4.0, "b")])) == ["rows", "rows", "rows"]
    # Two columns of two rows: no length tells one from the other.
    assert shape(first([[1, 2], [3, 4]])) == ["rows", "rows"]
    assert shape(first([{"x": 1, "more": {"y": [1, 2]}}] * 2)) == {"x": "rows", "more": {"y": ["rows", "rows"]}}
    assert shape(first(["a", "b"])) == shape(first([1, 2])) == shape(first([np.zeros(2)] * 2)) == "rows"
    pair = first([Pair(1, "a"), Pair(2, "b")])
    assert (type(pair), shape(pair)) == (Pair, ["rows", "rows"])


def test_what_a_function_collates_is_columns_by_its_type() -> None:
    def batch(made: Any) -> Any:
        return shape(first([1, 2], collate_fn=lambda rows: made))

    assert batch([[1, 2], [3, 4]]) == batch(np.zeros((2, 3))) == batch(torch.zeros(2)) == "rows"
    assert batch(([1, 2], torch.zeros(2, 5))) == ["rows", "rows"]
    assert batch({"x": [1, 2], "n": 2, "name": "ab", "none": None, "zero": np.array(3)}) == {
        "x": "rows",
        "n": 2,
        "name": "ab",
        "none": None,
        "zero": 3,
    }
    assert batch(UserDict({"x": [1, 2]})) == {"x": "rows"}
    assert batch(Record([1, 2], "ab")) == ["rows", "ab"]


@pytest.mark.parametrize(
    ("batch", "name"),
    [({"x": [1, 2], "y": {"z": [1]}}, "batch['y']['z']"), (([1, 2], [1]), "batch[1]"), ([1], "batch")],
)
@pytest.mark.parametrize("kind", [DataLoader, Loaders])
def test_a_column_of_another_length_is_refused_by_its_path(kind: Any, batch: Any, name: str) -> None:
    with pytest.raises(PlanError) as refusal:
        list(kind([1, 2], batch_size=2, collate_fn=lambda rows: batch))
    assert f"{name} of a batch has 1 rows, and this process has 2 of the batch" in str(refusal.value)
    assert (refusal.value.found, refusal.value.expected) == (1, 2)


@pytest.mark.parametrize("mesh", [None, DeviceMesh.from_sizes(dp_size=4)])
def test_alone_a_batch_is_one_shard_on_a_mesh_of_any_size(mesh: Any) -> None:
    loader = DataLoader(range(10), batch_size=4, device_mesh=mesh, collate_fn=list, tail="pad")
    found = list(loader)
    assert [(batch.layout.shards, batch.local) for batch in found] == [
        (1, [0, 1, 2, 3]),
        (1, [4, 5, 6, 7]),
        (1, [8, 9]),
    ]
    assert (loader.epoch, len(loader), loader.is_pad) == (1, 3, [False, False])
    assert [step.batch for step in loader.steps()] == [batch.local for batch in found]


def test_breaking_out_and_resuming_act_as_on_plain_batches() -> None:
    loader = DataLoader(range(8), batch_size=2, collate_fn=list, shuffle=True)
    assert next(iter(loader)).local == next(iter(loader)).local
    state = loader.state_dict()
    other = DataLoader(range(8), batch_size=2, collate_fn=list, shuffle=True)
    other.load_state_dict(state)
    assert [batch.local for batch in other] == [batch.local for batch in loader][1:]


def test_without_initialize_batches_are_plain_and_nothing_remote_is_loaded() -> None:
    code = "; ".join(
        [
            "import sys",
            "from twinkle.dataloader import DataLoader",
            "print(list(DataLoader(range(2), batch_size=2, collate_fn=list)))",
            "print([name for name in sys.modules if name.startswith('twinkle.remote')])",
        ]
    )
    assert run_python(code).split("\n")[:2] == ["[[0, 1]]", "[]"]


def test_a_loader_that_reads_ahead_is_plain_without_initialize() -> None:
    twinkle.shutdown()
    loader = Loaders(range(4), batch_size=2, collate_fn=list)
    assert (list(loader), len(loader)) == ([[0, 1], [2, 3]], 2)


def test_alone_a_batch_of_model_inputs_is_columns_and_one_row_is_given_as_it_is() -> None:
    kind_of_model: Any = feeding.Model
    model = kind_of_model(device_mesh=DeviceMesh.from_sizes(dp_size=2))
    samples = [{"input_ids": torch.arange(3) + at, "labels": at} for at in range(4)]
    whole = {"input_ids": [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]], "labels": [0, 1, 2, 3]}
    for kind in (DataLoader, Loaders):
        (read,) = kind(samples, batch_size=4)
        assert model.first(read) == model.declared(read) == model.declared(whole) == [whole]
    one = {"input_ids": [1, 2, 3]}
    assert model.first(one) == model.declared(Global(one)) == [one]
    with pytest.raises(PlanError, match="may be one row, or the columns of many"):
        model.first(whole)
