"""What short rows are widened with: the rule of the method that made them, whichever way they travel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.remote import feeding
from tests.remote.inline import component, inline_ray
from twinkle import DeviceMesh
from twinkle.remote.widening import pad_value, rule_as_given

# A type checker does not see what the decorator adds.
Model: Any = feeding.Model

LABELS = [[1, 1, -100], [1, 1, 1]]
IDS = [[1, 1, 7], [1, 1, 1]]


@pytest.fixture
def two() -> Iterator[Any]:
    with inline_ray():
        yield component(Model, DeviceMesh.from_sizes(dp_size=2))


@pytest.fixture
def one(two: Any) -> Any:
    return component(Model, DeviceMesh.from_sizes(dp_size=1))


def test_handed_over_rows_are_widened_by_the_method_that_made_them(two: Any, one: Any) -> None:
    made = two.wide([2, 3])
    labels, ids = made["labels"], made["ids"]
    assert (labels.gather().tolist(), ids.gather().tolist()) == (LABELS, IDS)
    assert (one.first(labels), one.first(ids)) == ([LABELS], [IDS])
    assert one.declared({"a": labels, "b": ids}) == [{"a": LABELS, "b": IDS}]
    assert one.declared({"deep": {"b": ids}}) == [{"deep": {"b": IDS}}]
    assert one.first([labels[:1], labels[1:]]) == [LABELS]
    assert one.first(labels.select([1, 0])) == [LABELS[::-1]]
    assert one.first(labels.zip(ids, [5, 6])) == [[[*row, at] for *row, at in zip(LABELS, IDS, [5, 6], strict=True)]]


def test_whole_handles_in_trees_are_widened_alike(two: Any, one: Any) -> None:
    made = two.wide([2, 3])
    for model in (one, two):
        args, kwargs = model.whole(made["labels"], x=[{"y": made["ids"]}])[0]
        assert (args, kwargs) == ([LABELS], {"x": [{"y": IDS}]})


def test_joined_handles_are_widened_by_the_first_that_has_rows(two: Any, one: Any) -> None:
    made, more = two.wide([2, 2]), two.wide([3, 3])
    for whole in (made["labels"].concat(more["labels"]), made["ids"][:0].concat(made["labels"], more["labels"])):
        expected = [LABELS[0]] * 2 + [LABELS[1]] * 2
        assert whole.gather().tolist() == expected
        assert one.first(whole) == [expected]
    assert one.first([made["ids"], more["ids"]]) == [[IDS[0]] * 2 + [IDS[1]] * 2]


def test_pads_are_widened_alike(two: Any) -> None:
    three = component(Model, DeviceMesh.from_sizes(dp_size=1))
    made = two.wide([2, 3])
    assert three.padded({"labels": made["labels"], "ids": made["ids"]}) == [{"labels": LABELS, "ids": IDS}]
    whole = two.wide([2, 4, 3, 3]).items()
    found = two.padded({key: rows.select([0, 3, 0]) for key, rows in whole})
    assert found[1] == {"labels": [[1, 1, 1, 1], [-100] * 4], "ids": [[1] * 4] * 2}


def test_who_is_given_rows_may_declare_what_widens_them_by_name(two: Any, one: Any) -> None:
    made = two.wide([2, 3])
    assert one.widened(made["labels"], made["ids"]) == [[[[1, 1, 3], [1, 1, 1]], IDS]]
    found = one.widened({"ids": made["ids"]}, {"a": made["labels"]})
    assert found == [[{"ids": [[1, 1, 4], [1, 1, 1]]}, {"a": LABELS}]]


def test_rows_that_were_a_whole_result_are_taken_by_the_name_they_are_given(two: Any, one: Any) -> None:
    unnamed, bare = two.unnamed([2, 3]), two.bare([2, 3])
    assert unnamed.gather().tolist() == [[1, 1, 0], [1, 1, 1]]
    assert one.declared({"labels": unnamed, "ids": unnamed}) == [{"labels": LABELS, "ids": [[1, 1, 0], [1, 1, 1]]}]
    assert one.declared({"labels": bare}) == [{"labels": [[1, 1, 5], [1, 1, 1]]}]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (("ids", {"ids": 7}, "x", None), ("ids", {"ids": 7})),
        (("ids", {"ids": 7}, "x", {"x": 3}), ("x", {"x": 3})),
        (("ids", {"ids": 7}, "x['y']", {"x": 3, "y": 4}), ("y", {"y": 4})),
        (("ids", {"ids": 7}, "x[0]", {"x": 3}), ("x", {"x": 3})),
        (("ids", {"ids": 7}, "x", {"ids": 1, "int64": 2}), ("ids", {"ids": 7, "int64": 2})),
        (("labels", None, "x", {"int64": 2}), ("labels", None)),
        (("rows", None, "batch['labels']", {"int64": 2}), ("labels", None)),
        (("rows", {"rows": 1}, "labels", None), ("rows", {"rows": 1})),
        (("rows", {"int64": 1}, "x", {"int64": 2}), ("x", {"int64": 1})),
    ],
)
def test_the_producer_s_rule_holds_unless_the_consumer_names_the_column(given: Any, rule: Any) -> None:
    assert rule_as_given(*given) == rule


def test_a_value_is_found_by_key_then_dtype_then_a_word_in_the_key() -> None:
    array = np.ones(1, dtype=np.int64)
    assert pad_value(array, "labels", {"labels": 1, "int64": 2}) == 1
    assert pad_value(array, "labels", {"int64": 2}) == 2
    found = [pad_value(array, key, None) for key in ("labels", "loss_mask", "x")]
    assert found == [-100, 0, 0]
    assert pad_value(torch.ones(1, dtype=torch.bool), "labels", None) == 0
