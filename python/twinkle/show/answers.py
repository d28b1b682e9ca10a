"""What a mesh answers, as plain data: the same for the text, the JSON and the page."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, overload

from twinkle.errors import AxisError, MeshError
from twinkle.platform.checks import LIST_CAP
from twinkle.show.nodes import node_count, per_node, span

if TYPE_CHECKING:
    from twinkle.mesh import DeviceMesh

__all__ = [
    "Shares",
    "about_mesh",
    "about_rank",
    "about_slices",
    "group_axes",
    "groups_along",
    "listed_groups",
    "refuse_long",
    "shares_refused",
]

#: Above so many ranks an array is quicker than groups one by one, although NumPy has to be loaded first.
_LOADING_PAYS = 2**16


def group_axes(mesh: DeviceMesh) -> list[str]:
    """The axes along which a mesh has groups: those declared, and ulysses where it is an option above 1."""
    names = list(mesh.mesh_dim_names or ())
    overlaid = "ulysses" not in names and (mesh.ulysses_size or 1) > 1
    return [*names, "ulysses"] if overlaid else names


def shares_refused(mesh: DeviceMesh) -> str | None:
    """Why a mesh answers no question about rows; None where it does."""
    try:
        mesh.data_rank_of(mesh.rank_at(0))
    except (AxisError, MeshError) as refusal:
        return str(refusal)
    return None


def about_mesh(mesh: DeviceMesh, nproc_per_node: int | None = None) -> dict[str, Any]:
    """Axes with sizes, strides and group counts, the shares of rows, and with `nproc_per_node` what stays on a node."""
    per = None if nproc_per_node is None else per_node(nproc_per_node)
    strides = dict(zip(mesh.mesh_dim_names or (), mesh.strides or (), strict=False))
    axes = []
    for name in group_axes(mesh):
        first = mesh.group_of(name, mesh.rank_at(0))
        size = len(first)
        axis = {"name": name, "size": size, "stride": strides.get(name), "groups": mesh.world_size // size}
        if per is not None:
            reached = span(mesh, name, per)
            axis |= {"nodes_per_group": [reached.least, reached.most]}
        axes.append(axis)
    refused = shares_refused(mesh)
    answer = {
        "mesh": repr(mesh),
        "world_size": mesh.world_size,
        "names": list(mesh.mesh_dim_names or ()),
        "shape": list(mesh.shape),
        "strides": None if mesh.strides is None else list(mesh.strides),
        "offset": mesh.offset,
        "order": _order(mesh),
        "axes": axes,
        "data_world_size": None if refused else mesh.data_world_size,
        "ranks_per_data_rank": None if refused else mesh.world_size // mesh.data_world_size,
    }
    if per is not None:
        answer |= {"nproc_per_node": per, "nodes": node_count(mesh, per), "warnings": _warnings(axes, per)}
    return answer


def _order(mesh: DeviceMesh) -> str | None:
    try:
        return mesh.order
    except MeshError:
        return None


def _warnings(axes: list[dict[str, Any]], per: int) -> list[str]:
    """What slows a job down: a tensor-parallel group talks at every layer, so it belongs on one node."""
    of = f"of {per} rank{'' if per == 1 else 's'}"
    return [
        f"{axis['name']} leaves the node: its groups of {axis['size']} ranks span up to {axis['nodes_per_group'][1]} "
        f"nodes {of}"
        for axis in axes
        if axis["name"] in ("tp", "etp") and axis["nodes_per_group"][1] > 1
    ]


def about_rank(
    mesh: DeviceMesh, rank: int, nproc_per_node: int | None = None, batch: int | None = None
) -> dict[str, Any]:
    """Everything about one rank; RankError outside the mesh."""
    place = mesh.group_of((), rank)[0]
    answer: dict[str, Any] = {
        "rank": place,
        "position": mesh.position_of(place),
        "coordinates": mesh.coordinates(place),
        "groups": {},
    }
    for name in group_axes(mesh):
        ranks = mesh.group_of(name, place)
        answer["groups"][name] = {"index": mesh.index_in_group(name, place), "ranks": ranks}
    if nproc_per_node is not None:
        per = per_node(nproc_per_node)
        answer |= {"node": place // per, "local_rank": place % per}
    # A question about rows is refused where the mesh refuses it; without one, a rank still has groups.
    if batch is not None or shares_refused(mesh) is None:
        shares = Shares(mesh)
        data_rank = mesh.get_data_rank_from_global_rank(place)
        answer |= {
            "data_rank": data_rank,
            "data_world_size": mesh.data_world_size,
            "collected_from": shares.collected_from(data_rank),
        }
        if batch is not None:
            answer["rows"] = shares.rows(batch, data_rank)
    return answer


def groups_along(mesh: DeviceMesh, axes: str | Sequence[str]) -> Sequence[Sequence[int]]:
    """All groups along these axes in the order of `mesh.groups(axes)`, each computed when it is looked at."""
    first = mesh.rank_at(0)
    members = mesh.group_of(axes, first)
    own, others, step = 1, [], 1
    for size in reversed(mesh.shape):
        if size > 1 and mesh.rank_at(step) in members:
            own *= size
        else:
            others.append((size, step))
        step *= size
    if own != len(members):
        # Ulysses peers may be part of an axis, or parts of two.
        return [tuple(map(int, row)) for row in mesh.groups(axes)]
    return _Groups(mesh, axes, others[::-1])


class _Groups(Sequence[Sequence[int]]):
    """Groups by number: each begins where all coordinates along its own axes are 0."""

    def __init__(self, mesh: DeviceMesh, axes: str | Sequence[str], others: list[tuple[int, int]]) -> None:
        self.mesh, self.axes, self.others = mesh, axes, others
        self.length = prod(size for size, _ in others)

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, number: int) -> Sequence[int]: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Sequence[int]]: ...
    def __getitem__(self, number: int | slice) -> Sequence[int] | Sequence[Sequence[int]]:
        if isinstance(number, slice):
            return [self[place] for place in range(*number.indices(self.length))]
        rest, position = range(self.length)[number], 0
        for size, step in reversed(self.others):
            rest, index = divmod(rest, size)
            position += index * step
        return self.mesh.group_of(self.axes, self.mesh.rank_at(position))


class Shares:
    """Which ranks share each data rank's rows, which of them is collected from, and which rows these are."""

    def __init__(self, mesh: DeviceMesh) -> None:
        names = mesh.mesh_dim_names or ()
        self.mesh = mesh
        self.width = mesh.get_dim_size("fsdp")
        #: How many places along the data axes share one data rank.
        self.overlaid = mesh.get_dim_size("dp") * self.width // mesh.data_world_size
        self.sharing = [name for name in names if name not in ("dp", "fsdp")]
        self.zero = dict.fromkeys(names, 0)

    def __len__(self) -> int:
        return self.mesh.data_world_size

    def _rank(self, data_rank: int, **coordinate: int) -> int:
        replica, part = divmod(data_rank * self.overlaid, self.width)
        data = {name: index for name, index in (("dp", replica), ("fsdp", part)) if name in self.zero}
        return self.mesh.rank_of(**{**self.zero, **data, **coordinate})

    def ranks(self, data_rank: int) -> Sequence[int]:
        """The ranks that get a data rank's rows."""
        axes = [*self.sharing, "ulysses"] if self.overlaid > 1 else self.sharing
        return self.mesh.group_of(axes, self._rank(data_rank))

    def collected_from(self, data_rank: int, *, first_stage: bool = False) -> int:
        """The rank whose output is collected: in the last pipeline stage (or the first), at the lowest position."""
        last = {"pp": self.mesh.pp_world_size - 1} if "pp" in self.zero and not first_stage else {}
        rank = self._rank(data_rank, **last)
        peers = self.mesh.group_of("ulysses", rank) if self.overlaid > 1 else (rank,)
        return min(peers, key=lambda peer: self.mesh.position_of(peer) or 0)

    def rows(self, batch: int, data_rank: int) -> list[int]:
        """Start and stop of a data rank's rows out of `batch`."""
        cut = self.mesh.get_slice(batch, data_rank=data_rank)
        return [cut.start, cut.stop]


def listed_groups(mesh: DeviceMesh, axes: str | Sequence[str]) -> list[list[int]]:
    """All groups along these axes as lists, as `mesh.groups(axes).tolist()`; refused above 2**24 ranks."""
    refuse_long(mesh.world_size, "ranks")
    if mesh.world_size > _LOADING_PAYS:
        listed: list[list[int]] = mesh.groups(axes).tolist()
        return listed
    return list(map(list, groups_along(mesh, axes)))


def about_slices(mesh: DeviceMesh, batch: int) -> dict[str, Any]:
    """The rows of every data rank, as `mesh.slices(batch).tolist()`, and whom they are collected from."""
    shares = Shares(mesh)
    refuse_long(len(shares), "data ranks")
    return {
        "batch": batch,
        "data_world_size": len(shares),
        "slices": [shares.rows(batch, data_rank) for data_rank in range(len(shares))],
        "collected_from": mesh.get_collect_ranks(),
    }


def refuse_long(count: int, what: str) -> None:
    """Refuses a list that would be longer than the cap, before it is made."""
    if count > LIST_CAP:
        raise MeshError(f"{count} {what} are more than the {LIST_CAP} (2**24) a list may have", count=count)
