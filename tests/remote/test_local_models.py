"""Model inputs in two real processes of a launcher: one row or columns, widths, masks and graphs, as on Ray."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.torchrun import seen_by_ranks

LABELS = [[1, 1, -100], [1, 1, 1]]
IDS = [[1, 1, 7], [1, 1, 1]]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks saw."""
    return seen_by_ranks(2, "tests.remote.launched_models", tmp_path_factory.mktemp("seen"))


def test_a_mapping_of_model_inputs_is_one_row_or_columns_by_what_it_holds(ranks: Any) -> None:
    one, pad = {"input_ids": [1, 2], "labels": [1, 2]}, {"input_ids": [1, 2], "labels": [-100, -100]}
    rows = [[at, at + 1] for at in range(4)]
    for rank in ranks:
        read, whole, padded, sparse, own, unclear = rank["singles"]
        assert read == [
            {"input_ids": rows[:2], "labels": [0, 1]},
            {"input_ids": rows[2:], "labels": [2, 3]},
        ]
        assert whole == [{"input_ids": rows, "labels": [0, 1, 2, 3]}]
        assert (padded, sparse) == ([one, pad], [one, []])
        assert own == [{"input_ids": [0, 0]}, {"input_ids": [1, 1]}]
        assert "PlanError: Model.first: batch may be one row, or the columns of many" in unclear


def test_short_rows_are_widened_by_the_method_that_made_them(ranks: Any) -> None:
    for rank in ranks:
        labels, columns, zipped, whole, widened, joined, unnamed = rank["widths"]
        assert labels == [LABELS]
        assert columns == [{"a": LABELS, "b": IDS}]
        assert zipped == [[list(pair) for pair in zip(LABELS, IDS, strict=True)]]
        assert whole == [[[IDS]], {}]
        assert widened == [[[[1, 1, 3], [1, 1, 1]], IDS]]
        assert joined == [[*LABELS, *LABELS]]
        assert unnamed == [{"labels": LABELS}]


def test_masks_stay_and_graphs_do_not(ranks: Any) -> None:
    for rank in ranks:
        gathered, whole, halves, leaf, graphs = rank["arrays"]
        assert gathered == [False, True, False, True]
        assert whole == [["MaskedArray", [False, True, False, True]]]
        assert halves == [["MaskedArray", [True, False]], ["MaskedArray", [True, False]]]
        assert leaf == [True, True]
        assert graphs == [[[True, True]] * 2] * 2 + [[[True, True]]] * 2


def leaves(*numbers: float) -> list[Any]:
    """What is said of tensors of these numbers that came as leaves."""
    return [[True, True, number + 1] for number in numbers]


def test_rows_of_a_rank_itself_come_without_a_graph_in_whatever_depth(ranks: Any) -> None:
    for rank, one in enumerate(ranks):
        plain, cut, nested, zipped, single, local, mapped, own = one["graphs"]
        assert plain == [leaves(0, 7), leaves(1, 7)]
        assert cut == [leaves(1, 2), leaves(3, 4)]
        assert nested == [leaves(1, 2, 2), leaves(1, 2, 3)]
        assert zipped == [leaves(1, 5), leaves(2, 6)]
        assert single == [leaves(2), leaves(3)]
        assert local == ([] if rank == 0 else [[True, True]] * 2)
        assert mapped == ([] if rank == 0 else [True] * 2)
        # The caller's own keep theirs.
        assert own


def test_results_are_looked_at_as_on_ray(ranks: Any) -> None:
    for rank in ranks:
        first, folded, lacking, types = rank["results"]
        assert first == {"a": 1}
        assert (folded["loss"], math.isnan(folded["peak"])) == (4.0, True)
        assert "PlanError: Model.folded: worker 1 returned no 'peak', which result_rows names" in lacking
        assert "PlanError: Model.typed: worker 0 returned rows at 'rows' that are a list, and worker 1" in types
