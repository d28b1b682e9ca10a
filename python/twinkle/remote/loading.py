"""A data loader as a component: it reads ahead in a worker of its own and hands its batches over as shards."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError
from twinkle.platform import Platform
from twinkle.remote import trees
from twinkle.remote.classes import remote_class, remote_function
from twinkle.remote.engine_local import local_handle
from twinkle.remote.results import Cut
from twinkle.runtime import current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinkle.dataloader import DataLoader
    from twinkle.mesh import DeviceMesh
    from twinkle.plan import Layout

__all__ = ["RemoteDataLoader", "batches"]


def batches(loader: DataLoader) -> Iterator[Any]:
    """The batches of one epoch of a DataLoader as handles, in local mode under a launcher.

    Every rank of the loader's mesh reads its own share and calls this alike; together the shares are one handle, whose
    `.local` is this rank's plain batch. Where a loader yields whole global batches, as on a driver, they come as they
    are.
    """
    for step in loader.steps():
        mesh = loader.device_mesh
        yield step.batch if step.shard is None or mesh is None else _handles(step.batch, step.layout, mesh)


def _handles(batch: Any, layout: Layout, mesh: DeviceMesh) -> Any:
    """A handle, or a mapping of handles where a batch is columns."""

    def leaf(node: Any, _: trees.Path) -> tuple[bool, Any]:
        return (False, None) if isinstance(node, Mapping) else (True, local_handle(node, layout, mesh))

    return trees.rebuilt(batch, leaf)


@remote_class(execute="first")
class RemoteDataLoader:
    """Batches of a data set, read in the first worker of a group while the job computes.

    Takes what `twinkle.dataloader.DataLoader` takes. `device_mesh` is the mesh of the component that the batches go to:
    each batch is kept as one piece per data rank of it, so that handing it over cuts nothing and no row passes the
    driver. `prefetch` batches are read ahead. Without a `remote_group` the loader reads in this process.

    Iterating goes through one epoch, as handles. `state_dict()` is the cursor behind the batch that was handed out
    last, whatever has been read ahead.
    """

    def __init__(
        self, dataset: Any, *, prefetch: int = 2, device_mesh: DeviceMesh | None = None, **options: Any
    ) -> None:
        from twinkle.dataloader import DataLoader

        if Platform.get_world_size() > 1 and not current.positions:
            raise PlanError(
                "under a launcher every rank reads its own share: iterate batches(DataLoader(...)), which gives the "
                "same handles"
            )
        self.loader = DataLoader(dataset, device_mesh=device_mesh, **options)
        self._prefetch = prefetch
        self._ahead: queue.Queue[Any] = queue.Queue()
        self._stop = threading.Event()
        self._state = self.loader.state_dict()

    def __iter__(self) -> Iterator[Any]:
        """The batches of one epoch, each a handle, or a mapping of handles where batches are columns."""
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
        return None if step is None else Cut(step.batch, step.layout if step.shard is None else None)

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
