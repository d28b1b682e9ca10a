"""Who this process is and which mode it runs in: the one place for what a running job has decided.

Everything here is set by `initialize` and by remote workers; nothing is read from the environment, and importing this
module loads nothing of twinkle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinkle.mesh import DeviceMesh

__all__ = ["Runtime", "current"]


class Runtime:
    """The decisions of one process; `current` is the only instance."""

    __slots__ = ("device_mesh", "mode", "positions", "positions_mesh")

    def __init__(self) -> None:
        #: None until `initialize`, then 'local' or 'ray'.
        self.mode: str | None = None
        #: The mesh that components get when they are given none.
        self.device_mesh: DeviceMesh | None = None
        #: In a remote worker: its positions of `positions_mesh`; on a Ray driver the empty tuple; else None.
        self.positions: tuple[int, ...] | None = None
        #: The component's mesh that `positions` counts in.
        self.positions_mesh: DeviceMesh | None = None


current = Runtime()
