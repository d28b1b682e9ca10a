"""Components that the tests run on Ray and in this process: each reports what it was given."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.waiting import wait_for
from twinkle import DeviceMesh, Rows, remote_class, remote_function
from twinkle.plan import Layout
from twinkle.remote import share

SHOWN = re.compile("VISIBLE|HCCL|WORLD_SIZE|LOCAL_RANK")


@dataclass
class Batch:
    ids: Any
    weights: Any


@dataclass
class Output:
    ids: Any
    loss: float


class Holder:
    """An object of which nobody knows that it holds a handle."""

    def __init__(self, held: Any) -> None:
        self.held = held


def every(rows: int, shards: int) -> Layout:
    """Deals rows out one by one, which takes a number for each row to say."""
    return Layout.explicit([list(range(shard, rows, shards)) for shard in range(shards)])


@remote_class()
class Echo:
    """Gives back what it gets, in every way a method can."""

    device_mesh: DeviceMesh

    def __init__(self, factor: int = 1) -> None:
        self.factor = factor
        self.calls: list[Any] = []

    # What arrives.

    @remote_function()
    def note(self, word: Any, *, fails: bool = False) -> Any:
        self.calls.append(word)
        if fails:
            raise ValueError(word)
        return list(self.calls)

    @remote_function()
    def everything(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    @remote_function(dispatch="slice_dp")
    def rows_seen(self, rows: Any, *rest: Any, **options: Any) -> Any:
        return rows, rest, options

    @remote_function(dispatch="slice_dp", rows=("rows", "extra"))
    def two(self, rows: Any, extra: Any = None, config: Any = None) -> Any:
        return rows, extra, config

    @remote_function(dispatch="slice_dp")
    def defaulted(self, rows: Any = (1, 2, 3, 4), *, more: Any = (5, 6)) -> Any:
        return rows, more

    @remote_function(dispatch="slice_dp", rows=("rows", "more"))
    def defaulted_by_name(self, rows: Any = (), *, more: Any = (5, 6)) -> Any:
        return rows, more

    @remote_function(dispatch="slice_dp", rows=("batches", "columns"))
    def starred(self, *batches: Any, **columns: Any) -> Any:
        return batches, columns

    @remote_function(dispatch="slice")
    def per_worker(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", fan_out="lead")
    def lead_only(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch=lambda n, i, args, kwargs, mesh: ((args[0] * 10 + i,), {"n": n, "size": mesh.world_size}))
    def by_function(self, number: int, n: int = 0, size: int = 0) -> Any:
        return number, n, size

    @remote_function(dispatch=lambda n, i, args, kwargs, mesh: ((args[0][i], args[1:], i), kwargs))
    def one_each(self, mine: Any, rest: Any, number: int) -> Any:
        return mine, rest, number

    @remote_function(dispatch="slice_dp", execute="first", collect="flatten")
    def first_alone(self, rows: Any) -> Any:
        return [row * 2 for row in rows]

    @remote_function(dispatch="slice_dp", execute="peer", collect="flatten")
    def as_peer(self, rows: Any) -> Any:
        return rows

    # What comes back.

    @remote_function(dispatch="slice_dp", collect="flatten")
    def same(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True)
    def pulled(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", collect="last_pp", lazy_collect=False)
    def last_stage(self, rows: Any) -> Any:
        mesh = self.device_mesh
        return rows if mesh.pp_rank in (None, mesh.pp_world_size - 1) else None

    @remote_function(dispatch="slice_dp", collect="flatten", collect_from="pp_first", sync=True)
    def first_stage(self, rows: Any) -> Any:
        return rows if self.device_mesh.pp_rank in (None, 0) else None

    @remote_function(dispatch="slice_dp", collect="flatten", collect_from="any")
    def anywhere(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", collect="mean")
    def mean_of(self, rows: Any, values: Any = None) -> Any:
        return {"loss": float(rows[0]), "rows": len(rows)}

    @remote_function(dispatch="slice_dp", collect="mean")
    def mean_number(self, rows: Any) -> Any:
        return float(rows[0])

    @remote_function(dispatch="slice_dp", collect="sum")
    def sum_of(self, rows: Any) -> Any:
        return len(rows)

    @remote_function(dispatch="slice_dp", collect="first")
    def first_of(self, rows: Any) -> Any:
        return {"rows": rows, "rank": self.device_mesh.data_rank}

    @remote_function(
        dispatch="slice_dp",
        collect="flatten",
        result_rows={"ids": "rows", "logps": "rows", "loss": ("mean", "tokens"), "tokens": "sum", "peak": "max"},
        lazy_collect=False,
    )
    def by_key(self, rows: Any) -> Any:
        return {
            "loss": float(rows[0]),
            "ids": list(rows),
            "ref": {"logps": np.array([row / 2 for row in rows])},
            "tokens": len(rows) * 10,
            "peak": max(rows),
            "tags": ["a", "b"],
        }

    @remote_function(dispatch="slice_dp", collect="flatten", result_rows=0, lazy_collect=False)
    def as_tuple(self, rows: Any) -> Any:
        return list(rows), "done"

    @remote_function(dispatch="slice_dp", collect="flatten", lazy_collect=False)
    def as_record(self, rows: Any) -> Any:
        return Output(Rows(list(rows)), 1.0)

    @remote_function(dispatch="slice_dp", collect="flatten", result_rows=("ids", "double"))
    def columns(self, rows: Any) -> Any:
        return {"ids": list(rows), "double": [row * 2 for row in rows]}

    @remote_function(dispatch="slice_dp", collect="flatten", lazy_collect=False)
    def wider(self, rows: Any) -> Any:
        return Rows({"labels": np.ones((len(rows), 2 + rows[0] % 3), dtype=np.int64)})

    @remote_function(dispatch="slice_dp", collect="flatten")
    def wrong_length(self, rows: Any) -> Any:
        return list(rows)[1:]

    @remote_function(dispatch="slice_dp", collect="flatten")
    def one_by_one(self, rows: Any) -> Any:
        yield from rows

    @remote_function(dispatch="slice_dp", collect="flatten")
    def nothing(self, rows: Any) -> Any:
        return None

    @remote_function(dispatch="slice_dp", collect=lambda outputs, mesh: (mesh.world_size, [len(o) for o in outputs]))
    def by_collector(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", collect="flatten", collect_from="any", verify_replicas=True, sync=True)
    def verified(self, rows: Any, *, drift: bool = False) -> Any:
        tp = self.device_mesh.tp_rank or 0
        return [row + tp * drift for row in rows]

    @remote_function(dispatch="slice_dp", collect="last_pp", verify_replicas=True, sync=True)
    def last_verified(self, rows: Any) -> Any:
        return rows if self.device_mesh.pp_rank else None

    @remote_function(collect="flatten", sync=True)
    def made_here(self, count: int) -> Any:
        rank = self.device_mesh.data_rank or 0
        return [(rank, at) for at in range(count + rank)]

    # Padding.

    @remote_function(dispatch="slice_dp", collect="none", split=every)
    def dealt(self, rows: Any) -> Any:
        """Whether each row has its number in the whole call, of rows that are their numbers."""
        return share().rows == list(rows)

    @remote_function(dispatch="slice_dp", collect="flatten", split="pad", loss_mask="labels", sync=True)
    def padded(self, rows: Any) -> Any:
        mine = share()
        return [{**row, "real": mine.real, "pads": mine.is_pad, "scale": mine.loss_scale} for row in rows]

    @remote_function(dispatch="slice_dp", split="pad", loss_mask="labels")
    def padded_seen(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", split="pad")
    def padded_unmasked(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", collect="flatten", allow_empty=True, sync=True)
    def may_be_empty(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", collect="flatten", group=2)
    def in_pairs(self, rows: Any) -> Any:
        return rows

    # Who this is.

    @remote_function()
    def identity(self) -> Any:
        mesh = self.device_mesh
        return {
            "rank": os.environ.get("RANK"),
            "axes": (mesh.dp_rank, mesh.pp_rank, mesh.tp_rank, mesh.data_rank),
            "pid": os.getpid(),
            "torch": "torch" in sys.modules,
            "environment": {
                k: v
                for k, v in os.environ.items()
                if "VISIBLE" in k or "HCCL" in k or k in ("WORLD_SIZE", "LOCAL_RANK")
            },
            "factor": self.factor,
        }

    # Failures.

    @remote_function(dispatch="slice_dp", collect="flatten")
    def fails_on(self, rows: Any, shard: int, folder: Path | None = None) -> Any:
        """With a folder, every shard says there that it has begun and that it ends, for which it waits to be let go."""
        rank = self.device_mesh.data_rank
        if folder is not None:
            (folder / f"begun {rank}").touch()
        if rank == shard:
            raise ValueError("this shard fails")
        if folder is not None:
            wait_for(folder / "go")
            (folder / f"done {rank}").touch()
        return rows

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True, on_error="kill_group")
    def strict(self, rows: Any) -> Any:
        if not rows[0]:
            raise ValueError("no row is zero")
        return rows

    @remote_function(timeout=0.5)
    def too_slow(self, go: Path) -> None:
        wait_for(go)

    @remote_function()
    def dies(self, worker: int) -> None:
        if os.environ["RANK"] == str(worker):
            os._exit(1)


class Plain(Echo):
    """Overrides a remote method with a plain one, which would run where it is called."""

    def same(self, rows: Any) -> Any:
        return list(super().same([row + 1 for row in rows]))


@remote_class()
class Doubled(Echo):
    """Overrides a remote method with a remote one, which calls the other in the worker."""

    @remote_function(dispatch="slice_dp", collect="flatten")
    def same(self, rows: Any) -> Any:
        return [row * 2 for row in super().same(rows)]


class OddError(Exception):
    """Cannot be made again from its words."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"odd {first} {second}")


