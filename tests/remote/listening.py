"""What `test_listening.py` runs in a process of its own: where the processes of a job listen, read from the system."""

from __future__ import annotations

import contextlib
import importlib
import ipaddress
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.waiting import becomes

_LISTENING = "0A"


def processes() -> dict[int, str]:
    """This process and all that descend from it, by their numbers."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            names[int(folder.name)], parents[int(folder.name)] = name, int(rest.split()[1])
    found = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return {one: names.get(one, "") for one in found}


def ended(process: int) -> bool:
    """Whether a process has ended, reaped or not."""
    # One that is reaped between opening and reading gives ESRCH instead of a missing file.
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def sockets(process: int) -> Iterator[str]:
    """The numbers of the sockets that a process has; none of one that has ended meanwhile."""
    try:
        for entry in list(Path(f"/proc/{process}/fd").iterdir()):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                target = entry.readlink().name
                if target.startswith("socket:["):
                    yield target[8:-1]
    except (FileNotFoundError, ProcessLookupError):
        return
    except PermissionError:
        # None but root may look into a process that is about to end.
        if not becomes(lambda: ended(process), expected=True):
            raise


def listening() -> dict[str, str]:
    """The address that each listening socket of this machine is bound to, by its number."""
    found = {}
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
            _, local, _, state, *_, number = line.split()[:10]
            if state == _LISTENING:
                packed = bytes.fromhex(local.partition(":")[0])
                words = [packed[at : at + 4][::-1] for at in range(0, len(packed), 4)]
                found[number] = str(ipaddress.ip_address(b"".join(words)))
    return found


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    import twinkle
    from tests.remote import components

    twinkle.initialize("ray", groups=[{"name": "pair", "ranks": 2, "device_type": "cpu"}])
    component = components.Echo(remote_group="pair")  # type: ignore[call-arg]
    assert component.pulled([1, 2]) == [1, 2]
    bound = listening()
    seen = {
        f"{name} {process}": [bound[number] for number in sockets(process) if number in bound]
        for process, name in processes().items()
    }
    twinkle.shutdown()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
