"""A data loader as a component: it reads ahead in a worker of its own and hands its batches over as shards."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

from twinkle.platform import Platform
from twinkle.remote.batches import with_rows
from twinkle.remote.classes import remote_class, remote_function
from twinkle.remote.results import Cut
from twinkle.runtime import current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinkle.mesh import DeviceMesh

__all__ = ["RemoteDataLoader"]


@remote_class(execute="first")
class RemoteDataLoader:
    """Batches of a data set, read in the first worker of a group while the job computes.

    Takes what `twinkle.dataloader.DataLoader` takes. `device_mesh` is the mesh of the component that the batches go to:
    each batch is kept as one piece per data rank of it, so that handing it over cuts nothing and no row passes the
    driver. `prefetch` batches are read ahead. Without a `remote_group` the loader reads in this process.

    Iterating goes through one epoch, as handles: one for each column of a batch, in the sense of `DataLoader`.
    `state_dict()` is the cursor behind the batch that was handed out last, whatever has been read ahead.

    In local mode under a launcher every rank makes the loader and iterates it alike. The ranks of its mesh read, each
    its own share, where `num_workers` reads ahead in the place of `prefetch`; ranks outside the mesh get the handles as
    well, and hear of errors and of the end.
    """

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """Under a launcher the loader of all ranks, which is no component of one."""
        if current.mode == "local" and Platform.get_world_size() > 1 and Platform.get_rank() >= 0:
            from twinkle.remote.loading_launched import LaunchedLoader

            return LaunchedLoader(*args, **options)
        return super().__new__(cls)

    def __init__(
        self, dataset: Any, *, prefetch: int = 2, device_mesh: DeviceMesh | None = None, **options: Any
    ) -> None:
        from twinkle.dataloader import DataLoader

        self.loader = DataLoader(dataset, device_mesh=device_mesh, **options)
        self._prefetch = prefetch
        self._ahead: queue.Queue[Any] = queue.Queue()
        self._stop = threading.Event()
        self._state = self.loader.state_dict()

    def __iter__(self) -> Iterator[Any]:
        """The batches of one epoch, each a handle, or with handles in the places of its columns."""
        self.begin()
        while (batch := self.next_batch()) is not None:
            yield batch

    def __len__(self) -> int:
        """How many batches an epoch has."""
        return int(self.count())

    @remote_function(collect="first")
    def count(self) -> Any:
        """How many batches an epoch has."""
        return len(self.loader)

    @remote_function(collect="first")
    def begin(self) -> None:
        """Starts reading an epoch."""
        self._stop.set()
        self._stop, self._ahead = threading.Event(), queue.Queue(maxsize=max(self._prefetch, 1))
        # Whose rows these are is asked here, in the call; the reading goes on between calls.
        steps = self.loader.steps()
        reader = threading.Thread(target=self._read, args=(steps, self._ahead, self._stop), daemon=True)
        reader.start()

    @remote_function(collect="first", lazy_collect=True)
    def next_batch(self) -> Any:
        """The next batch, None at the end of the epoch; what its reading raised is raised here."""
        step, state, error = self._ahead.get()
        if error is not None:
            raise error
        if state is not None:
            self._state = state
        if step is None or current.mode != "worker":
            return None if step is None else step.batch
        layout = step.layout if step.shard is None else None
        expected = step.layout.n if step.shard is None else int(step.layout.sizes[step.shard])
        return with_rows(step.batch, self.loader, expected, lambda rows, _: Cut(rows, layout))

    @remote_function(collect="first")
    def state_dict(self) -> Any:
        """The cursor behind the batch that was handed out last."""
        return self._state

    @remote_function(collect="first")
    def load_state_dict(self, state: Any) -> None:
        """Continues behind a saved cursor; the next iteration begins there."""
        self._stop.set()
        self.loader.load_state_dict(state)
        self._state = state

    def _read(self, steps: Any, ahead: queue.Queue[Any], stop: threading.Event) -> None:
        def hand_out(item: tuple[Any, Any, Any]) -> None:
            while not stop.is_set():
                try:
                    ahead.put(item, timeout=0.1)
                except queue.Full:
                    continue
                return

        try:
            for step in steps:
                hand_out((step, self.loader.state_dict(), None))
                if stop.is_set():
                    return
            hand_out((None, self.loader.state_dict(), None))
        except Exception as error:  # it belongs to whoever asks for the batch
            hand_out((None, None, error))
        finally:
            steps.close()
