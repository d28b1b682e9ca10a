"""Device groups from a file, brought to an inventory of equal nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twinkle.cli.inputs import InputError, read_data

if TYPE_CHECKING:
    from twinkle.platform.allocation import Worker

__all__ = ["placed"]

#: An inventory is written out node by node, so it has an end.
_MOST_NODES = 2**16
_MOST_DEVICES = 2**20


def placed(
    file: str, *, nodes: int, gpus: int, cpus: int, family: str, nproc_per_node: int | None
) -> dict[str, tuple[Worker, ...]]:
    """The workers of the groups in a file: a list of groups, or a mapping with `groups` and perhaps `nodes`."""
    from twinkle.platform.allocation import allocate

    data = read_data(file)
    inventory: list[Any] = []
    if isinstance(data, Mapping):
        unknown = [str(key) for key in data if key not in ("groups", "nodes", "nproc_per_node", "ncpu_proc_per_node")]
        if unknown or "groups" not in data:
            raise InputError(
                f"{file}: a mapping has groups, nodes, nproc_per_node, not {', '.join(unknown) or 'no groups'}"
            )
        inventory = data.get("nodes") or []
        nproc_per_node = data.get("nproc_per_node", gpus) if nproc_per_node is None else nproc_per_node
        more = {key: data[key] for key in ("ncpu_proc_per_node",) if key in data}
        groups = data["groups"]
    else:
        groups, more = data, {}
    if not inventory:
        if not 1 <= nodes <= _MOST_NODES or gpus < 0 or nodes * gpus > _MOST_DEVICES:
            raise InputError(
                f"--nodes {nodes} --gpus {gpus}: accepted are 1 to {_MOST_NODES} nodes, {_MOST_DEVICES} devices in all"
            )
        devices = [str(slot) for slot in range(gpus)]
        inventory = [
            {"id": f"node{place}", "family": family, "devices": devices, "cpus": cpus} for place in range(nodes)
        ]
    per_node = gpus if nproc_per_node is None else nproc_per_node
    return allocate(groups, per_node, inventory, **more)
