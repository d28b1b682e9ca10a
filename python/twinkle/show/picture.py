"""The arrangement of a picture: which ranks are drawn, in which box, and what is folded away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, overload

from twinkle.errors import MeshError
from twinkle.platform.checks import whole
from twinkle.show.nodes import per_node

if TYPE_CHECKING:
    from twinkle.mesh import DeviceMesh

__all__ = ["LIMIT", "Box", "Stage", "arranged", "ascending"]

#: The most ranks that are drawn one by one.
LIMIT = 1024
#: The most that may be asked for: a text of some ten megabytes.
_MOST = 2**16
#: The most pipeline stages that are drawn of a mesh that is folded.
_STAGES = 8


@dataclass(frozen=True)
class Box:
    """Ranks drawn together: those of one node, or all of a stage; or, with no ranks, so many that are folded away."""

    title: str
    ranks: tuple[int, ...]
    columns: int = 1
    folded: int = 0


@dataclass(frozen=True)
class Stage:
    """One pipeline stage; the only one, without a title, where there is no pipeline."""

    title: str
    boxes: tuple[Box, ...]


def arranged(mesh: DeviceMesh, *, nproc_per_node: int | None = None, limit: int = LIMIT) -> list[Stage]:
    """The stages of a mesh and the boxes in them: the first `limit` ranks or so, and counts of those beyond."""
    per = None if nproc_per_node is None else per_node(nproc_per_node)
    most = whole(limit, "limit", MeshError, least=1, most=_MOST)
    stages = mesh.pp_world_size
    shown = range(stages)
    if mesh.world_size > most and stages > _STAGES:
        shown = range(_STAGES - 1)
    room = mesh.world_size if mesh.world_size <= most else max(most // min(stages, _STAGES), 1)
    drawn = [_stage(mesh, number, per, room) for number in shown]
    if len(shown) < stages:
        skipped = stages - len(shown) - 1
        folded = skipped * (mesh.world_size // stages)
        box = Box(f"{skipped} more stages, {folded} ranks", (), folded=folded)
        drawn += [Stage("", (box,)), _stage(mesh, stages - 1, per, room)]
    return drawn


def _stage(mesh: DeviceMesh, number: int, per: int | None, room: int) -> Stage:
    ranks = ascending(mesh, number)
    kept = min(room, len(ranks))
    if per is not None and kept < len(ranks):
        # Nodes are folded whole, unless not even one fits.
        whole_nodes = kept
        while whole_nodes and ranks[whole_nodes - 1] // per == ranks[whole_nodes] // per:
            whole_nodes -= 1
        kept = whole_nodes or kept
    boxes = [_box(part, per, _inner(mesh)) for part in _by_node(ranks[:kept], per)]
    left = len(ranks) - kept
    if left:
        boxes.append(Box(f"{left} more ranks, up to {ranks[-1]}", (), folded=left))
    return Stage(f"stage {number}" if mesh.pp_world_size > 1 else "", tuple(boxes))


def _by_node(ranks: Sequence[int], per: int | None) -> list[list[int]]:
    """Ascending ranks, split where a node ends."""
    if per is None:
        return [list(ranks)]
    parts: list[list[int]] = []
    for rank in ranks:
        if not parts or parts[-1][0] // per != rank // per:
            parts.append([])
        parts[-1].append(rank)
    return parts


def _box(ranks: Sequence[int], per: int | None, inner: int) -> Box:
    """A box whose rows hold whole groups of the fastest axis, about as wide as high."""
    columns = min(inner, 32, len(ranks))
    while columns * 2 <= min(len(ranks), 32) and len(ranks) > 1.6 * columns * columns:
        columns *= 2
    return Box("" if per is None else f"node {ranks[0] // per}", tuple(ranks), columns)


def _inner(mesh: DeviceMesh) -> int:
    """The size of the axis along which neighbouring ranks lie."""
    strides = mesh.strides
    if strides is None:
        return next((size for size in reversed(mesh.shape) if size > 1), 1)
    pairs = [(abs(stride), size) for stride, size in zip(strides, mesh.shape, strict=True) if size > 1]
    return min(pairs)[1] if pairs else 1


def ascending(mesh: DeviceMesh, stage: int) -> Sequence[int]:
    """The ranks of a pipeline stage, ascending, computed when they are looked at where an equation describes them."""
    if mesh.strides is None:
        return mesh.get_pp_stage_ranks(stage)
    steps, start = [], mesh.offset
    for name, size, stride in zip(mesh.mesh_dim_names or (), mesh.shape, mesh.strides, strict=True):
        if name == "pp":
            start += stage * stride
            continue
        # A descending axis is walked from its other end.
        start += min(0, (size - 1) * stride)
        steps.append((abs(stride), size))
    return _Ascending(start, sorted(steps, reverse=True))


class _Ascending(Sequence[int]):
    """Numbers `start + sum of index * stride`, in ascending order, by place."""

    def __init__(self, start: int, steps: list[tuple[int, int]]) -> None:
        self.start, self.steps = start, steps
        self.length = prod(size for _, size in steps)

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(self.length))]
        rest, number = range(self.length)[place], self.start
        for stride, size in reversed(self.steps):
            rest, index = divmod(rest, size)
            number += index * stride
        return number
