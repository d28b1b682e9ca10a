"""Batches: every kind is cut and joined as its own type, and what is no batch is refused by name."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support import LIMIT
from tests.test_plan_layout import layouts
from twinkle.errors import PlanError
from twinkle.mesh import DeviceMesh
from twinkle.plan import Layout

CUT = [Layout.even(5, 2), Layout.explicit([[4, 0, 2], [3, 1]]), Layout.padded(5, 2, multiple=4), Layout.even(5, 7)]


class Rows(list[int]):
    """A list of one's own."""


def same(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        return bool(first.dtype == second.dtype and torch.equal(first, second))
    if isinstance(first, np.ndarray):
        return bool(first.dtype == second.dtype and np.array_equal(first, second))
    if isinstance(first, dict | UserDict | MappingProxyType):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    return bool(first == second)


BATCHES: list[Any] = [
    ["a", "b", "c", "d", "e"],
    ("a", "b", "c", "d", "e"),
    range(10, 15),
    range(20, 10, -2),
    Rows([1, 2, 3, 4, 5]),
    np.arange(5, dtype=np.int16),
    np.arange(10.0).reshape(5, 2),
    np.array(["a", "bc", "d", "e", "f"]),
    np.array([{}, None, 1, "x", 2.0], dtype=object),
    np.zeros((5, 0)),
    torch.arange(5, dtype=torch.bfloat16),
    torch.arange(10).reshape(5, 2),
    {"ids": np.arange(5), "text": ["a", "b", "c", "d", "e"], "deep": {"x": torch.arange(5)}},
    OrderedDict(z=[1, 2, 3, 4, 5], a=(1, 2, 3, 4, 5)),
    defaultdict(list, a=[1, 2, 3, 4, 5]),
    UserDict(a=[1, 2, 3, 4, 5]),
    MappingProxyType({"a": [1, 2, 3, 4, 5]}),
]


@pytest.mark.parametrize("layout", CUT, ids=["even", "explicit", "padded", "empty"])
@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: type(batch).__name__)
def test_every_kind_keeps_its_type_there_and_back(batch: Any, layout: Layout) -> None:
    parts = [layout.take(batch, shard) for shard in range(layout.shards)]
    if not isinstance(batch, range):
        assert {type(part) for part in parts} == {type(batch)}
    again = layout.collect(parts)
    if isinstance(batch, range) and any(isinstance(part, list) for part in parts):
        batch = list(batch)  # a range that was cut unevenly
    assert type(again) is type(batch)
    assert same(again, batch)


def test_neighbouring_rows_of_an_array_or_tensor_are_a_view() -> None:
    layout = Layout.even(10, 3)
    array, tensor = np.arange(20).reshape(10, 2), torch.arange(20).reshape(10, 2)
    assert np.shares_memory(layout.take(array, 1), array)
    assert layout.take(tensor, 1).data_ptr() == tensor[4:].data_ptr()
    assert layout.take({"x": array}, 1)["x"].base is array.base


def test_a_defaultdict_keeps_its_factory_and_a_mapping_its_order() -> None:
    part = Layout.even(4, 2).take(defaultdict(list, b=[1, 2, 3, 4], a=[1, 2, 3, 4]), 1)
    assert (part["missing"], list(part)[:2]) == ([], ["b", "a"])


@given(layouts(), st.sampled_from(["list", "tuple", "array", "tensor"]))
def test_pieces_of_every_kind_hold_the_same_rows(layout: Layout, kind: str) -> None:
    rows = list(range(layout.n))
    batch: Any = {"list": rows, "tuple": tuple(rows), "array": np.array(rows, np.int64), "tensor": torch.tensor(rows)}[
        kind
    ]
    for shard in range(layout.shards):
        piece = layout.take(batch, shard)
        plain = piece if kind in {"list", "tuple"} else piece.tolist()
        assert list(plain) == [*layout.rows(shard).tolist(), *layout.pads(shard).tolist()]


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: type(batch).__name__)
def test_dispatch_shares_one_piece_per_shard_of_every_kind(batch: Any) -> None:
    placement = DeviceMesh.from_sizes(dp_size=2, tp_size=2).placement()
    for layout in CUT[:3]:
        sent = layout.dispatch(batch, placement)
        assert sent[0] is sent[1]
        assert sent[2] is sent[3]
        again = layout.collect([sent[0], sent[2]])
        assert same(again, list(batch) if isinstance(again, list) else batch)


