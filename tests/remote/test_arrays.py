"""Arrays and tensors on their way: masks stay, graphs do not, and a type of one's own is kept."""

from __future__ import annotations

import time
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import twinkle
from tests.remote import feeding
from tests.remote.feeding import graded, tensors_of
from tests.remote.inline import component, inline_ray
from twinkle import DeviceMesh, Same
from twinkle.errors import PlanError
from twinkle.plan import Layout
from twinkle.remote import rows as row_tools
from twinkle.remote.graphs import Known, without_graphs

# A type checker does not see what the decorator adds.
Model: Any = feeding.Model


@pytest.fixture
def two() -> Iterator[Any]:
    with inline_ray():
        yield component(Model, DeviceMesh.from_sizes(dp_size=2))


@pytest.fixture
def alone() -> Iterator[Any]:
    twinkle.initialize("local")
    yield Model()
    twinkle.shutdown()


def masked(*rows: Any) -> Any:
    return np.ma.array(rows, mask=[row % 2 for row in rows])


def test_masked_arrays_keep_their_mask_when_pieces_are_joined(two: Any) -> None:
    one = component(Model, DeviceMesh.from_sizes(dp_size=1))
    made = two.half_masked([0, 1, 2, 3])
    for rows in (made.gather(), made.concat(made)[4:].gather()):
        assert (type(rows), rows.mask.tolist()) == (np.ma.MaskedArray, [False, True, False, True])
    picked = made.select([3, 0, 1])
    assert picked.gather().mask.tolist() == [True, False, True]
    assert one.masks(made) == [("MaskedArray", [False, True, False, True])]
    assert one.masks(picked) == [("MaskedArray", [True, False, True])]
    assert two.masks(made.repeat(2)) == [("MaskedArray", [False, False, True, True])] * 2


def test_masked_arrays_keep_their_mask_in_this_process(alone: Any) -> None:
    made = alone.half_masked([0, 1, 2, 3])
    assert made.select([3, 0]).gather().mask.tolist() == [True, False]
    assert made.concat(made).gather().mask.tolist() == [False, True] * 4
    assert alone.masks(made.select([1, 0])) == [("MaskedArray", [True, False])]


def test_masked_arrays_that_are_widened_keep_their_mask() -> None:
    narrow, wide = np.ma.array([[1]], mask=[[True]]), np.ma.array([[2, 3]], mask=[[False, True]])
    found = row_tools.join([narrow, wide], None, "labels")
    assert (found.mask.tolist(), found.data.tolist()[1][0]) == ([[True, False], [False, True]], 2)
    assert found[0, 1] == -100
    layout = Layout.even(2, 2)
    assert layout.collect([masked(1), masked(2)]).mask.tolist() == [True, False]


def masked_hard(*rows: Any) -> Any:
    made = masked(*rows)
    made.fill_value = 77
    return made.harden_mask()


def test_masked_arrays_keep_what_fills_them_and_that_their_mask_is_hard(alone: Any) -> None:
    layout = Layout.even(2, 2)
    wide = np.ma.array([[2, 3]], mask=[[False, True]], fill_value=78, hard_mask=True)
    joined = [
        row_tools.join([masked_hard(1, 2), masked_hard(3)]),
        layout.collect([masked_hard(1), masked_hard(2)]),
        row_tools.join([masked_hard(1, 2)[:, None], wide], None, "labels"),
        alone.same(masked_hard(1, 2)).concat(alone.same(masked_hard(3))).gather(),
    ]
    for rows in joined:
        assert (int(rows.fill_value), rows.hardmask) == (77, True)
        rows[...] = 5
        assert rows.mask.any()
    soft = row_tools.join([masked(1), masked(2)])
    assert (soft.fill_value, soft.hardmask) == (masked(1).fill_value, False)


