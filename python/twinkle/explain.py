"""Everything about one rank of a mesh, in a few lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinkle.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.mesh import DeviceMesh

__all__ = ["explain", "folded"]

_SHOWN = 8


def explain(mesh: DeviceMesh, rank: int) -> str:
    """Place, coordinates, groups and rows of a rank; RankError outside the mesh."""
    place = mesh.group_of((), rank)[0]
    coordinates = mesh.coordinates(place) or {}
    words = " ".join(f"{name}={index}" for name, index in coordinates.items())
    lines = [f"rank {place} of {mesh!r}", f"  position {mesh.position_of(place)}, {words}"]
    width = max(len(name) for name in (*coordinates, "ulysses"))
    axes = list(coordinates)
    try:
        data_rank = mesh.data_rank_of(place)
        collected = mesh._core.representative(data_rank)
        own = "this rank" if collected == place else f"rank {collected}"
        rows = f"data rank {data_rank} of {mesh.data_world_size}, collected from {own}"
        axes += ["ulysses"] if (mesh.ulysses_size or 1) > 1 else []
    except MeshError as refusal:
        rows = f"rows: {refusal}"
    for name in axes:
        index = mesh.index_in_group(name, place)
        try:
            members = mesh.group_of(name, place)
            lines.append(f"  {name:<{width}}  {index} of {len(members)}: {folded(members)}")
        except MeshError as refusal:
            # Too many members that are not evenly spaced.
            lines.append(f"  {name:<{width}}  {index}: {refusal}")
    lines.append(f"  {rows}")
    return "\n".join(lines)


def folded(ranks: Sequence[int]) -> str:
    """Ranks in few words: the first and last ones, and the step where they are evenly spaced."""
    if len(ranks) <= _SHOWN:
        return " ".join(map(str, ranks))
    step = f", every {ranks.step}" if isinstance(ranks, range) and ranks.step != 1 else ""
    return f"{ranks[0]} {ranks[1]} {ranks[2]} ... {ranks[-1]} ({len(ranks)} ranks{step})"
