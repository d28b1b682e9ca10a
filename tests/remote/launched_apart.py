"""What `test_local_apart.py` runs on four ranks that do not do the same: a file of JSON per rank says what was seen."""

from __future__ import annotations

import json
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed

import twinkle
from tests.remote.refusing import words
from tests.waiting import PATIENCE
from twinkle import DeviceMesh, Global, Rows, remote_class, remote_function
from twinkle.dataloader import DataLoader
from twinkle.errors import PlanError, RemoteCallError
from twinkle.plan import Layout
from twinkle.platform import Platform
from twinkle.remote import RemoteDataLoader

Loaders: Any = RemoteDataLoader
TWO, FOUR = DeviceMesh.from_sizes(dp_size=2), DeviceMesh.from_sizes(dp_size=4)
RANK = Platform.get_rank()
EIGHT = Global(list(range(8)))


class Unreadable:
    """Can be pickled, and read on rank 0 alone."""

    def __reduce__(self) -> Any:
        return read_on_first, ()


def read_on_first() -> int:
    if RANK:
        raise OSError("no such class here")
    return 0


def split(rows: int, shards: int) -> Any:
    """One of the layouts is none on rank 2, and of other rows there is another one."""
    if rows == 8:
        return 5 if RANK == 2 else Layout.even(rows, shards)
    return Layout.balanced([1 + RANK // 2 * row for row in range(rows)], shards)


@remote_class()
class Part:
    """A component whose methods and constructor fail where they are told to."""

    def __init__(self, bad: Any = ()) -> None:
        if RANK in bad:
            raise ValueError("nothing is built here")

    @remote_function(dispatch="slice_dp", collect="flatten", timeout=PATIENCE)
    def one(self, rows: Any) -> Any:
        return list(rows)

    @remote_function(dispatch="slice_dp", collect="flatten", timeout=PATIENCE)
    def other(self, rows: Any) -> Any:
        return [-row for row in rows]

    @remote_function(dispatch="slice_dp", rows="rows", collect="flatten", timeout=PATIENCE)
    def column(self, rows: Any) -> Any:
        return list(rows["x"])

    @remote_function(timeout=PATIENCE)
    def rank(self) -> Any:
        return RANK

    @remote_function(timeout=PATIENCE)
    def long(self) -> None:
        if RANK == 3:
            raise ValueError("x" * 100_000)

    @remote_function(timeout=PATIENCE)
    def held(self, begun: threading.Event, go: threading.Event) -> Any:
        begun.set()
        assert go.wait(PATIENCE)
        return RANK

    @remote_function(timeout=PATIENCE)
    def interrupted(self) -> Any:
        if RANK == 2:
            raise KeyboardInterrupt
        return RANK

    @remote_function(timeout=PATIENCE)
    def from_rank_on(self, rank: int, *, interrupted: bool = False) -> None:
        if interrupted and rank + 1 == RANK:
            raise KeyboardInterrupt
        if rank <= RANK:
            raise ValueError(f"rank {RANK} fails")

    @remote_function(collect="none", timeout=PATIENCE)
    def unreadable(self) -> Any:
        return Unreadable()

    @remote_function(dispatch="slice_dp", collect="flatten", lazy_collect=False, timeout=PATIENCE)
    def wants_gradient(self, rows: Any) -> Any:
        return [rows.requires_grad] * len(rows)

    @remote_function(dispatch="slice_dp", collect="flatten", timeout=PATIENCE)
    def gradient(self, rows: Any) -> Any:
        return torch.ones(len(rows), 300, requires_grad=True) * 2

    @remote_function(dispatch="slice_dp", split=split, timeout=PATIENCE)
    def split_here(self, rows: Any) -> Any:
        return list(rows)


# A type checker does not see what the decorator adds.
Parts: Any = Part


class Torn:
    """A data set with one row that raises."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, at: int) -> Any:
        if at == 13:
            raise OSError("torn row")
        return at


def another_method(first: Any, second: Any, a: Any, b: Any) -> Any:
    return first.one(EIGHT) if RANK == 0 else first.other(EIGHT)


def another_object(first: Any, second: Any, a: Any, b: Any) -> Any:
    return first.one(EIGHT) if RANK == 0 else second.one(EIGHT)


def another_handle(first: Any, second: Any, a: Any, b: Any) -> Any:
    return (b if RANK == 2 else a).gather()


def another_argument(first: Any, second: Any, a: Any, b: Any) -> Any:
    return first.one(b if RANK == 2 else a)


def another_row(first: Any, second: Any, a: Any, b: Any) -> Any:
    return a[7] if RANK == 2 else a[0]


def other_rows_of_an_argument(first: Any, second: Any, a: Any, b: Any) -> Any:
    return first.one(a.select([7, 1, 2, 3] if RANK == 2 else [0, 1, 2, 3]))


def another_split(first: Any, second: Any, a: Any, b: Any) -> Any:
    return first.split_here(Global(list(range(12))))


def another_split_of_an_argument(first: Any, second: Any, a: Any, b: Any) -> Any:
    return first.split_here(a.repeat(2))


def a_mapped_one(first: Any, second: Any, a: Any, b: Any) -> Any:
    same, negated = a.map(abs), a.map(lambda row: -row)
    return (negated if RANK == 2 else same).gather()


def printed_on_one(first: Any, second: Any, a: Any, b: Any) -> Any:
    if RANK == 0:
        a[0]
    return first.one(EIGHT)


def one_call_more(first: Any, second: Any, a: Any, b: Any) -> Any:
    if RANK == 3:
        first.one(EIGHT)
    return first.rank()


def one_object_less(first: Any, second: Any, a: Any, b: Any) -> Any:
    if RANK != 3:
        Parts(device_mesh=FOUR)
    return first.rank()


def a_loader_that_fails(first: Any, second: Any, a: Any, b: Any) -> Any:
    """The rank whose reading fails goes on without the others, who are in the loop."""
    try:
        for batch in DataLoader(Torn(), batch_size=8, collate_fn=list):
            first.one(batch)
    except PlanError:
        return first.other(EIGHT)


def a_longer_loader(first: Any, second: Any, a: Any, b: Any) -> Any:
    for batch in DataLoader(range(24 if RANK == 2 else 16), batch_size=8, collate_fn=list):
        first.one(batch)
    return first.rank()


def several_threads(first: Any, second: Any, a: Any, b: Any) -> Any:
    return beside(first, a.gather)


def several_threads_that_call(first: Any, second: Any, a: Any, b: Any) -> Any:
    return beside(first, lambda: second.one(EIGHT))


def several_threads_that_make(first: Any, second: Any, a: Any, b: Any) -> Any:
    return beside(first, lambda: Parts(device_mesh=FOUR))


def beside(first: Any, call: Any) -> Any:
    """Makes a call while another thread is in a method."""
    told: list[str] = []
    begun, go = threading.Event(), threading.Event()
    started = threading.Thread(target=lambda: told.append(words(lambda: first.held(begun, go))))
    started.start()
    assert begun.wait(PATIENCE)
    told.append(words(call))
    go.set()
    started.join()
    raise RemoteCallError(" / ".join(sorted(told)))


CASES = [
    another_method,
    another_object,
    another_handle,
    another_argument,
    another_row,
    other_rows_of_an_argument,
    another_split,
    another_split_of_an_argument,
    a_mapped_one,
    printed_on_one,
    one_call_more,
    one_object_less,
    a_loader_that_fails,
    a_longer_loader,
    several_threads,
    several_threads_that_call,
    several_threads_that_make,
]


def apart(case: Any) -> Any:
    """What a rank learns when the ranks do different things, then, and after a new beginning."""
    twinkle.initialize("local")
    first, second = Parts(device_mesh=FOUR), Parts(device_mesh=FOUR)
    a, b = first.one(EIGHT), first.other(EIGHT)
    told = [words(lambda: case(first, second, a, b)), words(first.rank)]
    twinkle.shutdown()
    return told


def whole_rows(part: Any) -> Any:
    """What is Global, or zipped, is the same on all ranks; a plain list is a rank's own."""
    rows = list(range(8))
    mine = [RANK] * 2
    return {
        "columns": part.column(Global({"x": rows})).gather(),
        "column": [int(row) for row in part.column({"x": Global(np.arange(8))})],
        "own columns": part.column(Rows({"x": [7]})).gather(),
        "differ": words(lambda: part.one(Global([RANK // 3] * 8))),
        "shorter": words(lambda: part.one(Global(rows[:7] if RANK == 1 else rows))),
        "zipped": words(lambda: part.one(part.one(Global(rows)).zip([RANK] * 8))),
        "own": part.one(mine).gather(),
        "all alike": words(lambda: part.one([1, 2])),
        "pulled": words(lambda: part.one(part.one(Global(rows)).gather())),
        "really own": part.one(Rows([5])).gather(),
        "some alike": part.one([RANK // 2]).gather(),
        "no rows": words(lambda: part.one([])),
        "locks": words(lambda: part.one(Global([threading.Lock() for _ in rows]))),
        "refused on one": words(lambda: part.one(Global(3 if RANK == 1 else rows))),
        "split on one": words(lambda: part.split_here(EIGHT)),
        "refused on all": words(lambda: part.one(Global(3))),
        "after": part.one(Global(rows)).gather(),
    }


def failures(part: Any) -> Any:
    def stopped(row: int) -> int:
        if row == 5:
            raise KeyboardInterrupt
        return row

    return {
        "constructor": words(lambda: Parts([1], device_mesh=FOUR)),
        "long": words(part.long),
        "trace": [built(), traced(part.long), traced(lambda: part.one(EIGHT).map(divided))],
        "interrupted": interrupted(part.interrupted),
        "interrupted map": interrupted(lambda: part.one(EIGHT).map(stopped)),
        "several": [
            notes(lambda: part.from_rank_on(1)),
            notes(lambda: part.from_rank_on(1, interrupted=True)),
            notes(lambda: part.from_rank_on(3)),
            notes(lambda: part.one(EIGHT).map(lambda row: 1 // max(5 - row, 0))),
            notes(lambda: Parts(range(4), device_mesh=FOUR)),
        ],
        "unreadable": words(part.unreadable),
        "uncopied": words(lambda: part.one([threading.Lock()] * 2 if RANK == 1 else [1, RANK])),
        "after": part.one(EIGHT).gather(),
    }


def interrupted(call: Any) -> str:
    try:
        return words(call)
    except KeyboardInterrupt:
        return "interrupted"


def notes(call: Any) -> Any:
    """The words of a failure, and those of its notes that are of others."""
    try:
        call()
    except RemoteCallError as error:
        return str(error), [note for note in getattr(error, "__notes__", ()) if note.startswith("failed as well")]
    except KeyboardInterrupt:
        return "interrupted", []
    return "accepted", []


def divided(row: int) -> float:
    return 1 / (row - 7)


def traced(call: Any) -> str:
    try:
        call()
    except RemoteCallError as error:
        return "".join(traceback.format_exception(error))
    return "accepted"


def built() -> str:
    return traced(lambda: Parts([1], device_mesh=FOUR))


def meshes() -> Any:
    far = DeviceMesh([0, 9], ("dp",))
    return [
        words(lambda: Parts(device_mesh=DeviceMesh.from_sizes(dp_size=16))),
        words(lambda: Parts(device_mesh=far)),
        words(lambda: Loaders(range(8), batch_size=4, device_mesh=far)),
    ]


def groups(part: Any) -> Any:
    """torch's default group is the user's, whenever and however often it is made."""
    found: list[Any] = [distributed.is_initialized()]
    for number in range(2):
        # Two groups of one launcher's store would take each other's addresses.
        met = f"file://{sys.argv[1]}/meeting{number}"
        distributed.init_process_group("gloo", init_method=met, rank=RANK, world_size=4)
        one = torch.ones(1)
        distributed.all_reduce(one)
        found += [one.item(), part.rank(), part.one(EIGHT).gather()]
        distributed.destroy_process_group()
    found.append(part.rank())
    twinkle.shutdown()
    for number in range(2, 4):
        met = f"file://{sys.argv[1]}/meeting{number}"
        distributed.init_process_group("gloo", init_method=met, rank=RANK, world_size=4)
        if number == 2:
            twinkle.initialize("local")
            part = Parts(device_mesh=FOUR)
        found.append(part.rank())
        if number == 3:
            twinkle.shutdown()
        distributed.destroy_process_group()
    return found


def gradients(part: Any) -> Any:
    two = Parts(device_mesh=TWO)
    return part.wants_gradient(two.gradient(Global([1, 2, 3, 4])))


def main() -> None:
    warnings.simplefilter("error")
    seen: dict[str, Any] = {"apart": {case.__name__: apart(case) for case in CASES}}
    twinkle.initialize("local", global_device_mesh=DeviceMesh.from_sizes(dp_size=5))
    seen["global mesh"] = words(Parts)
    twinkle.shutdown()
    twinkle.initialize("local")
    part = Parts(device_mesh=FOUR)
    seen |= {"rows": whole_rows(part), "failures": failures(part), "meshes": meshes(), "gradients": gradients(part)}
    seen["groups"] = groups(part)
    Path(sys.argv[1], f"{RANK}.json").write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    main()
