"""What `test_local_models.py` runs on both ranks of a launcher: model inputs on two data ranks, and on one of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import twinkle
from tests.remote import feeding
from tests.remote.refusing import words
from twinkle import DeviceMesh, Global
from twinkle.dataloader import DataLoader
from twinkle.platform import Platform

# A type checker does not see what the decorator adds.
Model: Any = feeding.Model


def singles(two: Any, last: Any) -> Any:
    samples: Any = [{"input_ids": torch.arange(2) + at, "labels": at} for at in range(4)]
    (read,) = DataLoader(samples, batch_size=4, device_mesh=two.device_mesh)
    one = {"input_ids": [1, 2], "labels": [1, 2]}
    mine = {"input_ids": [Platform.get_rank()] * 2}
    return (
        two.first(read),
        last.declared(read),
        two.padded(Global(one)),
        two.sparse(Global(one)),
        two.declared(mine),
        words(lambda: two.first({"input_ids": [[1], [2]]})),
    )


def widths(two: Any, last: Any) -> Any:
    made = two.wide(Global([2, 3]))
    labels, ids = made["labels"], made["ids"]
    return (
        last.first(labels),
        last.declared({"a": labels, "b": ids}),
        last.first(labels.zip(ids)),
        two.whole([ids])[1],
        last.widened(labels, ids),
        last.first(labels.concat(ids)),
        last.declared({"labels": two.unnamed(Global([2, 3]))}),
    )


def arrays(two: Any, last: Any) -> Any:
    masked, graded = two.half_masked(Global([0, 1, 2, 3])), two.graded(Global([0, 0, 0, 1]))
    gathered = graded.gather()
    return (
        np.ma.getmaskarray(masked.gather()).tolist(),
        last.masks(masked),
        two.masks(masked.select([3, 0, 1, 2])),
        (gathered.requires_grad, gathered.is_leaf),
        [model.graphs(rows) for model in (two, last) for rows in (graded, graded.select([3, 0, 2, 1]))],
    )


def graphs(two: Any, last: Any) -> Any:
    """Rows that a rank has itself, of which every rank has two."""
    a, b = feeding.graded(1, 2)
    made = last.made(Global([3, 4]))
    mine = made.local
    return (
        two.leaves(feeding.graded(Platform.get_rank(), 7)),
        two.leaves(Global(feeding.graded(1, 2, 3, 4))),
        two.leaves([{"x": [a], "y": (b, "text")}, {"x": [b + Platform.get_rank()]}]),
        two.leaves(two.made(Global([1, 2])).zip(feeding.graded(5, 6))),
        two.leaves({"input_ids": a + Platform.get_rank()}),
        [[tensor.requires_grad, tensor.is_leaf] for tensor in feeding.tensors_of(mine or [])],
        [tensor.is_leaf for tensor in feeding.tensors_of(made.map(lambda row: row["x"] * 2).local or [])],
        a.requires_grad and not a.is_leaf,
    )


def results(two: Any, _: Any) -> Any:
    return (
        two.first_shard_s(Global([{"a": 1}, None])),
        two.folded(Global([{"loss": 1.0, "tokens": 1, "peak": np.nan}, {"loss": 5.0, "tokens": 3, "peak": 1.0}])),
        words(lambda: two.folded(Global([{"loss": 1.0, "tokens": 1, "peak": 1}, {"loss": 1.0, "tokens": 1}]))),
        words(lambda: two.typed(Global([list, tuple]))),
    )


def main() -> None:
    out = Path(sys.argv[1])
    twinkle.initialize("local")
    two = Model(device_mesh=DeviceMesh.from_sizes(dp_size=2))
    last = Model(device_mesh=DeviceMesh(np.array([1]), ("dp",)))
    seen = {job.__name__: job(two, last) for job in (singles, widths, arrays, graphs, results)}
    twinkle.shutdown()
    (out / f"{Platform.get_rank()}.json").write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    main()
