"""What `test_local.py` runs on every rank of a launcher: a file of JSON per rank says what was seen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import twinkle
from tests.remote import components
from tests.remote.refusing import words
from twinkle import DeviceMesh, Global
from twinkle.dataloader import DataLoader
from twinkle.plan import Layout
from twinkle.platform import Platform
from twinkle.remote import traffic
from twinkle.remote.keeping import local_handle, local_keeper

# A type checker does not see what the decorator adds.
Echo: Any = components.Echo
Loader: Any = components.Loader


def reference_flow() -> Any:
    sampler: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=4))
    actor: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=2, pp_size=2, tp_size=2))
    rows = [{"id": at, "ids": torch.arange(at)} for at in range(10)]
    samples = sampler.same(Global(rows))
    traffic.reset()
    seen = [rows for rows, _, _ in actor.rows_seen(samples)]
    moved = traffic.moved_rows
    output = actor.same(samples)
    ids = [row["id"] for row in output.gather()]
    picked = [row["id"] for row in actor.same(samples.select([9, 0, 0, 4])).gather()]
    mapped = actor.same(samples.map(lambda row: row["id"] * 2)).gather()
    return [[row["id"] for row in rows] for rows in seen], moved, ids, picked, mapped


def plain_lists() -> Any:
    actor: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=2, pp_size=2, tp_size=2))
    mine = list(range(3)) if actor.device_mesh.data_rank == 0 else [10, 11]
    return (
        actor.same(mine).gather(),
        words(lambda: actor.same([Platform.get_rank()])),
        actor.pulled(Global(np.arange(7))).tolist(),
        words(lambda: actor.same(Global([1]))),
        actor.mean_number(Global([1.0, 1.0, 1.0, 5.0, 5.0])),
        actor.by_key(Global([1, 2, 3, 4, 10]))["loss"],
    )


def balanced() -> Any:
    source: Any = Echo(device_mesh=DeviceMesh.from_axes({"fsdp": 2, "dp": 2}))
    target: Any = Echo(device_mesh=DeviceMesh.from_axes({"dp": 2, "tp": 2}))
    made = source.same(Global([[0] * size for size in (9, 1, 4, 3, 8, 2, 6, 5, 7, 7, 1)]))
    lengths = made.lengths
    layout = Layout.balanced(lengths, 2)
    order = np.concatenate([layout.rows(shard) for shard in range(2)])
    back = target.same(made.select(order)).gather()
    return lengths, [len(row) for row in back] == [lengths[at] for at in order.tolist()]


def padding() -> Any:
    two: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=2))
    four: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=4))
    handle = two.same(Global([{"labels": [at]} for at in range(2)]))
    return four.padded_seen(handle), [row["labels"] for row in four.padded(handle)]


def failures() -> Any:
    actor: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=4, tp_size=2))
    return (
        words(lambda: actor.fails_on(Global(list(range(8))), 2)),
        words(lambda: actor.wrong_length(Global(list(range(8))))),
        words(lambda: actor.verified(Global(list(range(8))), drift=True)),
        actor.pulled(Global(list(range(8)))),
    )


def first_alone() -> Any:
    loader: Any = Loader(8, device_mesh=DeviceMesh.from_sizes(dp_size=4))
    actor: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=4, tp_size=2))
    return (
        actor.pulled(loader.batch(8)),
        actor.first_alone(Global([1, 2])).gather(),
        actor.per_worker(Global(list(range(8)))),
        actor.lead_only(Global([1, 2, 3, 4])),
    )


def brought() -> Any:
    mesh = DeviceMesh.from_sizes(dp_size=2, tp_size=2)
    actor: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=4, tp_size=2))
    layout = Layout.even(9, 2)
    mine = None if mesh.data_rank is None else layout.take(list(range(9)), mesh.data_rank)
    handle = local_handle(mine, layout, local_keeper(mesh))
    return handle.local, actor.pulled(handle), actor.same(Global(list(range(8)))).local


def loaded() -> Any:
    mesh = DeviceMesh.from_sizes(dp_size=4, tp_size=2)
    actor: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=2, pp_size=2, tp_size=2))
    loader = DataLoader(range(12), batch_size=8, device_mesh=mesh, collate_fn=list)
    return [(batch.local, actor.pulled(batch)) for batch in loader]


def joined() -> Any:
    one: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=4))
    two: Any = Echo(device_mesh=DeviceMesh.from_axes({"fsdp": 2, "dp": 2}, offset=4))
    actor: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=2, pp_size=2, tp_size=2))
    four: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=4))
    first, second = one.same(Global(list(range(6)))), two.same(Global(list(range(6, 13))))
    mesh = DeviceMesh.from_sizes(dp_size=4, tp_size=2)
    loader = DataLoader(range(20, 28), batch_size=8, device_mesh=mesh, collate_fn=list)
    (batch,) = loader
    traffic.reset()
    seen = [rows for rows, *_ in actor.rows_seen([first, second.select([6, 0, 0]), batch])]
    moved = traffic.moved_rows
    whole = first.concat(second, batch)
    labels = [one.same(Global([{"labels": [at]} for at in range(4)]))[2:], two.same(Global([{"labels": [9]}] * 4))[:1]]
    return (
        seen,
        moved,
        actor.same([first, second]).gather(),
        whole.repeat(2)[20:30].gather(),
        [row["labels"] for rows in four.padded_seen(labels) for row in rows],
        first.zip(first).concat(second.zip(second.map(lambda row: row * 2)))[5:8].gather(),
        words(lambda: first.concat(one.same(Global(np.arange(4))))),
    )


def main() -> None:
    twinkle.initialize("local")
    seen = {
        job.__name__: job()
        for job in (reference_flow, plain_lists, balanced, padding, failures, first_alone, brought, loaded, joined)
    }
    seen["mesh"] = repr(DeviceMesh.from_sizes(dp_size=8) == twinkle.runtime.current.device_mesh)
    twinkle.shutdown()
    rank = Platform.get_rank()
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps({"rank": rank, **seen}), encoding="utf-8")


if __name__ == "__main__":
    main()