def test_masked_arrays_keep_what_fills_them_on_their_way(two: Any) -> None:
    made = two.same(masked_hard(0, 1, 2, 3))
    for rows in (made, made.select([3, 0]), made.repeat(2), made.concat(made)):
        assert int(rows.gather().fill_value) == 77


class Unit(np.ndarray):
    """An array that knows what it is measured in."""

    unit: Any

    def __array_finalize__(self, other: Any) -> None:
        self.unit = getattr(other, "unit", None)


class Fixed(np.ndarray):
    """An array that is made in no other size than it has."""

    def __array_finalize__(self, other: Any) -> None:
        if self.size != 1:
            raise ValueError("of one item")


def in_unit(*rows: int) -> Unit:
    made = np.array(rows).view(Unit)
    made.unit = "m"
    return made


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_arrays_of_a_class_of_their_own_are_joined_as_that(two: Any, alone: Any) -> None:
    records = np.rec.array([(1, 2.0), (3, 4.0), (5, 6.0)], dtype=[("a", int), ("b", float)])
    matrix, texts = np.asmatrix([[1, 2], [3, 4]]), np.char.array(["a", "bb", "c"])
    for rows in (records, matrix, texts, in_unit(1, 2, 3)):
        for model in (two, alone):
            made = model.same(rows)
            for found in (made, made.concat(made)[len(rows) :], made.select([1, 0]).select([1, 0])):
                assert type(found.gather()) is type(rows)
                assert found.gather().tolist() == rows.tolist()[: len(found)]
            assert type(component(Model, DeviceMesh.from_sizes(dp_size=1)).same(two.same(rows)).gather()) is type(rows)
        assert type(row_tools.join([rows[:1], rows[1:]])) is type(rows)
        collected = Layout.even(len(rows), 2).collect([rows[:-1], rows[-1:]])
        assert (type(collected), collected.tolist()) == (type(rows), rows.tolist())
    assert two.same(records).gather().a.tolist() == [1, 3, 5]
    assert row_tools.join([in_unit(1), in_unit(2)]).unit == "m"
    assert Layout.even(2, 2).collect([in_unit(1), in_unit(2)]).unit == "m"
    wider = row_tools.join([in_unit(1)[:, None], in_unit(2, 3)[None]])
    assert (type(wider), wider.unit, wider.tolist()) == (Unit, "m", [[1, 0], [2, 3]])


def test_arrays_of_a_class_that_numpy_cannot_make_anew_are_refused_by_name() -> None:
    pieces = [np.array([at]).view(Fixed) for at in (1, 2)]
    for join in (lambda: row_tools.join(pieces, None, "ids"), lambda: Layout.even(2, 2).collect(pieces)):
        with pytest.raises(PlanError, match=r"arrays of type Fixed cannot be put together: ValueError: of one item; "):
            join()


def test_tensors_arrive_without_a_graph_whichever_way_they_travel(two: Any) -> None:
    one = component(Model, DeviceMesh.from_sizes(dp_size=1))
    made = two.graded([0, 0, 0, 0])
    wider = two.graded([0, 1])
    for rows in (made, made[:1], made.select([2, 1, 3, 0]), made.repeat(2), made.concat(made), wider):
        for rank in (*one.graphs(rows), (rows.gather().requires_grad, rows.gather().is_leaf)):
            assert rank == (True, True)
    assert two.graphs(made.select([3, 0, 0, 1])) == [(True, True)] * 2
    assert (made[0].requires_grad, made[0].is_leaf) == (True, True)
    given = torch.ones(4, 2, requires_grad=True) * 2
    assert two.graphs(given) == [(True, True)] * 2
    assert two.graphs(given.detach()) == [(False, True)] * 2


def test_tensors_of_this_process_arrive_without_a_graph(alone: Any) -> None:
    made = alone.graded([0, 0, 0])
    for rows in (made, made[:1], made.select([2, 0]), made.concat(made)):
        assert (rows.gather().requires_grad, rows.gather().is_leaf) == (True, True)
        assert alone.graphs(rows) == [(True, True)]
    assert made.local.is_leaf
    given = torch.ones(4, 2, requires_grad=True) * 2
    assert alone.graphs(given) == alone.graphs(given.detach().requires_grad_()) == [(True, True)]
    assert alone.pulled(given).is_leaf


