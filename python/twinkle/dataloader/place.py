"""Which rows this process gets: its data rank of a mesh, everything, or a refusal; and the peers that must agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from twinkle.errors import MeshError, RankError
from twinkle.platform.platform import Platform
from twinkle.runtime import current

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.mesh import DeviceMesh

__all__ = ["Peers", "Place", "mesh_of", "place_of"]


class Place(NamedTuple):
    """Where a loader stands: its mesh, into how many shards batches are cut, and its own shard.

    `shard` None means whole global batches: on a Ray driver, in a component of one worker, alone in local mode, and
    with no mesh at all.
    """

    mesh: DeviceMesh | None
    shards: int
    shard: int | None


def mesh_of(device_mesh: DeviceMesh | None) -> DeviceMesh | None:
    """The mesh that a loader uses: the one given, else a component's own, else that of `initialize`, else none.

    MeshError for something that is no mesh, and for a job of several processes that has none.
    """
    from twinkle.mesh import DeviceMesh

    if device_mesh is not None:
        if not isinstance(device_mesh, DeviceMesh):
            raise MeshError(f"device_mesh must be a twinkle.DeviceMesh or None, not a {type(device_mesh).__name__}")
        return device_mesh
    component = current.positions_mesh
    if current.positions and component is not None and component.world_size > 1:
        return component
    if current.device_mesh is not None:
        return current.device_mesh
    world_size = Platform.get_world_size()
    if world_size > 1:
        raise MeshError(
            f"this is a job of {world_size} processes (WORLD_SIZE) and the loader has no device_mesh, so every "
            "process would "
            "read every row; give device_mesh=, or call twinkle.initialize first",
            world_size=world_size,
        )
    return None


def place_of(mesh: DeviceMesh | None) -> Place:
    """This process's place in a mesh; RankError where it has none."""
    if mesh is None:
        return Place(None, 1, None)
    shards = mesh.data_world_size
    component = current.positions_mesh
    alone = component is not None and component.world_size == 1 and component != mesh
    if current.positions == () or (current.positions and alone):
        return Place(mesh, shards, None)
    shard = mesh.data_rank
    if shard is None and current.mode is not None and current.positions is None and Platform.get_rank() < 0:
        # Local mode without a launcher: this process stands for every rank.
        return Place(mesh, shards, None)
    if shard is None:
        who = (
            f"a remote worker at positions {list(current.positions)}"
            if current.positions
            else f"rank {rank}"
            if (rank := Platform.get_rank()) >= 0
            else "no rank of any job (neither torch.distributed nor a launcher's variables such as RANK name one)"
        )
        raise RankError(
            f"this process is {who}, which is not one of the {mesh.world_size} places of {mesh!r}, so no rows are its "
            "own; "
            "make the loader in the processes of the mesh, or give the mesh that this process is in",
            world_size=mesh.world_size,
        )
    return Place(mesh, shards, shard)


class Peers:
    """The processes that must agree with this one, over torch.distributed where it is initialised.

    `None in, None out`: without a process group everything is decided alone.
    """

    def __init__(self, place: Place) -> None:
        self._mesh = None if place.shard is None else place.mesh
        mesh = self._mesh
        #: How many ranks share this process's rows.
        self.replicas = 1 if mesh is None else mesh.world_size // mesh.data_world_size
        self.ranks = 1 if mesh is None else mesh.world_size

    @property
    def connected(self) -> bool:
        """Whether a process group can reach the other ranks of the mesh."""
        import torch.distributed as dist

        return self.ranks > 1 and dist.is_available() and dist.is_initialized()

    def of_each_replica(self, numbers: Sequence[int]) -> list[list[int]]:
        """What the replicas of this shard say, its lead first; as many numbers each."""
        import torch
        import torch.distributed as dist

        group = self._group(self._replica_axes())
        said = torch.tensor(numbers, dtype=torch.int32, device=_device(group, self._mesh))
        told = [torch.empty_like(said) for _ in range(self.replicas)]
        dist.all_gather(told, said, group=group)
        return [one.tolist() for one in told]

    def worst(self, number: int) -> int:
        """The highest number that any rank of the mesh says."""
        import torch
        import torch.distributed as dist

        group = self._group(self._all_axes())
        told = torch.tensor([number], dtype=torch.int32, device=_device(group, self._mesh))
        dist.all_reduce(told, op=dist.ReduceOp.MAX, group=group)
        return int(told.item())

    def of_each_shard(self, said: Any) -> list[list[Any]]:
        """What the replicas of each shard said, by data rank; it is pickled."""
        import torch.distributed as dist

        mesh, group = self._mesh, self._group(self._all_axes())
        assert mesh is not None
        told: list[Any] = [None] * mesh.world_size
        dist.all_gather_object(told, said, group=group)
        shards: list[list[Any]] = [[] for _ in range(mesh.data_world_size)]
        for rank, one in zip(mesh.group_of(self._all_axes()), told, strict=True):
            shards[mesh.get_data_rank_from_global_rank(rank)].append(one)
        return shards

    @property
    def is_lead(self) -> bool:
        """Whether this process is the first replica of its shard."""
        mesh = self._mesh
        return mesh is None or mesh.index_in_group(self._replica_axes()) == 0

    def _all_axes(self) -> tuple[str, ...]:
        assert self._mesh is not None
        return tuple(self._mesh.mesh_dim_names or ())

    def _replica_axes(self) -> tuple[str, ...]:
        mesh = self._mesh
        assert mesh is not None
        others = tuple(name for name in self._all_axes() if name not in ("dp", "fsdp"))
        return others if mesh.has_dim("ulysses") or mesh.get_dim_size("ulysses") == 1 else (*others, "ulysses")

    def _group(self, axes: tuple[str, ...]) -> Any:
        assert self._mesh is not None
        return self._mesh.get_dim_group(axes)


def _device(group: Any, mesh: DeviceMesh | None) -> str:
    """Where a small tensor must be for this group."""
    import torch.distributed as dist

    if "cpu:" in str(dist.get_backend_config(group)) or mesh is None:
        return "cpu"
    return mesh.device_type or "cpu"
