"""What workers returned beside what was declared and what the others returned: one type of rows, all keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.remote import feeding
from tests.remote.inline import component, inline_ray
from twinkle import DeviceMesh, Sharded
from twinkle.errors import PlanError

# A type checker does not see what the decorator adds.
Model: Any = feeding.Model


@pytest.fixture
def two() -> Iterator[Any]:
    with inline_ray():
        yield component(Model, DeviceMesh.from_sizes(dp_size=2))


def flat(_: Any) -> Any:
    return np.ones(1)


def deep(_: Any) -> Any:
    return np.ones((1, 1))


def short_text(_: Any) -> Any:
    return np.array(["a"])


def long_text(_: Any) -> Any:
    return np.array(["long"])


@pytest.mark.parametrize(
    ("kinds", "first", "other"),
    [
        ([list, tuple], "list", "tuple"),
        ([flat, list], "ndarray of float64 with 1 dimensions", "list"),
        ([flat, deep], "ndarray of float64 with 1 dimensions", "ndarray of float64 with 2 dimensions"),
    ],
)
def test_rows_of_different_types_are_refused_by_method_and_worker(two: Any, kinds: Any, first: str, other: str) -> None:
    for method in ("typed", "typed_here"):
        words = f"Model.{method}: worker 0 returned rows at 'rows' that are a {first}, and worker 1 .* are a {other}"
        with pytest.raises(PlanError, match=words) as refused:
            getattr(two, method)(kinds)
        assert (refused.value.worker, refused.value.key) == (1, "rows")


def test_texts_of_different_width_are_one_type(two: Any) -> None:
    assert two.typed([short_text, long_text]).gather().tolist() == ["a", "long"]
    assert two.typed_here([long_text, short_text]).tolist() == ["long", "a"]


def test_keys_that_a_declaration_names_are_looked_for_in_the_results_of_all_shards(two: Any) -> None:
    full = {"loss": 1.0, "tokens": 1, "peak": 2}
    assert two.folded([full, {**full, "loss": 5.0, "tokens": 3}]) == {"loss": 4.0, "tokens": 2.0, "peak": 2}
    with pytest.raises(PlanError, match=r"Model.folded: worker 1 returned no 'peak', .* but .*'peek', did you mean"):
        two.folded([full, {"loss": 1.0, "tokens": 1, "peek": 1}])
    with pytest.raises(PlanError, match="worker 0 returned no 'tokens', which weighs loss, beside it, but"):
        two.folded([{"loss": 1.0, "peak": 1}] * 2)


READS: dict[str, Any] = {
    "gather": lambda wrong, _: wrong.gather(),
    "row": lambda wrong, _: wrong[0],
    "map": lambda wrong, _: wrong.map(str),
    "whole pieces": lambda wrong, taker: taker.same(wrong),
    "cut pieces": lambda wrong, taker: taker.same(wrong.select([1, 0])),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_piece_that_is_not_the_planned_one_is_refused_however_it_is_read(two: Any, read: Any) -> None:
    made, other = two.same([1, 2, 3, 4]), two.same([1, 2, 3])
    store, another = made.pieces[0].store, other.pieces[0].store
    words = r"a piece of shard [01] of layout (\w+) arrived where shard [01] of layout (\w+) was planned"
    for holders in (store.holders[::-1], another.holders):
        with pytest.raises(PlanError, match=words):
            read(Sharded(made.layout, replace(store, holders=holders).pieces()), two)
    assert made.gather() == [1, 2, 3, 4]


def test_the_first_shard_s_result_is_taken_alone(two: Any) -> None:
    assert two.first_shard_s([{"a": 1}, None]) == {"a": 1}
    assert two.first_shard_s([{"a": 1}, {"b": 2}]) == {"a": 1}
