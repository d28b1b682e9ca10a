"""Who this process is in a mesh: asked anew each time, since a job may start after its meshes are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinkle.errors import RankError
from twinkle.mesh_state import MeshState
from twinkle.platform.checks import shown
from twinkle.platform.platform import Platform
from twinkle.runtime import current

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AxisIndex", "ThisProcess"]


class AxisIndex:  # noqa: D101 - `__doc__` is a slot, so that each instance has its own
    # A property: this process's index along one axis. Its own docstring names the axis.
    __slots__ = ("__doc__", "axis")

    def __init__(self, axis: str) -> None:
        self.axis = axis
        self.__doc__ = (
            f"This process's index along {axis}; None where {axis} is not declared, the process is not in the mesh, "
            "or the positions of a remote worker differ on it."
        )

    def __get__(self, mesh: ThisProcess | None, owner: type | None = None) -> int | None:
        if mesh is None:
            return self  # type: ignore[return-value]
        core, axis = mesh._core, self.axis
        return mesh._own(lambda rank: core.index_along(axis, rank))

    def __set__(self, mesh: ThisProcess, value: Any) -> None:
        raise AttributeError(f"{self.axis}_rank is who this process is, and cannot be set")


class ThisProcess(MeshState):
    """The questions of a mesh that are about the process asking them."""

    __slots__ = ()

    dp_rank = AxisIndex("dp")
    fsdp_rank = AxisIndex("fsdp")
    tp_rank = AxisIndex("tp")
    pp_rank = AxisIndex("pp")
    cp_rank = AxisIndex("cp")
    ep_rank = AxisIndex("ep")

    @property
    def data_rank(self) -> int | None:
        """Which share of the rows this process gets; None where it is not in the mesh, or its positions differ."""
        return self._own(self._core.data_rank_of)

    @property
    def is_single_process(self) -> bool:
        """Whether the mesh is a world of one and no launcher started this process."""
        return self._core.world_size == 1 and current.positions is None and Platform.get_rank() < 0

    def _own_ranks(self) -> tuple[int, ...]:
        """The ranks that this process is, in this mesh: one, several in a worker with several devices, or none."""
        if current.positions is not None:
            component = current.positions_mesh
            if component is None or component._core not in (self._core, self._home):
                return ()
            ranks = (component._core.rank_at(position) for position in current.positions)
            return tuple(rank for rank in ranks if self._core.contains(rank))
        rank = Platform.get_rank()
        if rank < 0:
            # A mesh of one needs no launcher to know its only rank.
            return (self._core.offset,) if self._core.world_size == 1 else ()
        return (rank,) if self._core.contains(rank) else ()

    def _own_rank(self) -> int | None:
        """The one rank that this process is, or None."""
        ranks = self._own_ranks()
        return ranks[0] if len(ranks) == 1 else None

    def _own(self, answer: Callable[[int], int | None]) -> int | None:
        """What every rank of this process answers alike, else None; `answer` is None outside the mesh."""
        if current.positions is None and (rank := Platform.get_rank()) >= 0:
            return answer(rank)
        answers = {answer(rank) for rank in self._own_ranks()}
        return answers.pop() if len(answers) == 1 else None

    def _this_rank(self, instead: str = "about a rank by its number") -> int:
        """The rank that this process is; RankError naming what was looked at and what to ask instead."""
        ranks = self._own_ranks()
        if len(ranks) == 1:
            return ranks[0]
        if current.positions is not None:
            looked_at = (
                f"it is a remote worker at positions {list(current.positions)}"
                if current.positions
                else ("it is the driver of a Ray job, which is nobody")
            )
        elif (rank := Platform.get_rank()) >= 0:
            looked_at = f"it is rank {rank}"
        else:
            looked_at = "neither torch.distributed nor a launcher's variables (RANK and its kind) say which rank it is"
        raise RankError(
            f"this process is not one rank of {self!r}: {looked_at}; ask {instead} instead",
            world_size=self._core.world_size,
            ranks=list(ranks),
        )

    def _row_owner(self, total_length: int) -> int:
        """A rank of this process; all its ranks share their rows, or it is refused."""
        ranks = self._own_ranks()
        if len(ranks) > 1 and self.data_rank is not None:
            return ranks[0]
        return ranks[0] if len(ranks) == 1 else self._this_rank(f"slices({shown(total_length)})")
