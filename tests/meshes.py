"""The meshes that several tests ask about: those of the handed cases, and random ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.support import cases
from twinkle import DeviceMesh

CASES = cases("mesh")


def mesh_of(case: dict[str, Any]) -> DeviceMesh:
    """The mesh that a handed case describes."""
    if "from_sizes" in case:
        return DeviceMesh.from_sizes(**case["from_sizes"])
    return DeviceMesh(case["mesh"], case["mesh_dim_names"], **case["options"])


def ranks_of(mesh: DeviceMesh) -> list[int]:
    """All ranks of a mesh, in position order."""
    return [mesh.rank_at(position) for position in range(mesh.world_size)]


@st.composite
def meshes(draw: st.DrawFn) -> DeviceMesh:
    """Meshes of up to a few hundred ranks: in any order of axes, descending, strided, offset, or a shuffled table."""
    names = draw(st.permutations(["dp", "fsdp", "pp", "tp", "cp"]))[: draw(st.integers(1, 4))]
    sizes = {name: draw(st.integers(1, 4)) for name in names}
    mesh = DeviceMesh.from_axes(sizes, offset=draw(st.integers(0, 5)))
    kind = draw(st.sampled_from(["plain", "permuted", "descending", "table"]))
    if kind == "permuted":
        return mesh.permute(draw(st.permutations(names)))
    if kind == "descending":
        return DeviceMesh(np.asarray(mesh.mesh)[::-1] * draw(st.integers(1, 3)), names)
    if kind == "table":
        ranks = draw(st.permutations(range(mesh.world_size)))
        return DeviceMesh(np.array(ranks).reshape(mesh.shape), names)
    return mesh
