"""Ranks in few words."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinkle.show.fold import folded, runs


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (range(8), "0-7"),
        (range(5, 6), "5"),
        (range(0, 57, 8), "0-56 step 8"),
        (range(0, 5, 4), "0, 4"),
        (range(7, -1, -1), "7-0 step -1"),
        ((0, 1, 2, 3, 8, 10, 11), "0-3, 8, 10-11"),
        ([4], "4"),
        (tuple(range(0, 40, 2)), "0, 2, 4, 6, 8, 10, 12, ..., 38 (20 ranks)"),
    ],
)
def test_ranks_are_folded_into_ranges(ranks: range | tuple[int, ...], words: str) -> None:
    assert folded(ranks) == words


@given(st.lists(st.integers(0, 30), unique=True))
def test_runs_are_the_ranks_in_their_order_and_as_few_as_can_be(ranks: list[int]) -> None:
    found = list(runs(ranks))
    assert [rank for run in found for rank in run] == ranks
    assert all(one.stop != other.start for one, other in itertools.pairwise(found))


def test_a_million_ranks_take_few_words() -> None:
    assert folded(range(0, 8 * 2**20, 8)) == "0-8388600 step 8"
    assert len(folded(tuple(range(0, 2**17, 2)))) < 80
