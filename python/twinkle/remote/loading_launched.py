"""A data loader as a component under a launcher: the ranks of its mesh read, and all ranks get the handles."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinkle.dataloader.place import mesh_of
from twinkle.errors import PlanError, RemoteCallError
from twinkle.remote import trees
from twinkle.remote.batches import LOADED, Handles, with_rows
from twinkle.remote.exchange import Exchange, exchange, note_failure
from twinkle.remote.keeping import check_ranks, local_handle, local_keeper
from twinkle.remote.reading import superseded
from twinkle.remote.session import current_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from twinkle.dataloader import DataLoader, Step
    from twinkle.mesh import DeviceMesh

__all__ = ["LaunchedLoader"]


@dataclass(frozen=True)
class _Column:
    """Stands in a batch for the rows of one column."""

    name: str


class LaunchedLoader:
    """What `RemoteDataLoader(...)` is under a launcher.

    Every rank of the mesh reads its own share itself, so that `num_workers` reads ahead and `prefetch` does not. Where
    the job has ranks outside the mesh, one small exchange a step tells them of the batch, of an error and of the end.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        prefetch: int = 2,
        device_mesh: DeviceMesh | None = None,
        remote_group: str | None = None,
        **options: Any,
    ) -> None:
        from twinkle.dataloader import DataLoader

        del prefetch  # there is no worker apart that could read ahead
        session, peers, mesh = current_session(), exchange(), mesh_of(device_mesh)
        assert session is not None
        assert peers is not None
        assert mesh is not None
        if remote_group is not None:
            session.check_group(remote_group)
        check_ranks(mesh, "RemoteDataLoader")
        self.device_mesh = mesh
        #: Those to tell; None where every rank reads.
        self._peers: Exchange | None = None if all(rank in mesh for rank in range(peers.size)) else peers
        self._reads, self._lead = peers.rank in mesh, mesh.rank_at(0)
        self._keeper = local_keeper(mesh, LOADED)
        self._loader: DataLoader | None = None
        self._steps: Iterator[Step] | None = None
        #: How many iterations were begun, the number of the one that goes on, and what ended the one before it.
        self._begun, self._iteration, self._ended_by = 0, 0, ""

        def made() -> Any:
            self._loader = DataLoader(dataset, device_mesh=mesh, **options)
            self._handles = Handles(self._loader)
            return self._known()

        self._count, self._state = self._everywhere(made)

    def __iter__(self) -> Iterator[Any]:
        """The batches of one epoch, each a handle, or with handles in the places of its columns."""
        iteration = self.begin()
        while (batch := self.next_batch(iteration)) is not None:
            yield batch

    def __len__(self) -> int:
        """How many batches the iteration that is going on, or else the next one, yields."""
        if self._loader is not None:
            return len(self._loader)
        if self._count is None:
            raise TypeError("a loader of a stream has no len(): its source has none")
        return int(self._count)

    def count(self) -> int:
        """The same as `len()`."""
        return len(self)

    def begin(self) -> int:
        """Starts reading an epoch, and returns the number of this iteration; the one before it ends."""
        self._iteration = self._begun = self._begun + 1
        self._ended_by = "a newer one"

        def begun() -> Any:
            self._close()
            assert self._loader is not None
            self._steps = self._loader.steps()
            return self._known()

        self._count, self._state = self._everywhere(begun)
        return self._begun

    def next_batch(self, iteration: int | None = None) -> Any:
        """The next batch, None at the end of the epoch; what its reading raised on any rank is raised here.

        `iteration` is a number that `begin()` gave, None the newest. One that has been ended is refused, on all ranks.
        """
        if self._begun and (not self._iteration or iteration not in (None, self._iteration)):
            raise superseded(self._begun if iteration is None else iteration, self._ended_by)
        own: list[Any] = []

        def read() -> Any:
            loader, steps = self._loader, self._steps
            if loader is None or steps is None:
                raise PlanError("next_batch() comes after begin()")
            step = next(steps, None)
            if step is None:
                return self._known(), None, None
            first = self._handles.made
            own.append(self._handles(step))
            known = self._count, loader.state_dict()
            if self._peers is None:
                return known, None, None
            shares = step.layout.sizes.tolist()
            names = with_rows(step.batch, loader, shares[step.shard or 0], lambda _, name: _Column(name))
            return known, names, (step.layout, first)

        (self._count, self._state), names, handed = self._everywhere(read)
        if self._reads:
            return own[0] if own else None
        if handed is None:
            return None
        layout, first = handed
        numbers = itertools.count(first + 1)

        def leaf(node: Any, _: trees.Path) -> tuple[bool, Any]:
            if not isinstance(node, _Column):
                return False, None
            return True, local_handle(None, layout, self._keeper, node.name, next(numbers))

        return trees.rebuilt(names, leaf)

    def state_dict(self) -> Any:
        """The cursor behind the batch that was handed out last, the same on every rank."""
        return self._state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues behind a saved cursor; the next iteration begins there, and one that is going on ends.

        Every rank loads the same. A state that is refused changes nothing.
        """

        def loaded() -> Any:
            assert self._loader is not None
            self._loader.load_state_dict(state)
            self._close()
            return self._known()

        self._count, self._state = self._everywhere(loaded)
        self._iteration, self._ended_by = 0, "load_state_dict()"

    def _close(self) -> None:
        """Leaves an iteration that was abandoned."""
        close = getattr(self._steps, "close", None)
        self._steps = None
        if close is not None:
            close()

    def _known(self) -> tuple[int | None, Any]:
        """How many batches there are, where that is known, and the cursor."""
        loader = self._loader
        assert loader is not None
        try:
            return len(loader), loader.state_dict()
        except TypeError:
            return None, loader.state_dict()

    def _everywhere(self, act: Callable[[], Any]) -> Any:
        """What `act` says on the first rank of the mesh, told to the others; what it raises on one is raised on all."""
        said, failure = None, None
        try:
            said = act() if self._reads else None
        except Exception as error:
            if self._peers is None:
                note_failure("its RemoteDataLoader", error)
                raise
            failure = error
        if self._peers is None:
            return said
        text = None if failure is None else f"{type(failure).__name__}: {failure}"
        with self._peers.during("RemoteDataLoader", None, "asks a RemoteDataLoader"):
            told = self._peers.gathered((text, said if self._peers.rank == self._lead else None), "its batch")
        if failure is not None:
            raise failure
        for rank, (text, _) in enumerate(told):
            if text is not None:
                raise RemoteCallError(
                    f"RemoteDataLoader failed on rank {rank}: {text}", method="RemoteDataLoader", rank=rank
                )
        # A rank that reads has its own numbers, which are the same.
        return said if self._reads else told[self._lead][1]
