"""What has moved: how many rows went through this process, and how many went from worker to worker."""

from __future__ import annotations

__all__ = ["Traffic", "traffic"]


class Traffic:
    """Counts of rows since the last `reset`."""

    def __init__(self) -> None:
        #: Rows that this process cut and sent, or pulled.
        self.driver_rows = 0
        #: Rows that workers were handed by other workers, replicas counted each.
        self.moved_rows = 0

    def reset(self) -> None:
        """Starts counting anew."""
        self.driver_rows = self.moved_rows = 0

    def __repr__(self) -> str:
        return f"<Traffic: {self.driver_rows} rows through this process, {self.moved_rows} from worker to worker>"


traffic = Traffic()
