"""What `test_failures.py` runs as a script: several workers fail, one after another, and nothing more is printed."""

from __future__ import annotations

import sys
import time
from typing import Any

import twinkle
from twinkle import DeviceGroup, remote_class, remote_function
from twinkle.errors import RemoteCallError


@remote_class()
class Failing:
    """Fails on every worker, each later than the one before."""

    def __init__(self, *, fails: bool = False) -> None:
        if fails:
            self.late()

    @remote_function()
    def late(self) -> None:
        """Fails."""
        time.sleep(0.4 * self.device_mesh.data_rank)  # type: ignore[attr-defined]
        raise KeyError("no such key")


def main() -> None:
    """Two calls and a constructor fail."""
    twinkle.initialize("ray", groups=[DeviceGroup("three", 3, "CPU")], ncpu_proc_per_node=3)
    make: Any = Failing
    component = make(remote_group="three")
    for call in (component.late, component.late, lambda: make(fails=True, remote_group="three")):
        try:
            call()
        except RemoteCallError as error:
            sys.stdout.write(f"{error}\n")
        # What Ray says of an error that nobody took, it says when that has come.
        time.sleep(1.2)
    twinkle.shutdown()


if __name__ == "__main__":
    main()
