"""Tensors as rows, on workers of a real local Ray that import torch because their class does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from twinkle import DeviceMesh, Rows, remote_class, remote_function

pytestmark = pytest.mark.usefixtures("job")


@remote_class()
class Tensors:
    def __init__(self) -> None:
        import torch

        self.torch = torch

    @remote_function(dispatch="slice_dp", collect="flatten")
    def same(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", collect="flatten", lazy_collect=False)
    def wide(self, rows: Any) -> Any:
        width = 1 + int(rows[0])
        ones = self.torch.ones(len(rows), width)
        return Rows({"labels": ones.long(), "attention_mask": ones.bool(), "logps": ones.half()})

    @remote_function(dispatch="slice_dp", collect="mean", result_rows={"worst": "max", "total": "sum"})
    def losses(self, rows: Any) -> Any:
        loss = rows.float().mean()
        return {"loss": loss, "worst": rows.max(), "total": len(rows), "per_head": self.torch.stack([loss, loss * 2])}


@pytest.fixture(scope="module")
def tensors(job: None) -> Any:
    kind: Any = Tensors
    return kind(device_mesh=DeviceMesh.from_axes({"dp": 2}), remote_group="cpu2")


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.bool])
def test_tensors_are_cut_and_joined_with_their_dtype(tensors: Any, dtype: torch.dtype) -> None:  # D23
    rows = torch.arange(10).reshape(5, 2).to(dtype)
    assert torch.equal(tensors.same(rows).gather(), rows)
    handle = tensors.same(tensors.same(rows).select([4, 0, 1]))
    assert torch.equal(handle.gather(), rows[[4, 0, 1]])


def test_large_integers_stay_exact(tensors: Any) -> None:  # D30
    rows = torch.tensor([2**24 + 1, 2**53 + 1])
    assert tensors.same(rows).gather().tolist() == [2**24 + 1, 2**53 + 1]


def test_only_widths_are_padded_by_key_and_dtype(tensors: Any) -> None:  # D26
    found = tensors.wide(torch.tensor([0, 1, 2]))
    assert found["labels"].tolist() == [[1, -100, -100], [1, -100, -100], [1, 1, 1]]
    assert found["attention_mask"].tolist() == [[True, False, False], [True, False, False], [True, True, True]]
    assert (found["attention_mask"].dtype, found["logps"].dtype) == (torch.bool, torch.half)


def test_losses_are_weighted_by_rows_whatever_their_type(tensors: Any) -> None:  # D27, D29
    found = tensors.losses(torch.tensor([1.0, 1.0, 1.0, 5.0, 5.0]))
    assert float(found["loss"]) == pytest.approx(2.6)
    assert found["per_head"].tolist() == pytest.approx([2.6, 5.2])
    assert (float(found["worst"]), found["total"]) == (5.0, 5)


def test_lists_of_tensors_of_different_lengths_stay_lists(tensors: Any) -> None:  # D24
    rows = [torch.arange(3), torch.arange(2), torch.arange(4)]
    back = tensors.same(rows).gather()
    assert [row.tolist() for row in back] == [row.tolist() for row in rows]
    assert tensors.same(rows).lengths == [3, 2, 4]


def test_a_tensor_without_dimensions_is_the_same_for_all(tensors: Any) -> None:  # D21
    assert tensors.losses(torch.tensor([1.0, 3.0]))["total"] == 2
