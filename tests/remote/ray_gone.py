"""What `test_ended_groups.py` runs as a script: the user ends Ray, and begins another, while a job goes on."""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

import ray

import twinkle
from tests.remote.refusing import words
from twinkle import DeviceGroup, remote_class, remote_function
from twinkle.runtime import current


@remote_class()
class Kind:
    """A component."""

    @remote_function(dispatch="slice_dp", collect="flatten")
    def same(self, rows: Any) -> Any:
        """Its rows."""
        return rows


def job(*, begins_anew: bool) -> list[Any]:
    """What everything that is asked comes to after Ray has ended, and perhaps another has begun."""
    make: Any = Kind
    twinkle.initialize("ray", groups=[DeviceGroup("two", 2, "CPU")], ncpu_proc_per_node=2)
    component, dropped = make(remote_group="two"), [make(remote_group="two")]
    handle = component.same([1, 2])
    ray.shutdown()
    if begins_anew:
        ray.init(address="local", include_dashboard=False, num_cpus=2, logging_level=40)
    asked = (lambda: component.same([1, 2]), lambda: make(remote_group="two"), handle.gather, lambda: handle.map(abs))
    told: list[Any] = [words(one) for one in asked]
    dropped.clear()
    gc.collect()
    told.append(ray.is_initialized())
    twinkle.shutdown()
    told += [ray.is_initialized(), current.mode, words(lambda: component.same([1, 2]))]
    ray.shutdown()
    return told


def main() -> None:
    """One job after the other."""
    sys.stdout.write(json.dumps([*job(begins_anew=False), *job(begins_anew=True)]) + "\n")


if __name__ == "__main__":
    main()
