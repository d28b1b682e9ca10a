"""Reading ahead: a thread that reads the batches of one iteration while the ones before are being used."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError, RemoteCallError

if TYPE_CHECKING:
    from twinkle.dataloader import DataLoader, Step

__all__ = ["Reading", "superseded"]


def superseded(iteration: int, by: str) -> PlanError:
    """The refusal of a batch of an iteration that something has ended."""
    return PlanError(
        f"this iteration was ended by {by}: a loader has one iteration at a time, make another loader for a second one",
        iteration=iteration,
    )


class Reading:
    """One iteration of a loader, of which up to `prefetch` batches are read ahead of what is taken."""

    def __init__(self, number: int, loader: DataLoader, prefetch: int) -> None:
        self.number, self._loader, self._prefetch = number, loader, prefetch
        #: Batches that are read, each with the cursor behind it.
        self._ahead: deque[tuple[Step, Any]] = deque()
        #: Notified whenever anything here changes. Whoever waits on it waits for a thread that lives.
        self._changed = threading.Condition()
        self._stopped = self._read_all = False
        self._failure: Exception | None = None
        self._last: Any = None
        #: Held by the one thread that uses the loader.
        self._turn = threading.Lock()
        #: Whether the end, or what reading raised, has been handed out.
        self.is_over = False
        self._steps: Any = loader.steps()
        try:
            self._count: int | TypeError = len(loader)
        except TypeError as error:
            self._count = error
        threading.Thread(target=self._read, daemon=True).start()

    def count(self) -> int:
        """How many batches this iteration yields; TypeError where the source has no length."""
        if isinstance(self._count, TypeError):
            raise self._count
        return self._count

    def take(self, state: Any) -> tuple[Step | None, Any]:
        """The next batch, None at the end, and the cursor behind it; `state` is the one before it."""
        with self._changed:
            self._changed.wait_for(lambda: self._ahead or self._read_all or self._stopped)
            if self._stopped:
                raise superseded(self.number, "a newer one or by load_state_dict()")
            if self._ahead:
                taken = self._ahead.popleft()
                self._changed.notify_all()
                return taken
            self.is_over = True
            if self._failure is not None:
                raise self._failure
            return None, self._last or state

    def stop(self) -> None:
        """Tells the reader to leave, and whoever waits for a batch that none comes; waits for nobody."""
        with self._changed:
            self._stopped = True
            self._ahead.clear()
            self._changed.notify_all()

    def paused(self) -> threading.Lock:
        """What keeps the reader off the loader while it is held."""
        return self._turn

    def close(self) -> None:
        """Leaves the loader's own iteration; `paused()` is held."""
        self._steps.close()

    def _read(self) -> None:
        failure: Exception | None = None
        try:
            while self._read_one():
                pass
        except Exception as error:  # it belongs to whoever asks for the batch
            failure = error
        except BaseException as error:  # a data set that ends its thread must not leave anybody waiting
            failure = RemoteCallError(
                f"reading a batch ended with {type(error).__name__}: {error}", method="RemoteDataLoader"
            )
            failure.__cause__ = error
        finally:
            with self._changed:
                self._failure, self._read_all = failure, True
                self._changed.notify_all()

    def _read_one(self) -> bool:
        """Reads a batch once there is room for it; whether there may be more."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._ahead) < self._prefetch or self._stopped)
        with self._turn:
            if self._stopped:
                self._steps.close()
                return False
            step = next(self._steps, None)
            state = self._loader.state_dict()
        with self._changed:
            if self._stopped:
                return False
            if step is None:
                self._last = state
            else:
                self._ahead.append((step, state))
            self._changed.notify_all()
        return step is not None