def check_leaves(model: Any, shared: float) -> None:
    """Rows of tensors with a graph come as leaves, and what comes twice is two rows."""
    a, b = graded(1, 2)
    assert model.leaves([a, b]) == [[(True, True, 2), (True, True, 3)]]
    assert [found[:2] for (row,) in [model.leaves([{"x": a, "y": [b]}])] for found in row] == [(True, True)] * 2
    a, b = graded(1, 2)
    assert model.leaves([a, a]) == [[(True, True, 2)] * 2]
    row = {"x": b}
    assert model.leaves([row, row]) == [[(True, True, 3)] * 2]
    assert model.leaves(model.made([3, 4])) == [[(True, True, 4), (True, True, 5)]]
    assert not a.is_leaf
    assert a[0].item() == shared


def test_tensors_in_rows_arrive_without_a_graph_on_ray_and_alone(two: Any) -> None:
    check_leaves(component(Model, DeviceMesh.from_sizes(dp_size=1)), 1)
    twinkle.shutdown()
    twinkle.initialize("local")
    try:
        # Here they are the caller's as well.
        check_leaves(Model(), 2)
        made = Model().made([3, 4])
        for rows in (made.local, made.gather(), made.map(lambda row: row["x"] * 2).local):
            assert all(tensor.is_leaf and tensor.requires_grad for tensor in tensors_of(rows))
    finally:
        twinkle.shutdown()


def test_rows_without_graphs_are_the_objects_that_they_were() -> None:
    (graph,) = graded(1)
    kept, cut = {"x": torch.ones(2, requires_grad=True)}, {"x": graph, "y": [1, 2]}
    known: Known = {}
    rows = [kept, cut, cut, (graph, 1)]
    found = without_graphs(rows, known)
    assert found is not rows
    assert found[0] is kept
    assert found[1] is found[2] is not cut
    assert found[1]["x"] is found[3][0] is without_graphs({"z": graph}, known)["z"]
    assert found[1]["y"] is cut["y"]
    assert found[1]["x"].data_ptr() == graph.data_ptr()
    assert without_graphs([kept], {})[0] is kept
    assert without_graphs(graph, {}).is_leaf
    around: dict[str, Any] = {"x": graph}
    around["self"] = around
    (whole,) = without_graphs([around], {})
    assert whole["self"] is whole
    assert whole["x"].is_leaf
    assert not graph.is_leaf


def test_a_leaf_of_another_tensor_is_not_copied(alone: Any) -> None:
    whole = torch.ones(2, 2, requires_grad=True)
    part = row_tools.take(whole, [(0, 1)])
    assert (part.data_ptr(), part.is_leaf, part.requires_grad) == (whole.data_ptr(), True, True)
    assert row_tools.take(whole, [(0, 2)]) is whole


