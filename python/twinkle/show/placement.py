"""Who sits where: the workers of device groups, their nodes and their devices, as a table of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinkle.show.fold import folded
from twinkle.show.table import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinkle.platform.allocation import Worker

__all__ = ["placement_text"]


def placement_text(placed: Mapping[str, Sequence[Worker]], *, width: int = 80) -> str:
    """What `twinkle.allocate` answered, one row per group and node, in at most `width` columns.

    Names may be in any script. A worker's devices stand together, `0,1`; the next worker's follow after a space.
    """
    rows: list[list[str]] = []
    for name, workers in placed.items():
        by_node: dict[str, list[Worker]] = {}
        for worker in workers:
            by_node.setdefault(worker.node, []).append(worker)
        title = f"{name} ({len(workers)} worker{'' if len(workers) == 1 else 's'})"
        for node, here in by_node.items():
            devices = " ".join(",".join(worker.devices) for worker in here).strip()
            rows.append([title, node, folded([worker.rank for worker in here]), devices or "none"])
            title = ""
    if not rows:
        return "no groups"
    return table(["group", "node", "workers", "devices of each worker"], rows, width=width)
