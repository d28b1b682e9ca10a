"""Who sits where: the workers of device groups, their nodes and their devices, as a table of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinkle.show.fold import folded
from twinkle.show.table import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from twinkle.platform.allocation import Worker

__all__ = ["placed_rows", "placement_table", "placement_text"]


def placement_text(placed: Mapping[str, Sequence[Worker]], *, width: int = 80) -> str:
    """What `twinkle.allocate` answered, one row per group and node, in at most `width` columns.

    Names may be in any script. A worker's devices stand together, `0,1`; the next worker's follow after a space.
    """
    return placement_table((row for name, workers in placed.items() for row in placed_rows(name, workers)), width=width)


def placed_rows(name: str, workers: Sequence[Worker], place: Callable[[Worker], str] | None = None) -> list[list[str]]:
    """The rows of one group, a node each; `place` says how a worker's node is called."""
    by_node: dict[str, list[Worker]] = {}
    for worker in workers:
        by_node.setdefault(worker.node if place is None else place(worker), []).append(worker)
    title = f"{name} ({len(workers)} worker{'' if len(workers) == 1 else 's'})"
    rows = []
    for node, here in by_node.items():
        devices = " ".join(",".join(worker.devices) for worker in here).strip()
        rows.append([title, node, folded([worker.rank for worker in here]), devices or "none"])
        title = ""
    return rows


def placement_table(rows: Iterable[Sequence[str]], *, width: int = 80) -> str:
    """Rows of group, node, workers and devices under their headings."""
    listed = list(rows)
    if not listed:
        return "no device groups"
    return table(["group", "node", "workers", "devices"], listed, width=width)
