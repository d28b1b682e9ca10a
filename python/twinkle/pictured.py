"""A mesh as something to look at: words about a rank, and pictures; what draws them loads when asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from twinkle.mesh_state import MeshState

if TYPE_CHECKING:
    from twinkle.mesh import DeviceMesh

__all__ = ["Pictured"]


class Pictured(MeshState):
    """The questions of a mesh whose answers are for people."""

    __slots__ = ()

    def explain(self, rank: int) -> str:
        """A few lines with everything about one rank: coordinates, groups, rows. RankError outside the mesh."""
        from twinkle.explain import explain

        return explain(cast("DeviceMesh", self), rank)

    def to_svg(
        self,
        *,
        color_by: str | None = None,
        nproc_per_node: int | None = None,
        limit: int = 1024,
        dark: bool = False,
    ) -> str:
        """A picture of the mesh as an SVG text: its ranks in a grid, boxed by pipeline stage and, when told, by node.

        `color_by` is an axis, or `'data'` for the data rank; left out it is tp, or the innermost axis. Rank r is on
        node `r // nproc_per_node`. Beyond about `limit` ranks the picture counts those it leaves out.
        """
        from twinkle.show.svg import to_svg

        mesh = cast("DeviceMesh", self)
        return to_svg(mesh, color_by=color_by, nproc_per_node=nproc_per_node, limit=limit, dark=dark)

    def _repr_html_(self) -> str:
        """The picture, as a notebook shows it."""
        return f'<div style="overflow-x:auto">{self.to_svg()}</div>'
