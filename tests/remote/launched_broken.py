"""What `test_exchange.py` runs in three processes: one comes late, all begin anew, then one is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from torch import distributed

import twinkle
from twinkle import DeviceMesh, Global, remote_class, remote_function
from twinkle.errors import RemoteCallError
from twinkle.platform import Platform


@remote_class()
class Slow:
    """One rank of it takes its time."""

    @remote_function(timeout=1.5)
    def sleeps(self, rank: int, seconds: float) -> int:
        if Platform.get_rank() == rank:
            time.sleep(seconds)
        return rank

    @remote_function(dispatch="slice_dp", collect="flatten")
    def rows(self, rows: Any) -> Any:
        return rows

    @remote_function(timeout=60)
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

    def read() -> Any:
        if Platform.get_rank() == 2:
            time.sleep(3.0)
        return handle.gather(timeout=1.5 if Platform.get_rank() != 2 else None)

    return (lambda: slow.sleeps(2, 3.0)) if by_call else read


def tried(call: Any) -> Any:
    """What a call comes to, and whether it took long."""
    start = time.monotonic()
    try:
        found = call()
    except RemoteCallError as error:
        found = [str(error), error.fields]
    return found, time.monotonic() - start


def main() -> None:
    rank = int(os.environ["RANK"])
    distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=3)
    seen = []
    for by_call in (True, False):
        twinkle.initialize("local")
        slow = Sleepers(device_mesh=DeviceMesh.from_sizes(dp_size=3))
        handle = slow.rows(Global([1, 2, 3]))
        seen += [tried(slow.in_time), tried(late(slow, handle, by_call=by_call)), tried(slow.in_time)]
        twinkle.shutdown()
        # What was shut down is refused without a word to the others.
        seen.append(tried(slow.in_time))
    twinkle.initialize("local")
    slow = Sleepers(device_mesh=DeviceMesh.from_sizes(dp_size=3))
    seen += [tried(slow.in_time), tried(lambda: slow.killed(1)), tried(slow.in_time)]
    start = time.monotonic()
    twinkle.shutdown()
    sys.stdout.write(json.dumps({"rank": rank, "seen": seen, "shutdown": time.monotonic() - start}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
