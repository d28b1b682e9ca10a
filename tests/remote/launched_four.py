"""What `test_local_rows.py` runs on four ranks: a file of JSON per rank says what was seen."""

from __future__ import annotations

import json
import sys
import threading
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import twinkle
from tests.remote import components
from tests.remote.examples import outcome, plain
from tests.remote.refusing import words
from twinkle import DeviceMesh, Global, Rows, remote_class, remote_function
from twinkle.dataloader import DataLoader
from twinkle.platform import Platform
from twinkle.remote import RemoteDataLoader, channels, parcels, share
from twinkle.remote.exchange import exchange

Echo: Any = components.Echo
Loaders: Any = RemoteDataLoader
TWO, FOUR = DeviceMesh.from_sizes(dp_size=2), DeviceMesh.from_sizes(dp_size=4)


@remote_class()
class Maker:
    """Makes rows and answers of kinds that travel in different ways."""

    device_mesh: DeviceMesh

    @remote_function(dispatch="slice_dp", collect="flatten")
    def wide(self, rows: Any) -> Any:
        """Every shard pads to a width of its own."""
        return torch.ones(len(rows), 200 + 300 * (self.device_mesh.data_rank or 0), requires_grad=True) * 2

    @remote_function(dispatch="slice_dp", collect="flatten")
    def columns(self, rows: Any) -> Any:
        half = torch.arange(len(rows) * 600, dtype=torch.bfloat16).reshape(-1, 600)
        fixed = np.zeros((len(rows), 300))
        fixed.flags.writeable = False
        return Rows({"half": half, "flags": half > 3, "fixed": fixed, "ids": list(rows)})

    @remote_function()
    def lock(self) -> Any:
        return threading.Lock() if Platform.get_rank() == 1 else None

    @remote_function()
    def fails_on(self, rank: int) -> Any:
        if Platform.get_rank() == rank:
            raise ValueError("this rank fails")
        return Platform.get_rank()

    @remote_function()
    def outer(self) -> Any:
        """A method that calls another, and one that makes an object: both are plain here, as in a worker."""
        return [self.inner(), Maker().inner(), list(DataLoader(range(4), batch_size=4, collate_fn=list))]

    @remote_function()
    def inner(self) -> Any:
        return self.device_mesh.data_rank

    @remote_function(dispatch="slice_dp")
    def shares(self, rows: Any) -> Any:
        return share().rows, list(range(8))[self.device_mesh.get_slice(8)]

    @remote_function(collect=lambda outputs, mesh: (mesh.world_size, outputs))
    def by_function(self) -> Any:
        return Platform.get_rank()


# A type checker does not see what the decorator adds.
Makers: Any = Maker


def tensors() -> Any:
    maker = Makers(device_mesh=TWO)
    taker: Any = Echo(device_mesh=DeviceMesh.from_axes({"dp": 4}))
    made = maker.columns(Global(list(range(6))))
    taken = {key: taker.same(column) for key, column in made.items()}
    first = [rows[0, 0].item() for rows, *_ in taker.rows_seen(made["half"].select([5, 4, 3, 2]))]
    wide = taker.pulled(maker.wide(Global(list(range(4)))))
    empty = Echo(device_mesh=FOUR).may_be_empty(taken["half"].select([1]))
    return (
        {key: plain(handle.gather())[:3] for key, handle in taken.items() if key != "ids"},
        torch.equal(taken["half"].gather().float(), made["half"].gather().float()),
        first,
        [list(wide.shape), wide.sum().item(), wide.requires_grad],
        plain(empty)[:3],
    )


def accelerator() -> Any:
    """Tensors of an accelerator that is a fake: every tensor counts as one on a device, whose backend is gloo."""
    taker: Any = Echo(device_mesh=FOUR)
    rows = torch.arange(4000.0).reshape(8, 500)
    found = []
    peers = exchange()
    assert peers is not None
    fakes = [lambda kind: channels.Able("gloo", f"fake device {Platform.get_rank()}"), lambda kind: None]
    for fake in fakes:
        with patch.object(parcels, "is_here", lambda flat: False), patch("twinkle.remote.exchange.able", fake):
            handle = Echo(device_mesh=TWO).same(Global([{"x": rows[at]} for at in range(8)]))
            again = taker.same(handle).gather()
            column = taker.pulled(Echo(device_mesh=TWO).same(Global(rows)))
        _, made = peers._channels.pop("cpu")
        same = all(torch.equal(row["x"], rows[at]) for at, row in enumerate(again)) and torch.equal(column, rows)
        found.append([made is not None, same])
    return found


