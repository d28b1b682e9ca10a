"""Device meshes: where is a rank, who is in its group, which rows are its own.

The answers come from the compiled core in constant time; this module gives them their public names, knows who this
process is, and loads NumPy when an array is first asked for. It never imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from twinkle._core import Mesh as CoreMesh
from twinkle.axis_arguments import axis_name, axis_sizes
from twinkle.errors import MeshError
from twinkle.mesh_state import AxisSize, DeviceTypeField, NamesField, OptionField, RanksField
from twinkle.pictured import Pictured
from twinkle.platform.checks import LIST_CAP, shown
from twinkle.platform.families import device_type_of
from twinkle.rank_arrays import core_of, flat_ranks
from twinkle.with_torch import WithTorch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from twinkle.plan import CollectFrom, Placement

__all__ = ["DeviceMesh"]


@dataclass(init=False, repr=False, eq=False)
class DeviceMesh(WithTorch, Pictured):
    """How the processes of a job are arranged along named axes.

    `mesh` is an array of ranks, one dimension per name, outermost first: any distinct ranks below 2**63 in any order.
    `mesh_dim_names` are axis names (`dp fsdp tp pp cp ulysses ep etp ep_fsdp`, or an alias); None means one axis, `dp`.
    The other fields are options and may be set later; the layout is read-only. Meshes are values: equal, hashable,
    picklable.

    Rows are cut by position in the mesh, never by rank number. Refused (`MeshError`, `RankError`, `AxisError`):
    duplicate or negative ranks, other numbers of names than dimensions, unknown names, options that contradict the
    axes.

    >>> from twinkle import DeviceMesh
    >>> mesh = DeviceMesh.from_sizes(pp_size=2, dp_size=2, tp_size=2)
    >>> mesh
    DeviceMesh(pp=2, dp=2, tp=2)
    >>> mesh.coordinates(5), list(mesh.group_of("dp", 5)), mesh.get_slice(10, global_rank=5)
    ({'pp': 1, 'dp': 0, 'tp': 1}, [5, 7], slice(0, 5, None))
    """

    mesh: ArrayLike = RanksField()  # type: ignore[assignment]  # noqa: RUF009 - a descriptor, not a default
    mesh_dim_names: Sequence[str] | None = NamesField(None)  # type: ignore[assignment]
    ep_size: int | None = OptionField(None)  # type: ignore[assignment]
    etp_size: int | None = OptionField(None)  # type: ignore[assignment]
    ep_fsdp_size: int | None = OptionField(None)  # type: ignore[assignment]
    vpp_size: int | None = OptionField(None)  # type: ignore[assignment]
    ulysses_size: int | None = OptionField(None)  # type: ignore[assignment]
    sequence_parallel: bool = OptionField(False)  # type: ignore[assignment]
    device_type: str | None = DeviceTypeField(None)  # type: ignore[assignment]

    if not TYPE_CHECKING:
        # The fields are views of the state, which has slots of its own: a misspelt option cannot be set. Type checkers
        # would take a field that is in no slot for read-only.
        __slots__ = ()

    def __init__(  # noqa: PLR0917 - one per field
        self,
        mesh: ArrayLike,
        mesh_dim_names: Sequence[str] | None = None,
        ep_size: int | None = None,
        etp_size: int | None = None,
        ep_fsdp_size: int | None = None,
        vpp_size: int | None = None,
        ulysses_size: int | None = None,
        sequence_parallel: bool = False,  # noqa: FBT001, FBT002 - a dataclass takes its fields in order
        device_type: str | None = None,
    ) -> None:
        options = {
            "ep_size": ep_size,
            "etp_size": etp_size,
            "ep_fsdp_size": ep_fsdp_size,
            "vpp_size": vpp_size,
            "ulysses_size": ulysses_size,
            "sequence_parallel": sequence_parallel,
        }
        names = ("dp",) if mesh_dim_names is None else mesh_dim_names
        self._settle(core_of(mesh, names, options), device_type)

    def _settle(self, core: CoreMesh, device_type: str | None, home: CoreMesh | None = None) -> DeviceMesh:
        self._core = core
        self._device_type = None if device_type is None else device_type_of(device_type)
        self._array = None
        self._collect = None
        self._home = core if home is None else home
        return self

    def _derived(self, core: CoreMesh) -> DeviceMesh:
        return DeviceMesh.__new__(DeviceMesh)._settle(core, self._device_type, self._home)

    @staticmethod
    def from_sizes(
        *,
        world_size: int | None = None,
        dp_size: int | None = None,
        fsdp_size: int | None = None,
        tp_size: int | None = None,
        pp_size: int | None = None,
        ulysses_size: int | None = None,
        cp_size: int | None = None,
        ep_size: int | None = None,
        etp_size: int | None = None,
        ep_fsdp_size: int | None = None,
        vpp_size: int | None = None,
        device_type: str | None = None,
        sequence_parallel: bool = False,
        order: str | Sequence[str] | None = None,
    ) -> DeviceMesh:
        """A mesh of ranks 0, 1, ... from the sizes a training script knows.

        Axes are `fsdp, pp, dp, cp, tp` outermost first (tp fastest), those given plus always `dp`. `order` changes
        that: names outermost first, or a Megatron string, leftmost fastest (`"tp-cp-ep-dp-pp"`). `dp_size` left open
        is what remains of
        `world_size`, else 1; one of dp, fsdp, tp, pp, cp may be -1 to take what remains. ulysses, ep, etp, ep_fsdp
        and vpp are options: their ranks overlay others and are not counted. With `ep_size` above 1 an open `etp_size`
        is 1.

        Refused: a product that is not the world size, sizes below 1, a ulysses size that does not divide dp * fsdp,
        `pp * ep * etp` that does not divide the world size, `vpp_size` above 1 without stages, an order that lacks a
        size above 1.

        >>> DeviceMesh.from_sizes(world_size=16, pp_size=2, tp_size=2)
        DeviceMesh(pp=2, dp=4, tp=2)
        """
        options = {
            "ulysses_size": ulysses_size,
            "ep_size": ep_size,
            "etp_size": etp_size,
            "ep_fsdp_size": ep_fsdp_size,
            "vpp_size": vpp_size,
            "sequence_parallel": sequence_parallel,
        }
        core = CoreMesh.from_sizes(world_size, dp_size, fsdp_size, tp_size, pp_size, cp_size, options, order)
        return DeviceMesh.__new__(DeviceMesh)._settle(core, device_type)

    @staticmethod
    def from_axes(sizes: Mapping[str, int], *, offset: int = 0, **options: Any) -> DeviceMesh:
        """A mesh of ranks `offset, offset + 1, ...` along these axes, outermost first, innermost fastest.

        No array is made. `options` are the fields of the class after `mesh_dim_names`.

        >>> DeviceMesh.from_axes({"dp": 8, "pp": 16, "cp": 16, "tp": 8}).coordinates(1000)
        {'dp': 0, 'pp': 7, 'cp': 13, 'tp': 0}
        """
        device_type = options.pop("device_type", None)
        core = CoreMesh.from_axes(axis_sizes(sizes), offset, options)
        return DeviceMesh.__new__(DeviceMesh)._settle(core, device_type)

    # About the mesh.

    @property
    def world_size(self) -> int:
        """How many ranks the mesh has."""
        return self._core.world_size

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis, outermost first."""
        return self._core.shape

    @property
    def data_world_size(self) -> int:
        """How many different shares the rows are cut into: `dp * fsdp // ulysses`."""
        return self._core.data_world_size

    @property
    def strides(self) -> tuple[int, ...] | None:
        """What one step along each axis adds to the rank; None where no equation describes the ranks."""
        return self._core.strides

    @property
    def offset(self) -> int:
        """The rank at position 0."""
        return self._core.offset

    dp_world_size = AxisSize("dp")
    fsdp_world_size = AxisSize("fsdp")
    tp_world_size = AxisSize("tp")
    pp_world_size = AxisSize("pp")
    cp_world_size = AxisSize("cp")

    @property
    def ep_world_size(self) -> int:
        """The expert-parallel size: declared, else the option, else 1."""
        return self._core.ep_world_size

    @property
    def etp_world_size(self) -> int:
        """The expert tensor-parallel size: declared, else the option, else the tensor-parallel size."""
        return self._core.etp_world_size

    @property
    def order(self) -> str:
        """The order of the axes as Megatron writes it, fastest first and always full: `'tp-cp-ep-dp-pp'`.

        Refused with fsdp above 1, and where ranks are not consecutive.
        """
        return self._core.order

    def has_dim(self, name: str) -> bool:
        """Whether an axis is declared; AxisError for a name that is no axis."""
        return self._core.has_dim(axis_name(name))

    def get_dim_size(self, name: str) -> int:
        """The size of an axis, 1 where it is known but not declared; for `'ulysses'` the option.

        AxisError for ep, etp and ep_fsdp that are above 1 only as options: `expert_mesh()` has them as axes.
        """
        return self._core.get_dim_size(axis_name(name))

    # About any rank.

    def __contains__(self, rank: object) -> bool:
        return self._core.contains(rank)

    def position_of(self, rank: int) -> int | None:
        """The row-major position of a rank, None outside the mesh. The inverse of `rank_at`."""
        return self._core.position_of(rank)

    def rank_at(self, position: int) -> int:
        """The rank at a position; RankError outside 0..world_size. The inverse of `position_of`."""
        return self._core.rank_at(position)

    def coord_of(self, rank: int) -> tuple[int, ...] | None:
        """One index per axis, None outside the mesh. The inverse of `rank_of`."""
        return self._core.coord_of(rank)

    def coordinates(self, rank: int | None = None) -> dict[str, int] | None:
        """The index along each axis by name, of a rank or of this process; None outside the mesh."""
        found = self._own_rank() if rank is None else rank
        coordinate = None if found is None else self._core.coord_of(found)
        return None if coordinate is None else dict(zip(self._core.names, coordinate, strict=True))

    def rank_of(self, **coordinate: int) -> int:
        """The rank at these coordinates; axes of size 1 may be left out, undeclared ones given as 0.

        RankError for an index outside its axis, AxisError for a larger axis left out.
        """
        return self._core.rank_of(coordinate)

    def coords_of(self, ranks: ArrayLike | None = None) -> NDArray[Any]:
        """Coordinates as an array `(n, axes)`, of these ranks or of all in position order.

        RankError naming the first rank outside the mesh.
        """
        return self._core.coords_of(None if ranks is None else flat_ranks(ranks))

    def data_ranks(self) -> NDArray[Any]:
        """The data rank of every position, `(world_size,)`."""
        return self._core.data_ranks()

    def data_rank_of(self, rank: int) -> int | None:
        """Which share of the rows a rank gets, None outside the mesh."""
        return self._core.data_rank_of(rank)

    def get_data_rank_from_global_rank(self, rank: int) -> int:
        """Which share of the rows a rank gets; RankError outside the mesh."""
        return self._core.data_rank_of_member(rank)

    def index_in_group(self, axes: str | Sequence[str], rank: int | None = None) -> int | None:
        """The place of a rank in `group_of(axes, rank)`, None outside the mesh."""
        found = self._own_rank() if rank is None else rank
        return None if found is None else self._core.index_in_group(axes, found)

    def group_of(self, axes: str | Sequence[str], rank: int | None = None) -> Sequence[int]:
        """The ranks that differ from a rank (or this process) only along these axes, in position order.

        A `range` where they are evenly spaced, else a tuple. `'data'` stands for dp and fsdp, `'ulysses'` for the
        peers that share one data rank, in data order. RankError outside the mesh.
        """
        return self._core.group_of(axes, self._this_rank() if rank is None else rank)

    def groups(self, axes: str | Sequence[str]) -> NDArray[Any]:
        """All groups along these axes, `(groups, members)`: groups by lowest position, members as in `group_of`."""
        return self._core.groups(axes)

    # Rows.

    def slices(self, total_length: int) -> NDArray[np.int64]:
        """Start and stop of every data rank's rows, `(data_world_size, 2)`."""
        return self._core.slices(total_length)

    def get_slice(
        self,
        total_length: int,
        rank: int | None = None,
        *,
        data_rank: int | None = None,
        global_rank: int | None = None,
    ) -> slice:
        """The rows out of `total_length` that are this process's own, or those of a data rank or a global rank.

        `rank` is a *data rank*, as in older code. Rows are contiguous; the first `total_length % data_world_size`
        data ranks get one more. RankError outside the mesh: nobody gets somebody else's rows.

        >>> mesh = DeviceMesh.from_sizes(dp_size=4)
        >>> [mesh.get_slice(10, data_rank=d) for d in range(4)]
        [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None), slice(8, 10, None)]
        """
        given = [value for value in (rank, data_rank, global_rank) if value is not None]
        if len(given) > 1:
            raise MeshError(
                f"give one of rank={shown(rank)}, data_rank={shown(data_rank)} and global_rank={shown(global_rank)}, "
                "or none of them"
            )
        if not given:
            return slice(*self._core.rows_of_rank(total_length, self._row_owner(total_length)))
        if global_rank is not None:
            return slice(*self._core.rows_of_rank(total_length, global_rank))
        return slice(*self._core.rows_of_data_rank(total_length, given[0]))

    # Ends of axes.

    def get_collect_ranks(self) -> list[int]:
        """The ranks whose outputs are collected, in data-rank order.

        Of the replicas of a data rank: the last pipeline stage, then the lowest position.
        """
        if self._collect is None:
            self._collect = self._core.collect_ranks()
        return self._collect.copy()

    def get_tp_ranks(self) -> list[int]:
        """The ranks of this process's tensor-parallel group; RankError when it is not in the mesh."""
        members = self.group_of("tp")
        if len(members) > LIST_CAP:
            raise MeshError(
                f"the tp group has {len(members)} ranks, more than the {LIST_CAP} (2**24) a list may have; "
                "group_of('tp') is a range",
                count=len(members),
                limit=LIST_CAP,
            )
        return list(members)

    def get_tp_last_ranks(self) -> list[int]:
        """The ranks at the last tensor-parallel index, ascending."""
        return self._core.last_ranks("tp")

    def get_pp_stage_ranks(self, stage: int) -> list[int]:
        """The ranks of one pipeline stage, ascending; RankError for a stage that is not there."""
        return self._core.stage_ranks(stage)

    def get_pp_first_ranks(self) -> list[int]:
        """The ranks of the first pipeline stage, ascending."""
        return self._core.stage_ranks(0)

    def get_pp_last_ranks(self) -> list[int]:
        """The ranks of the last pipeline stage, ascending."""
        return self._core.last_ranks("pp")

    def is_tp_last_rank(self, rank: int | None = None) -> bool:
        """Whether a rank (or this process) is at the last tensor-parallel index; False outside the mesh."""
        return self._is_at_end("tp", rank, last=True)

    def is_pp_first_rank(self, rank: int | None = None) -> bool:
        """Whether a rank (or this process) is in the first pipeline stage; False outside the mesh."""
        return self._is_at_end("pp", rank, last=False)

    def is_pp_last_rank(self, rank: int | None = None) -> bool:
        """Whether a rank (or this process) is in the last pipeline stage; False outside the mesh."""
        return self._is_at_end("pp", rank, last=True)

    def _is_at_end(self, name: str, rank: int | None, *, last: bool) -> bool:
        ranks = self._own_ranks() if rank is None else (rank,)
        return bool(ranks) and all(self._core.is_at_end(name, own, last) for own in ranks)

    # Derived meshes.

    def submesh(self, axes: str | Sequence[str], rank: int | None = None) -> DeviceMesh:
        """The part of the mesh through a rank (or this process), with these axes in this order.

        An undeclared axis becomes one of size 1. Keeps device_type and sequence_parallel, keeps ulysses only with all
        data axes, drops ep, etp, ep_fsdp and vpp. RankError outside the mesh.
        """
        return self._derived(self._core.submesh(axes, self._this_rank() if rank is None else rank))

    def __getitem__(self, axes: str | tuple[str, ...]) -> DeviceMesh:
        """`submesh(axes)` through this process."""
        return self.submesh(axes)

    # Without this, Python would count through `mesh[0]`, and take the refusal of a process that is nobody for the end.
    __iter__ = None

    def permute(self, axes: Sequence[str]) -> DeviceMesh:
        """The same ranks with the axes in another order, each once; options are kept. Permuting back undoes it."""
        return self._derived(self._core.permute(axes))

    def flatten(self, axes: str | Sequence[str], name: str) -> DeviceMesh:
        """Merges axes, in the order asked, into one at the place of the outermost. The inverse of `split`.

        `name` is any new identifier; data axes alone, in data order (`dp`, then `fsdp`), may merge as `dp`. Any other
        merge of a data axis makes the mesh a view: it arranges groups, and questions about rows are refused until it
        is split back.
        """
        return self._derived(self._core.flatten(axes, axis_name(name)))

    def split(self, axis: str, sizes: Mapping[str, int]) -> DeviceMesh:
        """Splits an axis into several, outermost first. The inverse of `flatten`.

        A merged axis gives back its own parts, at the places they had.
        """
        return self._derived(self._core.split(axis_name(axis), axis_sizes(sizes)))

    def expert_mesh(self, layout: Literal["megatron", "fsdp"] = "megatron") -> DeviceMesh:
        """The mesh on which experts are spread over the same ranks; a view, for groups.

        `'megatron'`: the axes of `order` backwards, tp as etp, without cp, dp being expert data parallel. `'fsdp'`:
        `(ep, ep_fsdp)`. Refused: ranks that are not consecutive, sizes that do not divide the world, and for megatron
        an fsdp axis above 1 or pipeline groups that differ from the mesh's.
        """
        if not isinstance(layout, str) or layout not in ("megatron", "fsdp"):
            raise MeshError(f"layout must be 'megatron' or 'fsdp', not {shown(layout)}")
        return self._derived(self._core.expert_mesh(layout == "megatron"))

    def placement(
        self,
        gpus_per_worker: int = 1,
        workers: int | Sequence[Sequence[int]] | None = None,
        collect_from: CollectFrom = "pp_last",
    ) -> Placement:
        """Which worker holds which shard of the rows: a worker owns one position, or `gpus_per_worker` neighbours.

        `workers` is their number (None: as many as that takes), or a list that names the positions of each, every
        position once. `collect_from` says who has a result: `'pp_last'`, `'pp_first'`, `'any'` or `'all'`.
        PlacementError for any other number of workers, PlanError for a worker that spans two shards.
        """
        from twinkle._core import Placement as CorePlacement
        from twinkle.plan import Placement

        return Placement._of(CorePlacement.of_mesh(self._core, gpus_per_worker, workers, collect_from))

    def replace(self, **options: Any) -> DeviceMesh:
        """The same layout with some options changed; no array is built."""
        device_type = options.pop("device_type", self._device_type)
        core = self._core.with_options(options) if options else self._core
        return DeviceMesh.__new__(DeviceMesh)._settle(core, device_type, self._home)

    # A value.

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return self._core == other._core and self._device_type == other._device_type

    def __hash__(self) -> int:
        return hash(self._core)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._core.__getnewargs__()[0], self._device_type)

    def __copy__(self) -> DeviceMesh:
        return self._derived(self._core)

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceMesh:
        return self._derived(self._core)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `from_dict` reads back: axes, offset and strides (or ranks), and what else is set."""
        from twinkle.described import described

        return described(self._core, self._device_type)

    @staticmethod
    def from_dict(described: Mapping[str, Any]) -> DeviceMesh:
        """The mesh that `to_dict` described; MeshError for anything else."""
        from twinkle.described import core_described

        core, device_type = core_described(described)
        return DeviceMesh.__new__(DeviceMesh)._settle(core, device_type)

    def __repr__(self) -> str:
        from twinkle.described import one_line

        return one_line(self._core, self._device_type)


def _restored(state: bytes, device_type: str | None) -> DeviceMesh:
    """What pickle calls."""
    return DeviceMesh.__new__(DeviceMesh)._settle(CoreMesh(state), device_type)
