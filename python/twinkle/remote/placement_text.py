"""Who sits where, as text: one line per group and node, which a person reads before a job starts or when it hangs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twinkle.group import DeviceGroup
from twinkle.platform import Worker

__all__ = ["get_device_placement"]


def get_device_placement(groups: Sequence[Any] | None = None) -> str:
    """The workers of each group by node, with their devices; of the initialized job, or of groups on paper.

    Without `groups`, those of `initialize`. In Ray mode ranks show the nodes and devices that were granted; otherwise each
    group shows what it asks for.
    """
    from twinkle.remote.session import current_session

    session = current_session()
    asked = list(groups) if groups is not None else list(session.groups if session else ())
    made = [group if isinstance(group, DeviceGroup) else DeviceGroup(**group) for group in asked]
    if not made:
        return "no device groups"
    lines: list[str] = []
    for group in made:
        held = session.ray_groups.get(group.name) if session is not None else None
        lines += [str(group)] if held is None else _granted(group, held.reservation.workers, held.reservation.addresses)
    return "\n".join(lines)


def _granted(group: DeviceGroup, workers: Sequence[Worker], addresses: Sequence[str]) -> list[str]:
    nodes: dict[str, list[Worker]] = {}
    for worker in workers:
        nodes.setdefault(worker.node, []).append(worker)
    shared = f", on the devices of {group.colocate_with}" if group.colocate_with else ""
    lines = [f"{group.name}: {len(workers)} workers, {group.device_type}{shared}"]
    for members in nodes.values():
        address = addresses[members[0].rank]
        identity = members[0].node.partition("#")[0][:8]
        lines.append(f"  node {address} ({identity})")
        lines += [f"    {line}" for line in _folded(members)]
    return lines


def _folded(workers: Sequence[Worker]) -> list[str]:
    if not workers[0].devices:
        ranks = [worker.rank for worker in workers]
        told = f"worker {ranks[0]}" if len(ranks) == 1 else f"workers {ranks[0]}..{ranks[-1]}"
        return [f"{told}: no devices"]
    return [f"worker {worker.rank}: {', '.join(worker.devices)}" for worker in workers]
