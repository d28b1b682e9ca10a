"""Micro-batches: against the oracle, the handed cases, and what a bin says of itself."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import plan_oracle as oracle
from tests.support import cases
from twinkle.errors import PlanError
from twinkle.plan import Bin, Fill, Layout, pack


@pytest.mark.parametrize("case", cases("plan")["microbatch"], ids=lambda case: str(case["lengths"]))
def test_micro_batches_are_those_of_the_cases(case: dict[str, Any]) -> None:
    assert pack(case["lengths"], case["cap"], case["align"]) == case["expect"]


@st.composite
def cut_lengths(draw: st.DrawFn) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
    shards, minibatches = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    lengths, cuts = [], []
    for _ in range(shards):
        sizes = draw(st.lists(st.integers(0, 7), min_size=minibatches, max_size=minibatches))
        borders = [sum(sizes[:at]) for at in range(minibatches + 1)]
        cuts.append(list(pairwise(borders)))
        lengths.append(draw(st.lists(st.integers(0, 30), min_size=borders[-1], max_size=borders[-1])))
    return lengths, cuts


@given(
    cut_lengths(), st.integers(1, 40), st.integers(1, 4), st.sampled_from([1, 1, 4]), st.sampled_from(["refuse", "pad"])
)
def test_packing_follows_its_rules_exactly(
    drawn: tuple[list[list[int]], list[list[tuple[int, int]]]], cap: int, align: int, row_multiple: int, fill: Fill
) -> None:
    lengths, cuts = drawn
    expected = oracle.pack(lengths, cap, align=align, cuts=cuts, row_multiple=row_multiple, fill=fill)
    if expected is None:
        with pytest.raises(PlanError, match="micro-batches need one row each"):
            pack(lengths, cap, align, cuts, row_multiple, fill)
        return
    packed = pack(lengths, cap, align, cuts, row_multiple, fill)
    assert [[(list(held), held.pad) for held in bins] for bins in packed] == expected
    assert len({len(bins) for bins in packed}) == 1
    assert len(packed[0]) % align == 0
    for shard, bins in enumerate(packed):
        assert sorted(row for held in bins if not held.pad for row in held) == list(range(len(lengths[shard])))
        for held in bins:
            load = sum(-(-lengths[shard][row] // row_multiple) * row_multiple for row in held)
            assert held
            assert load <= cap or len(held) == 1


@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 3), st.data())
def test_a_layout_packs_its_own_rows_inside_its_mini_batches(
    n: int, shards: int, minibatches: int, data: st.DataObject
) -> None:
    lengths = data.draw(st.lists(st.integers(1, 30), min_size=n, max_size=n))
    layout = Layout.minibatched(n, shards, minibatches, pad=True)
    local = [layout.take(lengths, shard) for shard in range(shards)]
    cuts = [layout.cuts(shard) for shard in range(shards)]
    assert layout.pack(lengths, 40, fill="pad") == pack(local, 40, cuts=cuts, fill="pad")  # type: ignore[arg-type]
    if n >= shards:
        plain = Layout.even(n, shards)
        local = [plain.take(lengths, shard) for shard in range(shards)]
        assert plain.pack(np.array(lengths), 40, 2, 4, "pad") == pack(local, 40, 2, None, 4, "pad")


def test_a_bin_that_only_fills_up_says_so() -> None:
    packed = pack([[5, 5, 5], [5]], 5, fill="pad")
    assert packed == [[[0], [1], [2]], [[0], [0], [0]]]
    assert [held.pad for held in packed[1]] == [False, True, True]
    assert repr(packed) == "[[[0], [1], [2]], [[0], Bin([0], pad=True), Bin([0], pad=True)]]"
    again = pickle.loads(pickle.dumps(packed))
    assert [held.pad for held in again[1]] == [False, True, True]
    assert Bin([1, 2]) == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ([[5, 5, 5], [5]], 5),
            r"shard 1 has 1 rows in mini-batch 0, and 3 micro-batches need one row each: .* fill='pad'",
        ),
        (
            ([[5], []], 5, 1, None, 1, "pad"),
            "shard 1 has 0 rows in mini-batch 0, .* no row at all that fill='pad' could repeat",
        ),
        (([[5]], 0), "cap must be from 1 to 9223372036854775807, not 0"),
        (([[5]], 5.0), r"cap must be a whole number, not 5.0 \(float\)"),
        (([[5]], True), r"cap must be a whole number, not True \(bool\)"),
        (([[5]], 5, 0), "align must be from 1"),
        (([[5]], 5, 1, None, 0), "row_multiple must be from 1"),
        (([[5]], 5, 1, None, 1, "wrap"), r'fill must be one of \["refuse", "pad"\], not \'wrap\''),
        (([[-5]], 5), r"lengths\[0\]\[0\] must be from 0"),
        (([5], 5), r"lengths\[0\] must be a list"),
        (("55", 5), "lengths must be a list"),
        (([[5, 6]], 9, 1, [[(0, 1)]]), "rows inside the cuts of shard 0: 2 expected, 1 found"),
        (([[5, 6]], 9, 1, [[(0, 1), (0, 2)]]), r"the start of cuts\[0\]\[1\]: 1 expected, 0 found"),
        (([[5, 6]], 9, 1, [[(0, 3)]]), r"the stop of cuts\[0\]\[0\] must be from 0 to 2, not 3"),
        (([[5], [6]], 9, 1, [[(0, 1)]]), "lists of cuts, one per shard: 2 expected, 1 found"),
        (([[5], [6]], 9, 1, [[(0, 1)], [(0, 1), (1, 1)]]), "mini-batches in the cuts of shard 1: 1 expected, 2 found"),
        (([[2**62, 2**62]], 9), "the weights add up to more than"),
    ],
)
def test_packing_refuses_with_the_numbers(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        pack(*arguments)
    assert pack([], 5) == []
    assert pack([[]], 5) == [[]]
