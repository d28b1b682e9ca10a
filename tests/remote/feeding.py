"""A component of model inputs: mappings of features, with pads, widths and folded results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from twinkle import DeviceMesh, remote_class, remote_function


def plain(value: Any) -> Any:
    """A value in numbers and lists alone."""
    if hasattr(value, "items"):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value.tolist() if hasattr(value, "tolist") else value


@remote_class()
class Model:
    """Says what of a batch of features each worker was given."""

    device_mesh: DeviceMesh

    @remote_function(dispatch="slice_dp", sync=True)
    def first(self, batch: Any) -> Any:
        return plain(batch)

    @remote_function(dispatch="slice_dp", rows="batch", sync=True)
    def declared(self, batch: Any) -> Any:
        return plain(batch)

    @remote_function(dispatch="slice_dp", rows="batch", sync=True, allow_empty=True)
    def sparse(self, batch: Any) -> Any:
        return plain(batch)

    @remote_function(dispatch="slice_dp", rows=("batch", "more"), sync=True, split="pad", loss_mask="labels")
    def padded(self, batch: Any, more: Any = None) -> Any:
        return plain(batch)

    # Widths: every row of a shard is as long as the longest number that the shard was given.

    @remote_function(dispatch="slice_dp", result_rows=("labels", "ids"), collect="flatten", pad_values={"ids": 7})
    def wide(self, sizes: Any) -> Any:
        return {key: torch.ones(len(sizes), max(sizes), dtype=torch.long) for key in ("labels", "ids")}

    @remote_function(dispatch="slice_dp", collect="flatten", pad_values={"int64": 5})
    def bare(self, sizes: Any) -> Any:
        return np.ones((len(sizes), max(sizes)), dtype=np.int64)

    @remote_function(dispatch="slice_dp", collect="flatten")
    def unnamed(self, sizes: Any) -> Any:
        return np.ones((len(sizes), max(sizes)), dtype=np.int64)

    @remote_function(sync=True)
    def whole(self, *args: Any, **kwargs: Any) -> Any:
        return plain(args), plain(kwargs)

    @remote_function(dispatch="slice_dp", rows=("x", "labels"), sync=True, pad_values={"x": 3, "ids": 4, "int64": 8})
    def widened(self, x: Any = None, labels: Any = None) -> Any:
        return plain([x, labels])

    @remote_function(dispatch="slice_dp", collect="flatten")
    def same(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True)
    def pulled(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", collect="flatten")
    def typed(self, kinds: Any) -> Any:
        return kinds[0](kinds)

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True)
    def typed_here(self, kinds: Any) -> Any:
        return kinds[0](kinds)

    @remote_function(dispatch="slice_dp", collect="flatten")
    def shard_s(self, rows: Any) -> Any:
        return rows[0]

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True)
    def shard_s_here(self, rows: Any) -> Any:
        return rows[0]

    @remote_function(dispatch="slice_dp", collect="mean", result_rows={"loss": ("mean", "tokens"), "peak": "max"})
    def folded(self, results: Any) -> Any:
        return results[0]

    @remote_function(dispatch="slice_dp", collect="first")
    def first_shard_s(self, results: Any) -> Any:
        return results[0]

    # Dispatched by a function.

    @remote_function(dispatch=lambda workers, worker, args, kwargs, mesh: args[0])
    def dispatched(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    # Arrays with a mask, and tensors that want a gradient.

    @remote_function(dispatch="slice_dp", collect="flatten")
    def half_masked(self, rows: Any) -> Any:
        return np.ma.array(list(rows), mask=[row % 2 for row in rows])

    @remote_function(dispatch="slice_dp", sync=True)
    def masks(self, rows: Any) -> Any:
        return type(rows).__name__, plain(np.ma.getmaskarray(rows))

    @remote_function(dispatch="slice_dp", collect="flatten")
    def graded(self, rows: Any) -> Any:
        return torch.ones(len(rows), 2 + rows[0] % 2, requires_grad=True) * 1.0

    @remote_function(dispatch="slice_dp", sync=True)
    def graphs(self, rows: Any) -> Any:
        return rows.requires_grad, rows.is_leaf

    @remote_function(dispatch="slice_dp", sync=True)
    def leaves(self, rows: Any) -> Any:
        """Of every tensor in the rows, whether it wants a gradient and is a leaf, and its number when all got one."""
        found = list(tensors_of(rows))
        with torch.no_grad():
            for tensor in found:
                tensor.add_(1)
        return [(tensor.requires_grad, tensor.is_leaf, tensor.flatten()[0].item()) for tensor in found]

    @remote_function(dispatch="slice_dp", collect="flatten")
    def made(self, rows: Any) -> Any:
        return [{"x": torch.ones(2, requires_grad=True) * row} for row in rows]


def tensors_of(value: Any) -> Iterator[Any]:
    """The tensors in some rows, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors_of(one)


def graded(*numbers: float) -> list[Any]:
    """Tensors with a graph, of these numbers."""
    return [torch.full((2,), float(number), requires_grad=True) * 1.0 for number in numbers]