Named = namedtuple("Named", ["x", "y"])


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ("abcde", "not a str: text is never cut into rows"),
        (b"abcde", "not a bytes: text is never cut into rows"),
        (bytearray(5), "not a bytearray: text is never cut"),
        (None, "rows must be a list, tuple, range, NumPy array, torch tensor or mapping of columns, not a NoneType"),
        (5, "not a int"),
        (1.5, "not a float"),
        ({1, 2}, "not a set"),
        (iter([1]), "not a list_iterator"),
        (Named([1], [2]), "not a Named"),
        (np.array(5), "a NumPy array without dimensions has no rows"),
        (torch.tensor(5), "a torch tensor without dimensions has no rows"),
        ({}, "a mapping without columns has no rows"),
        ({"a": [1] * 5, "b": [1] * 4}, r"column \['b'\] has 4 rows, and column \['a'\] has 5"),
        ({"a": [1] * 5, "b": {"c": [1] * 4}}, r"column \['b'\]\['c'\] has 4 rows|column \['b'\] has 4 rows"),
        ({"a": [1] * 5, "b": "abcde"}, r"not a str in column \['b'\]: text is never cut"),
        ({"a": {"b": None}}, r"not a NoneType in column \['a'\]\['b'\]"),
        ([1, 2, 3], "the batch has 3 rows, and the layout is for 5"),
        ({"a": torch.zeros(6, 5)}, "the batch has 6 rows, and the layout is for 5"),
    ],
)
def test_what_is_no_batch_is_refused_by_name(batch: Any, message: str) -> None:
    layout = CUT[0]
    with pytest.raises(PlanError, match=message):
        layout.take(batch, 0)
    with pytest.raises(PlanError, match=message):
        layout.dispatch(batch, DeviceMesh.from_sizes(dp_size=2).placement())


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([[1, 2, 3]], "2 parts expected, one per shard, 1 found"),
        ([[1, 2, 3], [4], [5]], "2 parts expected, one per shard, 3 found"),
        ([[1, 2, 3], [4]], "shard 1: 2 rows expected, 1 found"),
        ([[1, 2, 3, 4], [5]], "shard 0: 3 rows expected, 4 found"),
        ([[1, 2, 3], (4, 5)], "shard 1: a list expected, as in shard 0, a tuple found"),
        ([[1, 2, 3], None], "not a NoneType in column  of shard 1|not a NoneType.*shard 1"),
        (["abc", "de"], "text is never cut"),
        ("abcde", "parts must be a list with one part per shard, not a str"),
        (5, "parts must be a list with one part per shard, not a int"),
        ({0: [1, 2, 3], 1: [4, 5]}, "parts must be a list with one part per shard, not a dict"),
        ([np.zeros(3), np.zeros(2, np.int64)], "shard 1: rows of dtype float64 and shape .* expected, .* dtype int64"),
        ([np.zeros((3, 2)), np.zeros((2, 3))], r"shard 1: rows of .* shape \(2,\) expected, .* shape \(3,\) found"),
        ([torch.zeros(3), torch.zeros(2, dtype=torch.int64)], "dtype torch.float32 .* expected, .* torch.int64"),
        ([np.zeros(3), torch.zeros(2)], "shard 1: a NumPy array expected, as in shard 0, a torch tensor found"),
        ([{"a": [1, 2, 3]}, {"b": [4, 5]}], r"shard 1: columns \['a'\] expected, as in shard 0, \['b'\] found"),
        ([{"a": [1, 2, 3]}, [4, 5]], "shard 1: a mapping of columns expected, as in shard 0, a list found"),
        ([{"a": [1, 2, 3]}, {"a": [4]}], r"shard 1 in column \['a'\]: 2 rows expected, 1 found"),
        ([{}, {}], "a mapping without columns has no rows"),
    ],
)
def test_parts_that_do_not_fit_are_refused_with_their_shard(parts: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        CUT[0].collect(parts)


def test_parts_that_take_made_of_a_derived_layout_are_refused_with_the_layout_they_belong_to() -> None:
    twice = Layout.even(3, 2).repeat(2)
    taken = [twice.take(list("abc"), shard) for shard in range(2)]
    with pytest.raises(PlanError, match=r"shard 0: 2 rows expected, 4 found \(this layout is derived .* settled\(\)"):
        twice.collect(taken)
    assert twice.settled().collect(taken) == list("aabbcc")


def test_an_empty_part_says_nothing_about_the_dtype() -> None:
    layout = Layout.even(2, 3)
    joined = layout.collect([np.ones(1, np.int8), np.ones(1, np.int8), np.zeros(0)])
    assert (joined.dtype, joined.tolist()) == (np.int8, [1, 1])
    assert Layout.chunked(0, 4).collect([]) == []
    assert Layout.even(0, 2).collect([np.zeros((0, 3)), np.zeros((0, 3))]).shape == (0, 3)


def test_refusals_carry_their_numbers() -> None:
    with pytest.raises(PlanError) as refused:
        CUT[0].collect([[1, 2, 3], [4]])
    assert (refused.value.shard, refused.value.expected, refused.value.found) == (1, 2, 1)
    with pytest.raises(PlanError) as refused:
        Layout.even(2, 4).require_rows()
    assert (refused.value.shards, refused.value.empty) == (4, [2, 3])


def test_dispatch_refuses_what_is_no_placement_of_its_shards() -> None:
    four = DeviceMesh.from_sizes(dp_size=4).placement()
    with pytest.raises(PlanError, match="a layout of 2 shards does not fit a placement of 4 shards"):
        CUT[0].dispatch([1] * 5, four)
    with pytest.raises(PlanError, match="dispatch needs a Placement"):
        CUT[0].dispatch([1] * 5, [0, 1])  # type: ignore[arg-type]


def test_plans_load_neither_torch_nor_numpy_until_they_are_needed() -> None:
    code = (
        "import sys; from twinkle.plan import Layout; layout = Layout.even(4, 2);"
        "assert 'numpy' not in sys.modules and 'torch' not in sys.modules;"
        "layout.collect([layout.take([1, 2, 3, 4], shard) for shard in range(2)]);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LIMIT)
