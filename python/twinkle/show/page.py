"""A mesh as one page for a browser: self-contained, so that it can be mailed or kept with a run."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinkle.errors import MeshError
from twinkle.platform.checks import whole
from twinkle.show.answers import Shares, group_axes, shares_refused
from twinkle.show.nodes import per_node
from twinkle.show.svg import COLOURS, colour_axis, to_svg

if TYPE_CHECKING:
    from twinkle.mesh import DeviceMesh

__all__ = ["asset", "filled", "mesh_page"]

_ASSETS = Path(__file__).with_name("assets")
#: A browser counts exactly up to here.
_LARGEST = 2**53 - 1
#: Ranks of a table travel in the page, so that any of them can be searched for.
_LISTED = 2**17


def mesh_page(
    mesh: DeviceMesh, *, nproc_per_node: int | None = None, batch: int | None = None, color_by: str | None = None
) -> str:
    """The page: the picture of `to_svg`, where a rank that is pointed at lights its groups and shows its rows."""
    strides = mesh.strides
    if strides is None:
        if mesh.world_size > _LISTED:
            raise MeshError(f"a page holds a table of at most {_LISTED} ranks, not {mesh.world_size}")
        ranks = [mesh.rank_at(position) for position in range(mesh.world_size)]
        highest = max(ranks)
    else:
        ranks, reach = None, zip(strides, mesh.shape, strict=True)
        highest = mesh.offset + sum(max(0, stride * (size - 1)) for stride, size in reach)
    if highest > _LARGEST:
        raise MeshError(f"a page counts ranks up to {_LARGEST} (2**53 - 1), not {highest}")
    shares = None if shares_refused(mesh) is not None else Shares(mesh)
    if shares is None and batch is not None:
        mesh.get_slice(batch, data_rank=0)
    axis = colour_axis(mesh, color_by)
    data = {
        "names": mesh.mesh_dim_names,
        "sizes": mesh.shape,
        "strides": strides,
        "offset": mesh.offset,
        "ranks": ranks,
        "axes": group_axes(mesh),
        "axis": axis,
        "colours": COLOURS,
        "nproc": None if nproc_per_node is None else per_node(nproc_per_node),
        "batch": None if batch is None else whole(batch, "batch", MeshError, most=_LARGEST),
        "data": shares and {"fsdp": shares.width, "overlaid": shares.overlaid, "count": len(shares)},
    }
    body = asset("mesh.html").replace(
        "@@SVG@@", to_svg(mesh, color_by=axis, nproc_per_node=nproc_per_node, titled=False)
    )
    facts = [f"{mesh.world_size} ranks", f"{len(shares)} data ranks" if shares else "a view for groups"]
    if nproc_per_node is not None:
        facts.append(f"{nproc_per_node} ranks on a node")
    if batch is not None:
        facts.append(f"{batch} rows")
    return filled(title=repr(mesh), facts=", ".join(facts), body=body, data=data, script="mesh.js")


def filled(*, title: str, facts: str, body: str, data: Any, script: str) -> str:
    """The page around a body; texts are escaped, data cannot end their script element."""
    held = json.dumps(data, default=list).replace("<", "\\u003c")
    parts = {
        "TITLE": escape(title),
        "HEADING": escape(title),
        "FACTS": escape(facts),
        "STYLE": asset("page.css"),
        "SCRIPT": asset(script),
        "BODY": body,
        "DATA": held,
    }
    page = asset("page.html")
    before, *rest = page.split("@@")
    # The names between the marks are filled once: what is filled in is not looked at again.
    return before + "".join(parts.get(text, text) for text in rest)


def asset(name: str) -> str:
    """One of the files that pages are made of."""
    return (_ASSETS / name).read_text(encoding="utf-8")
