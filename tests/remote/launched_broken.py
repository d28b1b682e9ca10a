"""What `test_exchange.py` runs in three processes: one comes late, all begin anew, then one is killed.

Rank 0 alone has a short deadline. It begins when rank 1 is on its way, and rank 2 comes when rank 0 has given up.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from torch import distributed

import twinkle
from tests.waiting import PATIENCE, wait_for
from twinkle import DeviceMesh, Global, remote_class, remote_function
from twinkle.errors import RemoteCallError
from twinkle.platform import Platform

RANK = int(os.environ["RANK"])
#: Long enough for rank 1 to say that it waits, when it is on its way.
SECONDS = 5.0


@remote_class()
class Slow:
    """One rank of it takes its time."""

    @remote_function(timeout=PATIENCE if RANK == 1 else SECONDS)
    def sleeps(self, rank: int, called: Path, gave_up: Path) -> int:
        if Platform.get_rank() == 1:
            called.touch()
        if Platform.get_rank() == rank:
            time.sleep(SECONDS)
            wait_for(gave_up)
        return rank

    @remote_function(dispatch="slice_dp", collect="flatten")
    def rows(self, rows: Any) -> Any:
        return rows

    @remote_function(timeout=PATIENCE)
    def in_time(self) -> int:
        return Platform.get_rank()

    @remote_function()
    def killed(self, rank: int) -> None:
        if Platform.get_rank() == rank:
            os.kill(os.getpid(), signal.SIGKILL)


# A type checker does not see what the decorator adds.
Sleepers: Any = Slow


def late(slow: Any, handle: Any, *, by_call: bool) -> Any:
    """A call, or reading rows, in which rank 2 is late."""
    called, gave_up = (Path(f"{sys.argv[1]}, {by_call}, {what}") for what in ("called", "gave up"))
    if RANK == 0:
        wait_for(called)
    if RANK == 2 and not by_call:
        wait_for(gave_up)
    if RANK == 1 and not by_call:
        called.touch()
    timeout = SECONDS if RANK == 0 else None if RANK == 2 else PATIENCE
    found = tried((lambda: slow.sleeps(2, called, gave_up)) if by_call else (lambda: handle.gather(timeout=timeout)))
    if RANK == 0:
        gave_up.touch()
    return found


def tried(call: Any) -> Any:
    """What a call comes to, and how long it took."""
    start = time.monotonic()
    try:
        found = call()
    except RemoteCallError as error:
        found = [str(error), error.fields]
    return found, time.monotonic() - start


def main() -> None:
    distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=RANK, world_size=3)
    seen = []
    for by_call in (True, False):
        twinkle.initialize("local")
        slow = Sleepers(device_mesh=DeviceMesh.from_sizes(dp_size=3))
        handle = slow.rows(Global([1, 2, 3]))
        seen += [tried(slow.in_time), late(slow, handle, by_call=by_call), tried(slow.in_time)]
        twinkle.shutdown()
        # What was shut down is refused without a word to the others.
        seen.append(tried(slow.in_time))
    twinkle.initialize("local")
    slow = Sleepers(device_mesh=DeviceMesh.from_sizes(dp_size=3))
    seen += [tried(slow.in_time), tried(lambda: slow.killed(1)), tried(slow.in_time)]
    twinkle.shutdown()
    sys.stdout.write(json.dumps({"rank": RANK, "seen": seen}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
