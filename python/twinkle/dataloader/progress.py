"""How far a loader is: the cursor behind the batch delivered last, and where the next iteration begins."""

from __future__ import annotations

from twinkle.dataloader.state import Cursor

__all__ = ["Progress"]


class Progress:
    """A cursor that iterations move on, and that a saved state or a chosen epoch moves elsewhere."""

    def __init__(self) -> None:
        self.cursor = Cursor(0, 0)
        #: Whether the next iteration yields nothing: it is the end of an epoch of which all was delivered.
        self.at_end = False
        # A loaded position counts until a batch of it is delivered, and is still to be placed until one is asked for.
        self._resumed = self._placing = False

    @property
    def beginning(self) -> Cursor:
        """Where the next iteration begins: at a loaded position, else at the beginning of its epoch."""
        return self.cursor if self._resumed else Cursor(self.cursor.epoch, 0)

    def load(self, cursor: Cursor) -> None:
        """Goes to the cursor of an earlier run."""
        self.cursor, self.at_end = cursor, False
        self._resumed = self._placing = True

    def choose(self, epoch: int) -> bool:
        """Places the next iteration in an epoch; whether that moves the cursor.

        A cursor behind the last batch of an epoch is at the beginning of the next one. A run that saved it in the body
        of that batch takes up its loop in the epoch that it was in, of which nothing is left.
        """
        self.at_end = self._placing and self.cursor == (epoch + 1, 0)
        if self.at_end or epoch == self.cursor.epoch:
            return False
        self.cursor, self._resumed, self._placing = Cursor(epoch, 0), True, False
        return True

    def begin(self) -> None:
        """Takes up the place where the next iteration begins, which is asked for now."""
        if not self.at_end:
            self.cursor = self.beginning
        self.at_end = self._placing = False

    def reach(self, cursor: Cursor) -> None:
        """Moves on, behind a batch that is delivered or an epoch that is over."""
        self.cursor, self._resumed = cursor, False