class CodeError(Exception):
    """Says something else when it is made again from its words."""

    def __init__(self, code: Any) -> None:
        super().__init__(f"\x1b[31mcode {code}\x1b[0m")


class LockedError(Exception):
    """Holds what cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


ERRORS = {
    "exit": lambda: SystemExit(3),
    "odd": lambda: OddError(1, 2),
    "code": lambda: CodeError(5),
    "locked": lambda: LockedError("held"),
}


@dataclass
class Sample:
    ids: Any
    labels: Any


class Pair(NamedTuple):
    ids: Any
    labels: Any


@remote_class()
class Writer:
    """Writes into what it is given, and raises what does not travel."""

    device_mesh: DeviceMesh

    @remote_function(dispatch="slice_dp", collect="flatten")
    def same(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True)
    def number(self, rows: Any) -> Any:
        for at, row in enumerate(rows):
            row["at"] = at
            row["ids"].append(at)
        return rows

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True, rows=("first", "second"))
    def number_first(self, first: Any, second: Any) -> Any:
        for at, row in enumerate(first):
            row["at"] = at
        return list(second)

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True)
    def number_pairs(self, pairs: Any) -> Any:
        for at, (row, _) in enumerate(pairs):
            row["at"] = at
        return pairs

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True)
    def less(self, rows: Any) -> Any:
        rows -= 1
        return rows

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True)
    def less_each(self, rows: Any) -> Any:
        for row in rows:
            row["x"] -= 1
        return rows

    @remote_function(dispatch="slice_dp", collect="none", split="pad", loss_mask="labels")
    def padded(self, rows: Any) -> Any:
        if isinstance(rows[-1], dict) and "ids" in rows[-1]:
            rows[-1]["ids"].append(0)
        return rows

    @remote_function(dispatch="slice_dp", collect="none", split="pad", loss_mask="labels", rows=("rows", "more"))
    def padded_two(self, rows: Any, more: Any) -> Any:
        return rows, more

    @remote_function(dispatch="slice_dp", collect="mean", allow_empty=True)
    def mean(self, rows: Any) -> Any:
        return {"loss": float(np.mean(rows)) if len(rows) else float("nan")}

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True)
    def unnamed(self, rows: Any) -> Any:
        return list(rows), [row * 10 for row in rows]

    @remote_function(dispatch="slice_dp", collect="flatten")
    def referred(self, rows: Any) -> Any:
        import ray

        return [ray.put(row) for row in rows]

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True)
    def read(self, rows: Any) -> Any:
        import ray

        return ray.get(list(rows))

    @remote_function()
    def raises(self, kind: str) -> None:
        raise ERRORS[kind]()

    @remote_function()
    def pid(self) -> int:
        return os.getpid()

    @remote_function(dispatch="slice_dp", on_error="kill_group")
    def strict(self, rows: Any, seconds: float = 0.0) -> Any:
        time.sleep(seconds)
        return rows


@remote_class(execute="first")
class Loader:
    """Yields global batches from the first worker."""

    device_mesh: DeviceMesh

    def __init__(self, rows: int, device_mesh: Any = None) -> None:
        self.rows, self.given = rows, device_mesh

    @remote_function(collect="flatten")
    def batch(self, size: int) -> Any:
        return list(range(size))

    @remote_function(collect="first")
    def seen(self) -> Any:
        return self.device_mesh.world_size, self.given and self.given.world_size


def columns(rows: Any) -> Any:
    """A collate function that makes columns."""
    return {"id": list(rows), "square": [row * row for row in rows]}


def mixed(rows: Any) -> Any:
    """A collate function whose batches hold more than rows."""
    return {"count": len(rows), "name": "batch", "pair": (np.array(rows), list(rows))}


def short(rows: Any) -> Any:
    """A collate function that loses rows."""
    return {"id": list(rows), "short": rows[:1]}
