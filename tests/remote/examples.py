"""Random calls that mean the same in one process and in four: meshes, rows of every kind, derived handles, trees."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import torch

from twinkle import DeviceMesh, Global, Rows, Same, remote_class, remote_function
from twinkle.platform import Platform

__all__ = ["WORLD", "outcome", "plain"]

WORLD = 4
SIZES = [(1,), (2,), (4,), (2, 2), (1, 2), (3,), (2, 1, 2), (1, 3)]


@remote_class()
class Both:
    """Gives back what it gets; every part of the result means the same on any mesh."""

    device_mesh: DeviceMesh

    @remote_function(dispatch="slice_dp", collect="flatten", allow_empty=True, collect_from="any")
    def same(self, rows: Any) -> Any:
        return rows

    @remote_function(
        dispatch="slice_dp",
        rows=("rows", "extra"),
        collect="flatten",
        allow_empty=True,
        lazy_collect=False,
        result_rows={"rows": "rows", "extra": "rows", "config": "first", "count": "sum"},
    )
    def both(self, rows: Any, extra: Any, config: Any = None, deep: Any = None) -> Any:
        inner = {} if deep is None else {"deep": Rows(deep["in"][0])}
        # In a list, since the parts of a mapping would follow rules of their own.
        return {"rows": rows, "extra": extra, "config": [config], "count": len(rows), **inner}

    @remote_function(dispatch="slice_dp", collect="last_pp", split="pad", loss_mask="text", sync=True)
    def padded(self, rows: Any) -> Any:
        return rows

    @remote_function(collect="mean", dispatch="slice_dp")
    def mean(self, rows: Any) -> Any:
        return float(sum(float(row) for row in rows) / len(rows))


def outcome(seed: int) -> Any:
    """What one random example comes to, as plain data; every rank calls it alike."""
    draw = Random(seed)
    component: Any = Both
    source, target = component(device_mesh=_mesh(draw)), component(device_mesh=_mesh(draw))
    rows = _rows(draw, draw.randint(0, 9))
    made = source.same(_own(rows, source.device_mesh) if draw.random() < 0.4 else Global(rows))
    derived = _derived(draw, made)
    if draw.random() < 0.3:
        # Rows of two calls, on two meshes.
        derived = derived.concat(target.same(Global(rows)))
    extra = draw.choice(["handle", "global", "zip"])
    numbers = list(range(100, 100 + len(derived)))
    second = {"handle": derived, "global": Global(numbers), "zip": derived.zip(numbers)}[extra]
    tree = _tree(draw, made, 3)
    found = target.both(
        derived, second, Same(tree), deep={"in": (derived if draw.random() < 0.5 else Rows(derived), "text")}
    )
    counted = target.mean(Global([float(at) for at in range(4, 4 + draw.randint(4, 9))]))
    padded = target.padded(derived) if len(derived) and isinstance(rows, list) else None
    return plain([found, padded, made.gather(), len(derived), round(counted, 9)])


def plain(value: Any) -> Any:
    """A value as JSON has it, with its type and dtype."""
    if isinstance(value, torch.Tensor):
        return ["tensor", str(value.dtype), list(value.shape), value.to(torch.float64).tolist()]
    if isinstance(value, np.ndarray):
        return ["array", str(value.dtype), list(value.shape), value.tolist()]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    return value


def _own(rows: Any, mesh: DeviceMesh) -> Any:
    """What this rank brings of some rows, which is all of them where there is no other."""
    if Platform.get_rank() < 0:
        return rows
    return rows[mesh.get_slice(len(rows))] if Platform.get_rank() in mesh else rows[:0]


def _mesh(draw: Random) -> DeviceMesh:
    """Axes in any order over any of the four ranks in any order."""
    sizes = draw.choice(SIZES)
    names = draw.sample(["dp", "fsdp", "pp", "tp", "cp"], len(sizes))
    ranks = draw.sample(range(WORLD), int(np.prod(sizes)))
    return DeviceMesh(np.array(ranks).reshape(sizes), tuple(names))


def _rows(draw: Random, n: int) -> Any:
    numbers = [draw.randint(0, 200) for _ in range(n)]
    kinds: dict[str, Any] = {
        "records": lambda: [{"id": at, "text": "ab" * (at % 4), "ids": torch.arange(at % 5)} for at in numbers],
        "tuple": lambda: tuple(numbers),
        "floats": lambda: torch.tensor(numbers, dtype=torch.float32).reshape(n, 1).expand(n, 700).contiguous(),
        "halves": lambda: torch.tensor(numbers, dtype=torch.bfloat16),
        "flags": lambda: torch.tensor(numbers).reshape(n, 1) > torch.arange(600),
        "array": lambda: np.arange(n * 300).reshape(n, 3, 100) * 1.5,
        "words": lambda: np.array([f"row {at}" for at in numbers], dtype="U8"),
    }
    return kinds[draw.choice(list(kinds))]()


def _derived(draw: Random, handle: Any) -> Any:
    n = len(handle)
    choice = draw.choice(["same", "select", "repeat", "slice"])
    if choice == "select" and n:
        return handle.select([draw.randrange(n) for _ in range(draw.randint(0, 12))])
    if choice == "repeat":
        return handle.repeat(draw.randint(1, 3))
    if choice == "slice" and n:
        start = draw.randrange(n)
        return handle[start : draw.randint(start, n)]
    return handle


def _tree(draw: Random, handle: Any, depth: int) -> Any:
    leaves: list[Any] = [1, "text", None, 2.5, handle, handle]
    choice = draw.choice(["leaf", "list", "tuple", "dict"]) if depth else "leaf"
    if choice == "leaf":
        return draw.choice(leaves)
    parts = [_tree(draw, handle, depth - 1) for _ in range(draw.randint(0, 3))]
    return {"list": parts, "tuple": tuple(parts), "dict": dict(zip("abc", parts, strict=False))}[choice]
