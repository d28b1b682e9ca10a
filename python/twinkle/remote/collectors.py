"""Collectors kept for callers that join worker outputs themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError
from twinkle.remote import rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.mesh import DeviceMesh

__all__ = ["collect_tensor_dict"]


def collect_tensor_dict(outputs: Sequence[dict[str, Any]], device_mesh: DeviceMesh) -> dict[str, Any]:
    """One dict out of those of all workers: each key joined along rows in data-rank order, replicas once.

    Pass it as `collect=`. Keys stay in the order of the first representative; other dimensions are widened to the
    widest. Values that hold no rows are listed, one per shard.
    """
    placement = device_mesh.placement(workers=len(outputs)) if len(outputs) == device_mesh.world_size else None
    if placement is None:
        width, rest = divmod(device_mesh.world_size, len(outputs))
        if rest:
            raise PlanError(f"{len(outputs)} outputs do not fit a mesh of {device_mesh.world_size} positions")
        placement = device_mesh.placement(width, len(outputs))
    chosen = [outputs[worker] for worker in placement.representative.tolist()]
    made: dict[str, Any] = {}
    for key in chosen[0]:
        values = [output[key] for output in chosen]
        made[key] = values if rows.count(values[0]) is None else rows.join(values, None, key)
    return made
