"""The saved state of a loader: one cursor in samples, the same on every rank, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from twinkle.dataloader.repair import Replaced, number
from twinkle.errors import PlanError
from twinkle.platform.checks import shown, whole

__all__ = ["VERSION", "Cursor", "Identity", "Mended", "plain", "read", "written"]

VERSION = 1
_FIELDS = ("v", "n", "seed", "epoch", "next_row", "batch", "tail", "order", "replaced")


class Cursor(NamedTuple):
    """The next row to deliver: its epoch and its position there."""

    epoch: int
    next_row: int


class Mended(NamedTuple):
    """A replaced row, the epoch it was in, and the data rank that would have had it."""

    epoch: int
    data_rank: int
    replaced: Replaced


class Identity(NamedTuple):
    """What must be the same for a cursor to mean the same rows."""

    n: int | None
    seed: int
    order: str


def plain(row: Any) -> Any:
    """A row's name as JSON keeps it: numbers of Python, and lists for tuples."""
    return [plain(part) for part in row] if isinstance(row, (list, tuple)) else number(row)


def written(cursor: Cursor, identity: Identity, batch: int | None, tail: str, mended: list[Mended]) -> dict[str, Any]:
    """The state as plain data. The inverse of `read`."""
    rows = [
        {
            "epoch": entry.epoch,
            "data_rank": entry.data_rank,
            "position": entry.replaced.position,
            "row": plain(entry.replaced.row),
            "by": plain(entry.replaced.by),
        }
        for entry in mended
    ]
    return {
        "v": VERSION,
        "n": identity.n,
        "seed": identity.seed,
        "epoch": cursor.epoch,
        "next_row": cursor.next_row,
        "batch": batch,
        "tail": tail,
        "order": identity.order,
        "replaced": rows,
    }


def read(state: Any, group: int) -> tuple[Cursor, Identity, list[Mended]]:
    """The cursor of a saved state, what it counts in, and the rows it lists as replaced. The inverse of `written`."""
    if not isinstance(state, Mapping):
        raise PlanError(f"a state is what state_dict() gave, not a {type(state).__name__}")
    missing = [name for name in _FIELDS if name not in state]
    if missing:
        raise PlanError(
            f"this state has no {missing}; it needs what state_dict() gave: {list(_FIELDS)}", missing=missing
        )
    if state["v"] != VERSION:
        raise PlanError(
            f"this state is of version {shown(state['v'])}; version {VERSION} is understood", version=state["v"]
        )
    n = None if state["n"] is None else whole(state["n"], "n of the state", PlanError)
    cursor = Cursor(
        whole(state["epoch"], "epoch of the state", PlanError),
        whole(state["next_row"], "next_row of the state", PlanError),
    )
    if n is not None and cursor.next_row > n:
        raise PlanError(f"next_row {cursor.next_row} of the state is past its {n} rows", next_row=cursor.next_row, n=n)
    if cursor.next_row % group:
        raise PlanError(
            f"next_row {cursor.next_row} of the state is inside a group of {group} rows, which stay together",
            next_row=cursor.next_row,
            group=group,
        )
    identity = Identity(n, whole(state["seed"], "seed of the state", PlanError), str(state["order"]))
    try:
        listed = [
            (row["epoch"], row["data_rank"], row["position"], Replaced(row["position"], row["row"], row["by"]))
            for row in state["replaced"]
        ]
    except (TypeError, KeyError, IndexError):
        raise PlanError(f"replaced of the state is no list of replaced rows: {shown(state['replaced'])}") from None
    mended = []
    for *numbers, replaced in listed:
        names = ("epoch", "data_rank", "position")
        epoch, data_rank, _ = (
            whole(number, f"{name} of a replaced row of the state", PlanError)
            for name, number in zip(names, numbers, strict=True)
        )
        mended.append(Mended(epoch, data_rank, replaced))
    return cursor, identity, mended


def same(found: Identity, own: Identity) -> None:
    """PlanError where a state counts other rows, or in another order, than this loader."""
    # A stream that is read in parts does not know how many rows it has.
    if found.n != own.n and None not in (found.n, own.n):
        raise PlanError(f"the state counts {found.n} rows, but this data set has {own.n}", state=found.n, own=own.n)
    if found.seed != own.seed:
        raise PlanError(
            f"the state was saved with seed {found.seed}, this loader has seed {own.seed}; give seed={found.seed} to "
            "go on",
            state=found.seed,
            own=own.seed,
        )
    if found.order != own.order:
        raise PlanError(
            f"the state counts in the order {found.order!r}, but this loader's order is {own.order!r}: its cursor "
            "would name "
            "other rows",
            state=found.order,
            own=own.order,
        )
