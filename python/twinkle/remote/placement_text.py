"""Who sits where, as text: one line per group and node, which a person reads before a job starts or when it hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinkle.group import DeviceGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.platform import Worker

__all__ = ["get_device_placement"]


def get_device_placement(groups: Sequence[Any] | None = None) -> str:
    """The workers of each group by node, with their devices; of the initialized job, or of groups on paper.

    Without `groups`, those of `initialize`. In Ray mode the nodes and devices are those that were granted; otherwise
    each group shows what it asks for. The table fits 80 columns, whatever script its names are in.
    """
    from twinkle.remote.session import current_session
    from twinkle.show.placement import placed_rows, placement_table

    session = current_session()
    asked = list(groups) if groups is not None else list(session.groups if session else ())
    rows: list[list[str]] = []
    for group in (group if isinstance(group, DeviceGroup) else DeviceGroup(**group) for group in asked):
        shared = f", with {group.colocate_with}" if group.colocate_with else ""
        title = f"{group.name}, {group.device_type}{shared}"
        held = session.ray_groups.get(group.name) if session is not None else None
        if held is None:
            rows.append(_on_paper(group, title))
            continue
        addresses = held.reservation.addresses

        def place(worker: Worker, addresses: Sequence[str] = addresses) -> str:
            return f"{addresses[worker.rank]} ({worker.node.partition('#')[0][:8]})"

        rows += placed_rows(title, held.reservation.workers, place)
    return placement_table(rows)


def _on_paper(group: DeviceGroup, title: str) -> list[str]:
    """The row of a group that has no nodes yet."""
    from twinkle.show.fold import folded

    named = group.visible_devices
    wanted = "none" if group.family.mask is None else f"{group.gpus_per_worker} of the node"
    devices = wanted if named is None else f"of {', '.join(map(str, named))}"  # type: ignore[arg-type]
    many = f"{title} ({group.workers} worker{'' if group.workers == 1 else 's'})"
    return [many, "not placed", folded(range(group.workers)), devices]
