"""What `test_pickling.py` runs as a script, whose classes travel by value: one line of JSON says what was seen."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

import twinkle
from twinkle import DeviceGroup, remote_class, remote_function
from twinkle.errors import RemoteCallError

STEP = 0
CACHE: dict[str, int] = {}


@dataclass
class Row:
    """A row that only this script knows."""

    value: int
    made = 0


class Base:
    """What both components derive from."""

    steps = 0

    def count(self) -> int:
        """How often this was called, in either of them."""
        Base.steps += 1
        return Base.steps


class OwnError(Exception):
    """An error that only this script knows, with a row of it."""

    raised = 0

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self.row = row


@remote_class()
class First(Base):
    """Counts in its module, in its class and in its base."""

    made = 0

    def __init__(self, fails: bool = False) -> None:
        First.made += 1
        if fails:
            raise ValueError("this one fails")

    @remote_function(collect="first")
    def step(self) -> Any:
        """The counts, each one more than before."""
        global STEP
        STEP += 1
        CACHE[f"step {STEP}"] = STEP
        Row.made += 1
        return STEP, First.made, len(CACHE), self.count(), Row.made

    @remote_function(dispatch="slice_dp", collect="flatten")
    def rows(self, rows: Any) -> Any:
        """Rows of the script's own class."""
        return [Row(row.value + 1) for row in rows]

    @remote_function()
    def fails(self) -> None:
        """Raises an error of the script."""
        OwnError.raised += 1
        raise OwnError(Row(Row.made))

    @remote_function(dispatch="slice_dp", collect="flatten")
    def written(self, rows: Any) -> Any:
        """Rows with an array that is written to."""
        for row in rows:
            row["array"] += 1
        return rows

    @remote_function(collect="first")
    def last(self) -> Any:
        """A row in no list of rows."""
        return Row(Row.made)


@remote_class()
class Second(Base):
    """Another one in the same workers."""

    @remote_function(collect="first")
    def step(self) -> Any:
        """How often the base was called."""
        return self.count()


def main() -> None:
    """Makes components between calls, and sends classes in every other way."""
    twinkle.initialize("ray", groups=[DeviceGroup("two", 2, "CPU")], ncpu_proc_per_node=2)
    make, second = First, Second
    first: Any = make(remote_group="two")  # type: ignore[call-arg]
    seen: list[Any] = [first.step(), first.step()]
    other: Any = make(remote_group="two")  # type: ignore[call-arg]
    seen += [first.step(), other.step()]
    beside: Any = second(remote_group="two")  # type: ignore[call-arg]
    seen += [beside.step(), first.step()]
    Row.made = 100
    handle = first.rows([Row(1), Row(2)])
    mapped = list(handle.map(lambda row: (row.value, First.made, Base.steps, Row(3).made)))
    kept = [row.value for row in handle], first.last().value, Row.made
    raised: Any = None
    Row.made, OwnError.raised = 200, 50
    try:
        first.fails()
    except RemoteCallError as error:
        cause: Any = error.cause
        raised = type(cause) is OwnError, type(cause.row) is Row, cause.row.value, OwnError.raised, str(error)
    rows = [
        {"array": np.broadcast_to(0.0, 3), "text": text, "row": Row(1)}
        for text in ("a text", "__main__", "an ObjectRef of ray.actor")
    ]
    written = [row["array"].tolist() for row in first.written(rows)]
    told = {
        "seen": seen,
        "mapped": mapped,
        "kept": kept,
        "made": [Row.made, First.made],
        "step": first.step(),
        "written": written,
        "raised": raised,
    }
    twinkle.shutdown()
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
