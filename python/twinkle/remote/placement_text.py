"""Who sits where, as text: one line per group and node, which a person reads before a job starts or when it hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinkle.group import DeviceGroup, Node
from twinkle.platform import allocate
from twinkle.remote.session import current_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.platform import Worker

__all__ = ["get_device_placement"]

_PAPER_DEVICES = 8


def get_device_placement(groups: Sequence[Any] | None = None) -> str:
    """The workers of each group by node, with their devices.

    Without `groups`, those of `initialize`, in Ray mode with the nodes and devices that were granted. Groups given here
    that hold no devices yet are placed on paper, on nodes of eight devices each.
    """
    session = current_session()
    asked = list(groups) if groups is not None else list(session.groups if session else ())
    made = [group if isinstance(group, DeviceGroup) else DeviceGroup(**group) for group in asked]
    if not made:
        return "no device groups"
    held = {} if session is None else session.ray_groups
    if all(group.name in held and held[group.name].reservation.group == group for group in made):
        placed = {name: (held[name].reservation.workers, held[name].reservation.addresses) for name in held}
    else:
        paper = allocate(made, _PAPER_DEVICES, _paper(made), _PAPER_DEVICES)
        placed = {name: (workers, tuple(worker.node for worker in workers)) for name, workers in paper.items()}
    return "\n".join(line for group in made for line in _lines(group, *placed[group.name]))


def _paper(groups: Sequence[DeviceGroup]) -> list[Node]:
    """Nodes enough for the groups, each with eight devices and those that a group names."""
    families = list(dict.fromkeys(group.device_type for group in groups)) or ["cpu"]
    nodes = []
    for family in families:
        own = [group for group in groups if group.device_type == family]
        highest = max([max(group.ranks) for group in own if not isinstance(group.ranks, int)], default=-1)
        slots = highest + 1 + sum(group.size for group in own)
        named = {str(device) for group in own for device in group.visible_devices or ()}  # type: ignore[union-attr]
        listed = [str(slot) for slot in range(_PAPER_DEVICES)]
        devices = [] if family == "cpu" else [*listed, *sorted(named - set(listed))]
        nodes += [Node(f"{at} of {family}", family, devices) for at in range(-(-slots // _PAPER_DEVICES))]
    return nodes


def _lines(group: DeviceGroup, workers: Sequence[Worker], addresses: Sequence[str]) -> list[str]:
    nodes: dict[str, list[Worker]] = {}
    for worker in workers:
        nodes.setdefault(worker.node, []).append(worker)
    shared = f", on the devices of {group.colocate_with}" if group.colocate_with else ""
    lines = [f"{group.name}: {len(workers)} workers, {group.device_type}{shared}"]
    for members in nodes.values():
        address = addresses[members[0].rank]
        # Nodes of one machine differ in their identity alone.
        identity, mark, _ = members[0].node.partition("#")
        lines.append(f"  node {address}" + (f" ({identity[:8]})" if mark else ""))
        lines += [f"    {line}" for line in _folded(members)]
    return lines


def _folded(workers: Sequence[Worker]) -> list[str]:
    if not workers[0].devices:
        ranks = [worker.rank for worker in workers]
        told = f"worker {ranks[0]}" if len(ranks) == 1 else f"workers {ranks[0]}..{ranks[-1]}"
        return [f"{told}: no devices"]
    return [f"worker {worker.rank}: {', '.join(worker.devices)}" for worker in workers]