def uncut() -> dict[str, Any]:
    parts = [torch.ones(2), torch.ones(3)]
    return {
        "torch.sparse_coo": torch.eye(2).to_sparse(),
        "torch.sparse_csr": torch.eye(2).to_sparse_csr(),
        "nested": torch.nested.nested_tensor(parts),
        "nested, torch.jagged": torch.nested.nested_tensor(parts, layout=torch.jagged),
    }


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("layout", ["torch.sparse_coo", "torch.sparse_csr", "nested", "nested, torch.jagged"])
def test_tensors_whose_rows_are_not_apart_are_refused_with_method_key_and_worker(
    two: Any, alone: Any, layout: str
) -> None:
    rows = uncut()[layout]
    for model in (two, alone):
        given = rf"of layout {layout}, whose rows cannot be cut: pass a dense tensor or a list of tensors, or wrap"
        for call in (model.first, model.declared, model.same):
            with pytest.raises(PlanError, match=rf"^Model.\w+: \w+ is a tensor {given}"):
                call(rows)
        for column in ({"a": [1, 2], "b": rows}, {"a": [1, 2], "input_ids": rows}):
            with pytest.raises(PlanError, match=rf"^Model.declared: batch\['(b|input_ids)'\] is a tensor {given}"):
                model.declared(column)
        returned = rf"worker 0 returned rows at 'rows' that are a .*Tensor of torch.float32 of layout {layout}, whose"
        for call in (model.shard_s, model.shard_s_here):
            with pytest.raises(PlanError, match=rf"^Model.{call.__name__}: {returned} rows cannot be cut: return a de"):
                call([rows, rows])
    with pytest.raises(PlanError, match=f"a torch tensor of layout {layout} has no rows that could be cut: make it"):
        Layout.even(2, 2).take(rows, 0)


def test_sparse_tensors_are_the_same_for_all_and_rows_of_a_list(two: Any) -> None:
    rows = torch.eye(2).to_sparse()
    for found in (two.same([rows, rows]).gather(), [args[0] for args, _ in two.dispatched(([Same(rows)], {}))]):
        assert [(one.layout, one.to_dense().tolist()) for one in found] == [(torch.sparse_coo, [[1, 0], [0, 1]])] * 2


class Tagged(list[Any]):
    """A list whose constructor wants more than items."""

    def __init__(self, items: Any, tag: str) -> None:
        super().__init__(items)
        self.tag = tag


class Marked(tuple[Any, ...]):
    """A tuple whose constructor wants more than items."""

    mark: str

    def __new__(cls, items: Any, mark: str) -> Marked:
        made = super().__new__(cls, items)
        made.mark = mark
        return made

    def __getnewargs__(self) -> Any:
        return tuple(self), self.mark


class Counted(list[Any]):
    """A list whose constructor takes no items."""

    def __init__(self, count: int = 0) -> None:
        super().__init__(range(count))


Pair = namedtuple("Pair", ["first", "second"])


def test_lists_and_tuples_of_a_class_of_one_s_own_are_cut_and_joined_as_that(two: Any, alone: Any) -> None:
    for model in (two, alone):
        for rows, word in ((Tagged([1, 2, 3, 4], "t"), "tag"), (Marked([1, 2, 3, 4], "t"), "mark")):
            handle = model.same(rows)
            for found in (handle.gather(), handle.select([3, 0]).gather(), handle[1:2].gather()):
                assert type(found) is type(rows)
                assert getattr(found, word) == "t"
            assert list(handle.select([3, 0]).gather()) == [4, 1]
        assert model.same(Counted(4)).gather() == [0, 1, 2, 3]
        assert type(model.same(Counted(4)).select([0, 3]).gather()) is Counted


def test_sizes_of_tensors_are_rows_as_any_tuple(two: Any) -> None:
    assert two.same(torch.Size([1, 2])).gather() == torch.Size([1, 2])


def test_a_class_whose_rows_cannot_be_put_together_is_refused(two: Any) -> None:
    with pytest.raises(PlanError, match=r"a struct_time cannot be made of other items, .*; pass a list of"):
        two.same(time.gmtime(0))


def test_pads_in_rows_of_a_class_of_one_s_own_are_masked(two: Any) -> None:
    samples = [{"labels": Tagged([at, at], "t"), "more": Pair(at, at)} for at in range(3)]
    for rows in (Tagged(samples, "t"), two.same(samples)):
        found = two.padded(rows)[1]
        assert found == [{"labels": [2, 2], "more": [2, 2]}, {"labels": [-100, -100], "more": [2, 2]}]
    named = [{"labels": Pair([at], at)} for at in range(3)]
    assert two.padded(named)[1] == [{"labels": [[2], 2]}, {"labels": [[-100], -100]}]
