"""Placements: which worker holds which shard, and which worker reads rows from which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from twinkle._core import Placement as CorePlacement
from twinkle._core import route as core_route
from twinkle.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["CollectFrom", "Placement", "route"]

CollectFrom = Literal["pp_last", "pp_first", "any", "all"]


class Placement:
    """Which worker holds which shard: what `DeviceMesh.placement` makes.

    Workers and shards count from 0. `collect_from` says who has the output of a call: `'pp_last'` the representative
    of each shard, `'pp_first'` its counterpart in the first pipeline stage, `'any'` and `'all'` every member.
    """

    __slots__ = ("_core", "_shard_of_worker")
    _core: CorePlacement
    _shard_of_worker: NDArray[np.int32] | None

    def __init__(self) -> None:
        raise PlanError("a placement is made by DeviceMesh.placement")

    @classmethod
    def _of(cls, core: CorePlacement) -> Placement:
        placement = object.__new__(cls)
        placement._core, placement._shard_of_worker = core, None
        return placement

    @classmethod
    def _from_bytes(cls, data: bytes) -> Placement:
        return cls._of(CorePlacement.from_bytes(data))

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return self._core.workers

    @property
    def shards(self) -> int:
        """How many shards there are: the data world size of the mesh."""
        return self._core.shards

    @property
    def collect_from(self) -> str:
        """Who has the output of a call."""
        return self._core.collect_from

    @property
    def shard_of_worker(self) -> NDArray[np.int32]:
        """The shard of every worker: (workers,), read-only, built on first read."""
        if self._shard_of_worker is None:
            shards = self._core.shard_of_worker()
            shards.flags.writeable = False
            self._shard_of_worker = shards
        return self._shard_of_worker

    @property
    def lead(self) -> NDArray[np.int32]:
        """The first worker of each shard: (shards,)."""
        return self._core.lead()

    @property
    def representative(self) -> NDArray[np.int32]:
        """The worker of each shard whose output is collected, last pipeline stage, then lowest position: (shards,)."""
        return self._core.representative()

    def members(self, shard: SupportsIndex) -> NDArray[np.int32]:
        """The workers of one shard, ascending: they get the same rows."""
        return self._core.members(shard)

    def holders(self, shard: SupportsIndex) -> NDArray[np.int32]:
        """The workers of one shard that have the output of a call, by `collect_from`."""
        return self._core.holders(shard)

    def __eq__(self, other: object) -> bool:
        return self._core == other._core if isinstance(other, Placement) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._core)

    def __reduce__(self) -> tuple[Any, ...]:
        return Placement._from_bytes, (self._core.to_bytes(),)

    def __copy__(self) -> Placement:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Placement:
        return self

    def __repr__(self) -> str:
        return f"<Placement of {self.shards} shards on {self.workers} workers, collect_from={self.collect_from!r}>"

    def __str__(self) -> str:
        lines = [f"{self.shards} shards on {self.workers} workers, collected from {self.collect_from!r}"]
        lead, representative = self.lead.tolist(), self.representative.tolist()
        lines.append(f"{'shard':>5}  {'lead':>6}  {'representative':>14}  members")
        for shard in range(min(self.shards, 32)):
            members = self.members(shard)
            shown = " ".join(map(str, members[:8].tolist())) + (f" ... ({len(members)})" if len(members) > 8 else "")
            lines.append(f"{shard:>5}  {lead[shard]:>6}  {representative[shard]:>14}  {shown}")
        if self.shards > 32:
            lines.append(f"... and {self.shards - 32} more shards")
        return "\n".join(lines)


def route(  # noqa: PLR0917 - the contract's order
    moves: ArrayLike,
    source: Placement,
    target: Placement,
    same_process: ArrayLike | None = None,
    source_node: Sequence[Hashable] | None = None,
    target_node: Sequence[Hashable] | None = None,
) -> NDArray[np.int64]:
    """Sends the moves of a reshard to every worker of the target shard, each read from the nearest holder.

    (k, 5): source worker, start, target worker, start, length; by target shard, start, target worker. Holders are
    those of `source.holders`: first the one in the same process (`same_process`: per target worker the source worker,
    or -1), then on the same node (one label per worker), then the one that sends the fewest rows so far, then the
    lowest. Rows inside a process do not count as sent.
    """
    for name, placement in (("source", source), ("target", target)):
        if not isinstance(placement, Placement):
            raise PlanError(
                f"{name} must be a Placement, as DeviceMesh.placement makes it, not a {type(placement).__name__}"
            )
    if (source_node is None) != (target_node is None):
        missing = "target_node" if target_node is None else "source_node"
        raise PlanError(f"{missing} is missing: source_node and target_node go together, one label per worker")
    nodes = None if source_node is None or target_node is None else _nodes(source_node, target_node)
    return core_route(moves, source._core, target._core, same_process, nodes)


def _nodes(source: Sequence[Hashable], target: Sequence[Hashable]) -> tuple[list[int], list[int]]:
    """Numbers the labels, equal labels alike."""
    numbers: dict[Hashable, int] = {}
    numbered = []
    for name, labels in (("source_node", source), ("target_node", target)):
        if isinstance(labels, str | bytes) or not hasattr(labels, "__iter__"):
            raise PlanError(f"{name} must be a list with one label per worker, not a {type(labels).__name__}")
        try:
            numbered.append([numbers.setdefault(label, len(numbers)) for label in labels])
        except TypeError:
            raise PlanError(f"{name} must hold labels that can be compared, such as names or numbers") from None
    return numbered[0], numbered[1]
