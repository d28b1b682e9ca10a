"""What becomes of results: rows taken out, the rest joined key by key, refusals that name worker and key."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from twinkle import Rows
from twinkle.errors import PlanError
from twinkle.remote import rows as row_tools
from twinkle.remote import trees
from twinkle.remote.results import Leaf, combined, split_result
from twinkle.remote.signature import declared


class Pair(NamedTuple):
    first: Any
    second: Any


def joined(results: list[Any], weights: list[float] | None = None, **options: Any) -> Any:
    """The result of several workers that returned these."""
    declaration = declared({"collect": "flatten", **options})
    split = [split_result(result, declaration) for result in results]

    def rows_of(leaf: Leaf) -> Any:
        return row_tools.join([leaves[leaf.index] for _, leaves, _ in split], declaration.pad_values, leaf.name)

    rests = [rest for rest, _, _ in split]
    return combined(rests, weights or [1.0] * len(results), declaration, rows_of, list(range(len(results))))


@pytest.mark.parametrize(
    ("results", "options", "expected"),
    [
        ([[1], [2, 3]], {}, [1, 2, 3]),
        ([(1,), (2,)], {}, (1, 2)),
        (["ab", "cd"], {}, ["ab", "cd"]),
        ([None, None], {}, None),
        ([{"a": [1]}, {"a": [2]}], {"result_rows": "a"}, {"a": [1, 2]}),
        ([{"a": [1]}, {"a": [2]}], {}, {"a": [[1], [2]]}),
        ([{"x": {"a": [1]}}, {"x": {"a": [2]}}], {"result_rows": ["a"]}, {"x": {"a": [1, 2]}}),
        ([(Rows([1]), 0.5), (Rows([2]), 1.5)], {}, ([1, 2], [0.5, 1.5])),
        ([Pair(Rows([1]), 2), Pair(Rows([3]), 4)], {}, Pair([1, 3], [2, 4])),
        ([{"a": 1.0}, {"a": 4.0}], {"collect": "mean"}, {"a": 2.5}),
        ([{"a": 1}, {"a": 4}], {"collect": "sum"}, {"a": 5}),
        ([[1.0, 2.0], [3.0, 4.0]], {"collect": "mean"}, [2.0, 3.0]),
        ([{"a": 1}, {"a": 4}], {"collect": "first"}, {"a": 1}),
        ([{"a": 1}, {"a": 4}], {"result_rows": {"a": "max"}}, {"a": 4}),
        ([{"a": None}, {"a": None}], {"collect": "mean"}, {"a": None}),
    ],
)
def test_results_are_joined_by_their_rules(results: list[Any], options: dict[str, Any], expected: Any) -> None:
    found = joined(results, **options)
    assert found == expected
    assert type(found) is type(expected)


def test_means_weigh_workers_and_a_mean_without_rows_is_plain() -> None:
    assert joined([1.0, 5.0], [3.0, 1.0], collect="mean") == 2.0
    assert joined([1.0, 5.0], [0.0, 0.0], collect="mean") == 3.0
    assert type(joined([np.float32(1), np.float32(2)], collect="mean")) is float
    np.testing.assert_array_equal(joined([np.ones(2), np.zeros(2)], collect="mean"), [0.5, 0.5])
    np.testing.assert_array_equal(
        joined([{"a": np.array([1, 5])}, {"a": np.array([3, 2])}], result_rows={"a": "max"})["a"], [3, 5]
    )


@pytest.mark.parametrize(
    ("results", "options", "words"),
    [
        ([{"a": 1}, {"b": 1}], {}, "worker 1 and worker 0 returned different keys at the result: 'a', 'b'"),
        ([None, [1]], {}, "worker 0 returned NoneType at the result and worker 1 rows"),
        ([{"a": None}, {"a": 1}], {}, "worker 0 returned NoneType at a and worker 1 int"),
        ([{"a": "x"}, {"a": "y"}], {"collect": "mean"}, "cannot take the mean of str at a: text has none"),
        ([[1], [1, 2]], {"collect": "sum"}, r"lengths \[1, 2\] differ"),
        ([{"a": 3}, {"a": 3}], {"result_rows": "a"}, "returned a int at a, which is declared as rows"),
        ([[1], (2,)], {}, "the pieces are of different types: list, tuple"),
        ([np.ones((1, 2)), np.ones(1)], {}, "different numbers of dimensions"),
        (
            [np.ones(1), np.ones(1, dtype=int)],
            {},
            "the pieces are of different types: ndarray of float64, ndarray of int64",
        ),
    ],
)
def test_results_that_do_not_go_together_are_refused(results: list[Any], options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        joined(results, **options)


@pytest.mark.parametrize(
    ("results", "options", "words"),
    [
        (
            [{"loss": 1.0, "n_tokens": 1}, {"loss": 3.0, "n_tokens": 3}],
            {"collect": "mean", "result_rows": {"loss": ("mean", "tokens")}},
            r"worker 0 returned no 'tokens', which weighs loss, beside it, but 'loss', 'n_tokens',"
            r" did you mean n_tokens\?",
        ),
        (
            [{"x": {"loss": 1.0}, "tokens": 1}],
            {"result_rows": {"loss": ("mean", "tokens")}},
            r"worker 0 returned no 'tokens', which weighs x\['loss'\], beside it, but 'loss'",
        ),
        (
            [{"loss": 1.0, "tokens": None}],
            {"result_rows": {"loss": ("mean", "tokens"), "tokens": "first"}},
            "cannot take the mean of float at loss: ",
        ),
        (
            [{"labels": [1]}, {"labels": [2]}],
            {"result_rows": ("lables",)},
            "worker 0 returned no 'lables', which result_rows names, but 'labels', did you mean labels",
        ),
        ([{"a": 1, "b": 2}, {"a": 1}], {"result_rows": {"b": "sum"}}, "worker 1 returned no 'b'"),
        ([[1], [2]], {"result_rows": "ids"}, "worker 0 returned no 'ids', which result_rows names, but a list"),
        ([([1], 2)], {"result_rows": (0, 2)}, "worker 0 returned no 2, which result_rows names, but 0, 1"),
        ([{}, 5], {"collect": "mean"}, "worker 0 returned dict at the result and worker 1 int"),
        ([5, {}], {"collect": "mean"}, "worker 0 returned int at the result and worker 1 dict"),
        ([{"a": {}}, {"a": 5}], {}, "worker 0 returned dict at a and worker 1 int"),
        ([{"a": 1}, Pair(1, 2)], {}, "worker 0 returned dict at the result and worker 1 Pair"),
        ([{"a": [Rows([1])]}, {"a": [2]}], {}, "worker 0 returned list at a and worker 1 list, one with rows"),
    ],
)
def test_what_a_declaration_looks_for_and_does_not_find_is_refused(
    results: list[Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        joined(results, **options)


def test_keys_are_looked_for_in_whatever_depth_and_not_where_nothing_was_returned() -> None:
    assert joined([{"x": [{"ids": [1]}]}, {"x": [{"ids": [2]}]}], result_rows="ids") == {"x": [{"ids": [1, 2]}]}
    assert joined([Pair({"n": 1}, 2), Pair({"n": 3}, 4)], result_rows={"n": "sum", "second": "max"}) == Pair(
        {"n": 4}, 4
    )
    assert joined([None, None], result_rows="ids") is None


@pytest.mark.parametrize("collect", ["first", "last_pp_first"])
def test_the_first_shard_s_is_taken_whatever_the_others_returned(collect: str) -> None:
    for other in (None, 5, {"b": 2}, {}, [1]):
        assert joined([{"a": 1}, other], collect=collect) == {"a": 1}
        assert joined([other, {"a": 1}], collect=collect) == other
    # What has a rule of its own is looked for in all of them.
    results: list[Any] = [{"a": 1, "n": 2}, {"n": 3, "b": 2}]
    assert joined(results, collect=collect, result_rows={"n": "sum"}) == {"a": 1, "n": 5}
    assert joined([{"a": 1, "n": [2]}, {"n": [3]}], collect=collect, result_rows="n") == {"a": 1, "n": [2, 3]}
    assert joined([{"x": Rows([1])}, {"x": Rows([2])}], collect=collect) == {"x": [1, 2]}
    assert joined([{"a": 1}, {"a": None}], result_rows={"a": "first"}) == {"a": 1}
    with pytest.raises(PlanError, match="worker 1 returned no 'n'"):
        joined([{"a": 1, "n": 2}, None], collect=collect, result_rows={"n": "sum"})


def test_decimals_are_folded_and_stay_decimals() -> None:
    three, none = Decimal(3), Decimal("NaN")
    assert joined([three, Decimal(1)], [1.0, 3.0], collect="mean") == Decimal("1.5")
    assert joined([three, 1], [0.0, 0.0], collect="mean") == Decimal(2)
    assert joined([three, Decimal(1)], collect="sum") == Decimal(4)
    for values in ([none, three], [three, none]):
        for collect in ("mean", "sum"):
            assert joined(values, collect=collect).is_nan()
        highest = joined([{"a": value} for value in values], result_rows={"a": "max"})["a"]
        assert highest.is_nan()


@pytest.mark.parametrize("rule", ["mean", "max", "sum"])
def test_what_arithmetic_refuses_is_refused_by_method_and_key(rule: str) -> None:
    for first, second in ((Decimal("sNaN"), Decimal(1)), (Decimal("Infinity"), Decimal("-Infinity")), (10**400, 1.5)):
        if rule == "max" and not Decimal(first).is_snan():
            continue
        with pytest.raises(PlanError, match=rf"cannot take the {rule} of (Decimal|int) at a: .*give that key a rule"):
            joined([{"a": first}, {"a": second}], result_rows={"a": rule})


def test_what_is_no_number_is_the_highest_wherever_it_comes() -> None:
    nan = float("nan")
    for made in (float, np.float32, torch.tensor, lambda value: np.array([value]), lambda value: [value]):
        for values in ([nan, 1.0], [1.0, nan], [2.0, nan, 3.0]):
            found = joined([{"a": made(value)} for value in values], result_rows={"a": "max"})["a"]
            assert np.isnan(np.asarray(found)).all()
        (highest,) = joined([{"a": made(value)} for value in (1.0, 3.0, 2.0)], result_rows={"a": "max"}).values()
        assert np.asarray(highest).max() == 3.0
    assert joined([{"a": 2}, {"a": True}, {"a": 3}], result_rows={"a": "max"})["a"] == 3


def test_what_has_no_rows_does_not_enter_a_mean() -> None:
    assert joined([2.0, float("nan")], [3.0, 0.0], collect="mean") == 2.0
    assert joined([{"a": [1.0, 2.0]}, {"a": []}], [3.0, 0.0], collect="mean") == {"a": [1.0, 2.0]}
    assert np.isnan(joined([2.0, float("nan")], [3.0, 1.0], collect="mean"))


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([True, True], 2),
        ([True], 1),
        ([np.True_, np.True_, np.False_], 2),
        ([np.uint8(200), np.uint8(100)], 300),
        ([np.int8(100), np.int8(100)], 200),
        ([np.array([200], dtype=np.uint8), np.array([100], dtype=np.uint8)], np.array([300])),
        ([torch.tensor(True), torch.tensor(True)], 2),
        ([torch.tensor(200, dtype=torch.uint8)] * 2, 400),
        ([np.float32(0.5), np.float32(0.5)], 1.0),
    ],
)
def test_sums_count_truths_and_do_not_wrap_around(results: list[Any], expected: Any) -> None:
    found = joined(results, collect="sum")
    assert found == expected
    assert not isinstance(found, bool)


def given(value: Any, rows: int, **options: Any) -> tuple[Any, list[Any]]:
    """What is left of a result of a worker that was given so many rows, and its rows."""
    rest, leaves, _ = split_result(value, declared({"collect": "flatten", **options}), lambda: rows)
    return rest, leaves


def test_a_tuple_of_columns_that_may_be_rows_is_refused() -> None:
    words = r"returned a tuple of 2 columns, or rows, of 2 each, and was given 2 rows: declare .* result_rows=\(0, 1\)"
    for value in (([1, 2], [3, 4]), (np.ones(2), [3, 4])):
        with pytest.raises(PlanError, match=words):
            given(value, 2)
    assert given(([1, 2], [3, 4]), 2, result_rows=(0, 1))[1] == [[1, 2], [3, 4]]
    for rows in ([[1, 2], [3, 4]], ([1], [2, 3]), (1, 2), ([1],)):
        assert given(rows, len(rows))[1] == [rows]
    with pytest.raises(PlanError, match="a tuple of 2 columns, or rows, of 4 each, and was given 4 rows"):
        given(([1, 2, 3, 4], [5, 6, 7, 8]), 4)


def test_a_named_tuple_is_a_record_and_no_rows() -> None:
    assert joined([Pair([1, 2], 3), Pair([4, 5], 6)]) == Pair([[1, 2], [4, 5]], [3, 6])
    assert joined([Pair([1], 3.0), Pair([2], 5.0)], result_rows={"first": "rows", "second": "mean"}) == Pair([1, 2], 4)
    assert joined([{"x": Pair(1, 2)}, {"x": Pair(3, 4)}], collect="sum") == {"x": Pair(4, 6)}
    with pytest.raises(PlanError, match="whose parts have names, and result_rows says 0: name its fields"):
        joined([Pair([1], 2)], result_rows=0)


def test_a_list_of_numbers_and_texts_is_looked_at_as_one() -> None:
    asked: list[Any] = []

    def leaf(node: Any, _: Any) -> tuple[bool, Any]:
        asked.append(node)
        return False, None

    tree = {"a": [1, 2.5, "x", None], "b": [1, {}]}
    assert trees.rebuilt(tree, leaf, scalars=False) is tree
    assert asked == [tree, tree["a"], tree["b"], 1, {}]


def test_a_tree_that_holds_itself_is_refused_with_words() -> None:
    config: dict[str, Any] = {}
    config["me"] = config
    with pytest.raises(PlanError, match=r"config holds itself, or is nested too deeply"):
        trees.rebuilt(config, lambda node, _: (False, None), ("config",))


def test_widths_are_filled_by_key_then_dtype_then_custom() -> None:
    pieces = [np.ones((1, 1), dtype=np.int64), np.ones((1, 2), dtype=np.int64)]
    assert row_tools.join(pieces, None, "labels").tolist() == [[1, -100], [1, 1]]
    assert row_tools.join(pieces, None, "loss_mask").tolist() == [[1, 0], [1, 1]]
    assert row_tools.join(pieces, {"input_ids": 7}, "input_ids").tolist() == [[1, 7], [1, 1]]
    assert row_tools.join(pieces, {"int64": 9}, "labels").tolist() == [[1, 9], [1, 1]]
    small = [piece.astype(np.uint8) for piece in pieces]
    assert row_tools.join(small, None, "labels").dtype == np.uint8


def test_a_tree_in_which_nothing_changes_is_the_very_same_object() -> None:
    tree = {"a": [1, (2, Pair(3, {"b": 4}))]}
    assert trees.rebuilt(tree, lambda node, _: (False, None)) is tree
    changed = trees.rebuilt(tree, lambda node, _: (True, 5) if node == 4 else (False, None))
    assert changed == {"a": [1, (2, Pair(3, {"b": 5}))]}
    assert tree["a"][1][1].second == {"b": 4}


def test_a_mapping_that_cannot_be_changed_becomes_a_dict() -> None:
    from types import MappingProxyType

    frozen = MappingProxyType({"a": 1})
    assert trees.rebuilt(frozen, lambda node, _: (True, 2) if node == 1 else (False, None)) == {"a": 2}
