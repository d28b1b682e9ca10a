"""What of a loader's batch is rows: by type, and then counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError
from twinkle.remote import trees
from twinkle.remote.exchange import note_failure
from twinkle.remote.keeping import Keeper, local_handle, local_keeper
from twinkle.remote.rows import count

if TYPE_CHECKING:
    from twinkle.dataloader import DataLoader, Step

__all__ = ["LOADED", "Handles", "failures_noted", "with_rows"]

#: What the handles of a loader are called where the ranks are not of one mind.
LOADED = "a batch of a DataLoader"

#: Makes something of the rows at a path, such as a handle.
Make = Callable[[Any, str], Any]


def with_rows(batch: Any, loader: DataLoader, expected: int, make: Make) -> Any:
    """The batch with each column replaced by what `make` makes of its rows and its name.

    A mapping, a tuple and a record are columns, in whatever depth, and so is a list where torch's own collate function
    made it of samples that are lists or tuples; texts it puts side by side, which are rows. Any other list, an array
    and a tensor are rows; numbers and texts stay. PlanError where a column has another number of rows than is expected.
    """
    from torch.utils.data import default_collate

    collated = loader.collate_fn is default_collate

    def leaf(node: Any, path: trees.Path) -> tuple[bool, Any]:
        if trees.is_branch(node) and (not _is_texts(node) if collated else not isinstance(node, list)):
            return False, None
        found = count(node)
        if found is None:
            return True, node
        if found != expected:
            name = trees.path_text(("batch", *path))
            raise PlanError(
                f"{name} of a batch has {found} rows, and this process has {expected} of the batch: a collate_fn gives "
                "one for each sample in every column, in a list, an array or a tensor",
                column=name,
                found=found,
                expected=expected,
            )
        return True, make(node, str(path[-1]) if path else "rows")

    return trees.rebuilt(batch, leaf)


def _is_texts(node: Any) -> bool:
    """Whether this is how torch's collate function leaves the texts of a batch."""
    return type(node) in (list, tuple) and bool(node) and all(isinstance(item, (str, bytes)) for item in node)


class Handles:
    """Turns the batches of one iteration of a loader into handles, in local mode.

    Every rank's own share is one shard, whose plain rows are the handle's `local`. Where the loader gives whole
    batches, as alone in a job, they are one shard.
    """

    def __init__(self, loader: DataLoader) -> None:
        self.loader = loader
        self._keeper: Keeper | None = None
        #: How many handles there were; numbers tell them apart.
        self.made = 0

    def __call__(self, step: Step) -> Any:
        """The batch of one step, as a handle or with handles in the places of its columns."""
        from twinkle.mesh import DeviceMesh
        from twinkle.plan import Layout

        layout, expected = step.layout, step.layout.n
        mesh = self.loader.device_mesh
        if step.shard is None or mesh is None:
            layout, mesh = Layout.even(expected, 1), DeviceMesh.from_sizes(dp_size=1)
        else:
            expected = int(layout.sizes[step.shard])
        keeper = self._keeper = self._keeper or local_keeper(mesh, LOADED)

        def made(rows: Any, name: str) -> Any:
            self.made += 1
            return local_handle(rows, layout, keeper, name, self.made)

        return with_rows(step.batch, self.loader, expected, made)


@contextmanager
def failures_noted() -> Iterator[None]:
    """While a loader reads: what it raises here is told to the other ranks if their next calls are others."""
    try:
        yield
    except Exception as error:
        note_failure("its DataLoader", error)
        raise
