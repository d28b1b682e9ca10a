"""What `test_nodes.py` runs in a process of its own: two raylets on the loopback, of which one is killed."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ.setdefault("RAY_health_check_period_ms", "500")
os.environ.setdefault("RAY_health_check_failure_threshold", "3")

import ray
from ray.cluster_utils import Cluster

import twinkle
from tests.remote import components
from tests.waiting import PATIENCE, wait_for
from twinkle import DeviceGroup, DeviceMesh, get_device_placement
from twinkle.errors import TwinkleError
from twinkle.remote.session import current_session

# A type checker does not see what the decorator adds.
Echo: Any = components.Echo


def main() -> None:
    options: dict[str, Any] = {"num_cpus": 2, "num_gpus": 2, "object_store_memory": 200 * 1024 * 1024}
    cluster = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False, "wait": False})
    second = cluster.add_node(wait=False, **options)
    cluster.wait_for_nodes(PATIENCE)
    ray.init(address=cluster.address, log_to_driver=False, logging_level=40)
    seen: dict[str, Any] = {}
    try:
        twinkle.initialize(
            "ray", nproc_per_node=2, groups=[DeviceGroup("all", 4, "GPU"), DeviceGroup("host", 2, "cpu")]
        )
        component: Any = Echo(device_mesh=DeviceMesh.from_sizes(dp_size=4), remote_group="all")
        seen["masks"] = [one["environment"]["CUDA_VISIBLE_DEVICES"] for one in component.identity()]
        seen["placement"] = get_device_placement()
        session = current_session()
        assert session is not None
        reservation = session.ray_groups["all"].reservation
        nodes = [worker.node.partition("#")[0] for worker in reservation.workers]
        seen["nodes"] = [nodes[0] == nodes[1], nodes[2] == nodes[3], nodes[1] == nodes[2]]
        handle = component.same(list(range(8)))
        killed = [worker for worker, node in enumerate(nodes) if node == second.node_id]
        seen["killed"] = killed
        alive = [worker for worker in range(4) if worker not in killed]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)

            def kill() -> None:
                for worker in range(4):
                    wait_for(folder / f"begun {worker}")
                cluster.remove_node(second, allow_graceful=False)

            killer = threading.Thread(target=kill)
            killer.start()
            try:
                component.fails_on(list(range(8)), 99, folder)
                seen["call"] = "returned"
            except TwinkleError as error:
                seen["call"] = f"{type(error).__name__}: {error}"
            seen["done"] = [path.name for path in folder.glob("done *")]
            (folder / "go").touch()
            for worker in alive:
                wait_for(folder / f"done {worker}")
            killer.join()
        try:
            seen["row"] = handle[alive[0] * 2]
        except TwinkleError as error:
            seen["row"] = str(error)
        twinkle.shutdown()
        states = [table["state"] for table in ray.util.placement_group_table().values()]
        seen["left"] = [state for state in states if state != "REMOVED"]
    finally:
        ray.shutdown()
        cluster.shutdown()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
