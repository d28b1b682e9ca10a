"""A data loader as a component: it reads ahead in a worker of its own and hands its batches over as shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError, RemoteCallError
from twinkle.platform import Platform
from twinkle.platform.checks import whole
from twinkle.remote.batches import with_rows
from twinkle.remote.classes import remote_class, remote_function
from twinkle.remote.reading import Reading, superseded
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
    `state_dict()` is the cursor behind the batch that was handed out last, whatever has been read ahead. A loader has
    one iteration at a time: a newer one, or `load_state_dict()`, ends the one before, whose next batch is refused.

    In local mode under a launcher every rank makes the loader and iterates it alike. The ranks of its mesh read, each
    its own share, where `num_workers` reads ahead in the place of `prefetch`; ranks outside the mesh get the handles as
    well, and hear of errors and of the end.
    """

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """Under a launcher the loader of all ranks, which is no component of one."""
        if "prefetch" in options:
            whole(options["prefetch"], "prefetch", PlanError, least=1)
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
        self._reading: Reading | None = None
        self._begun, self._ended_by = 0, ""
        self._state = self.loader.state_dict()

    def __iter__(self) -> Iterator[Any]:
        """The batches of one epoch, each a handle, or with handles in the places of its columns."""
        iteration = self.begin()
        while True:
            try:
                batch = self.next_batch(iteration)
            except RemoteCallError as error:
                cause = error.fields.get("cause")
                if isinstance(cause, PlanError) and cause.fields.get("iteration") == iteration:
                    raise PlanError(str(cause), **cause.fields) from None
                raise
            if batch is None:
                return
            yield batch

    def __len__(self) -> int:
        """How many batches the iteration that is going on, or else the next one, yields."""
        return int(self.count())

    def __del__(self) -> None:
        # Only where the loader itself lives, a thread may be reading for it.
        reading = self.__dict__.get("_reading")
        if reading is not None:
            reading.stop()

    @remote_function(collect="first")
    def count(self) -> Any:
        """The same as `len()`."""
        reading = self._reading
        return len(self.loader) if reading is None or reading.is_over else reading.count()

    @remote_function(collect="first")
    def begin(self) -> int:
        """Starts reading an epoch, and returns the number of this iteration; the one before it ends."""
        self._begun, self._ended_by = self._begun + 1, "a newer one"
        self._leave()
        # Whose rows these are is asked here, in the call; the reading goes on between calls.
        self._reading = Reading(self._begun, self.loader, self._prefetch)
        return self._begun

    @remote_function(collect="first", lazy_collect=True)
    def next_batch(self, iteration: int | None = None) -> Any:
        """The next batch, None at the end of the epoch; what its reading raised is raised here.

        `iteration` is a number that `begin()` gave, None the newest. One that has been ended is refused at once.
        """
        reading = self._reading
        if not self._begun:
            raise PlanError("next_batch() comes after begin()")
        if reading is None or iteration not in (None, reading.number):
            raise superseded(self._begun if iteration is None else iteration, self._ended_by)
        step, self._state = reading.take(self._state)
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
        """Continues behind a saved cursor; the next iteration begins there, and one that is going on ends.

        A state that is refused changes nothing.
        """
        if self._reading is None:
            self.loader.load_state_dict(state)
        else:
            with self._reading.paused():
                self.loader.load_state_dict(state)
                self._reading.stop()
        self._reading, self._state, self._ended_by = None, state, "load_state_dict()"

    def _leave(self) -> None:
        """Ends the iteration that is going on; the next one begins the epoch of the batch that comes next in it."""
        reading, self._reading = self._reading, None
        if reading is None:
            return
        reading.stop()
        with reading.paused():
            reading.close()
            if not reading.is_over:
                # What was read ahead may have moved the loader on to the next epoch.
                self.loader.set_epoch(self._state["epoch"])
