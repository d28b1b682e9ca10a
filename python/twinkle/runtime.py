"""Who this process is and which mode it runs in: the one place for what a running job has decided.

Everything here is set by `initialize` and by remote workers; nothing is read from the environment, and importing this
module loads nothing of twinkle.
"""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinkle.mesh import DeviceMesh

__all__ = ["Runtime", "current"]


class Runtime:
    """The decisions of one process; `current` is the only instance."""

    __slots__ = ("_mode", "device_mesh", "positions", "positions_mesh", "thread")

    def __init__(self) -> None:
        self._mode: str | None = None
        #: In local mode the thread that is in a component, by its identity; None while none is.
        self.thread: int | None = None
        #: The mesh that components get when they are given none.
        self.device_mesh: DeviceMesh | None = None
        #: In a remote worker: its positions of `positions_mesh`; on a Ray driver the empty tuple; else None.
        self.positions: tuple[int, ...] | None = None
        #: The component's mesh that `positions` counts in.
        self.positions_mesh: DeviceMesh | None = None

    @property
    def mode(self) -> str | None:
        """None until `initialize`, then 'local' or 'ray'; in a component 'worker'.

        In local mode that is for the thread that is in the component, and the others call none meanwhile.
        """
        return self._mode if self.thread is None or self.thread == get_ident() else "local"

    @mode.setter
    def mode(self, mode: str | None) -> None:
        self._mode = mode


current = Runtime()