def results() -> Any:
    two = Makers(device_mesh=DeviceMesh([2, 1], ("dp",)))
    four = Makers(device_mesh=FOUR)
    sums: Any = Echo(device_mesh=FOUR).same(Global(list(range(4))))

    def halves(row: int) -> float:
        return 1 / (row - 2)

    return (
        two.inner(),
        two.by_function(),
        four.shares(Global(list(range(8))))[3],
        four.outer(),
        words(four.lock),
        words(lambda: four.fails_on(2)),
        words(lambda: two.fails_on(3)),
        words(lambda: sums.map(halves)),
        words(lambda: sums.map(lambda row: threading.Lock()).gather()),
        sums.map(lambda row: [row] * row).lengths,
        four.inner(),
    )


class Torn:
    """A data set of which one row raises."""

    def __init__(self, bad: int) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 12

    def __getitem__(self, at: int) -> Any:
        if at == self.bad:
            raise OSError("torn row")
        return {"id": at, "pair": (at, float(at)), "text": f"row {at}", "more": {"x": np.full(3, at)}}


def loading() -> Any:
    """A plain loop over a plain loader, whose batches are handles here."""
    options: Any = {"batch_size": 8, "device_mesh": FOUR}
    loader = DataLoader(Torn(-1), **options)
    first = next(iter(loader))
    saved = loader.state_dict()
    shown = {
        key: [plain(part.local), plain(part.gather())[:3]]
        for key, part in {**first, "pair": first["pair"][1], "more": first["more"]["x"]}.items()
    }
    other = DataLoader(Torn(-1), **options)
    other.load_state_dict(saved)
    seen: Any = Echo(device_mesh=TWO)
    rest = [seen.rows_seen(batch)[1] for batch in other]
    wrong = DataLoader(range(8), collate_fn=lambda rows: {"id": rows, "x": {"y": rows[:1]}}, **options)
    plain_steps = [type(step.batch).__name__ for step in DataLoader(Torn(-1), **options).steps()]
    return shown, len(loader), [list(one[0]["text"]) for one in rest], words(lambda: list(wrong)), plain_steps


def launched() -> Any:
    """A loader of a mesh of two, in a job of four: every rank has the handles."""
    outside: Any = DeviceMesh([3, 1], ("dp",))
    options: Any = {"batch_size": 4, "device_mesh": outside}
    loader = Loaders(Torn(-1), **options)
    taker: Any = Echo(device_mesh=FOUR)
    found, states = [], []
    for batch in loader:
        found.append([plain(batch["id"].local), taker.pulled(batch["id"]).tolist(), batch["pair"][0].gather().tolist()])
        states.append([loader.state_dict()["next_row"], loader.state_dict()["epoch"], len(loader)])
        if len(found) == 2:
            break
    saved = loader.state_dict()
    other = Loaders(Torn(-1), collate_fn=lambda rows: [row["id"] for row in rows], **options)
    other.load_state_dict(saved)
    rest = [list(batch) for batch in other]
    torn = Loaders(Torn(6), collate_fn=list, **options)
    told = words(lambda: [batch.gather() for batch in torn])
    refused = words(lambda: Loaders(Torn(6), **{**options, "tail": "cut"}))
    twice: Any = Loaders(range(8), collate_fn=list, **options)
    ended = [words(lambda: list(zip(twice, twice, strict=True)))]
    begun = iter(twice)
    next(begun)
    ended.append(words(lambda: twice.load_state_dict({**twice.state_dict(), "seed": 7})))
    ended.append(next(begun).gather())
    twice.load_state_dict(twice.state_dict())
    ended.append(words(lambda: next(begun)))
    ended.append(words(lambda: Loaders(range(8), prefetch=0, **options)))
    everywhere = [batch.local for batch in Loaders(range(8), batch_size=8, collate_fn=list)]
    everywhere.append(ended)
    return found, states, rest, len(other), told, refused, everywhere, taker.pulled(Global(list(range(4))))


def main() -> None:
    warnings.simplefilter("error")
    twinkle.initialize("local")
    seen = {job.__name__: job() for job in (tensors, accelerator, results, loading, launched)}
    seen["laws"] = [outcome(seed) for seed in range(int(sys.argv[1]))]
    old: Any = Echo(device_mesh=FOUR).same(Global([1, 2, 3, 4]))
    twinkle.shutdown()
    seen["again"] = [words(old.gather)]
    twinkle.initialize("local")
    seen["again"].append(Echo(device_mesh=FOUR).pulled(Global([1, 2, 3, 4])))
    twinkle.shutdown()
    rank = Platform.get_rank()
    Path(sys.argv[2], f"{rank}.json").write_text(json.dumps({"rank": rank, **seen}), encoding="utf-8")


if __name__ == "__main__":
    main()
