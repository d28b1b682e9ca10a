"""Which nodes the groups of a mesh reach, when every node runs the same number of consecutive ranks."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

from twinkle.errors import MeshError
from twinkle.platform.checks import LIST_CAP, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.mesh import DeviceMesh

__all__ = ["Span", "node_count", "per_node", "span"]


@dataclass(frozen=True)
class Span:
    """How many nodes one group of an axis spans: the least and the most of all its groups."""

    least: int
    most: int

    def __str__(self) -> str:
        return str(self.most) if self.least == self.most else f"{self.least}-{self.most}"


def per_node(nproc_per_node: object) -> int:
    """The number of ranks on a node; MeshError for anything but a whole number above 0."""
    return whole(nproc_per_node, "nproc_per_node", MeshError, least=1)


def node_count(mesh: DeviceMesh, nproc_per_node: int) -> int:
    """How many nodes the ranks of a mesh are on, rank r being on node `r // nproc_per_node`."""
    return span(mesh, mesh.mesh_dim_names or (), nproc_per_node).most


def span(mesh: DeviceMesh, axes: str | Sequence[str], nproc_per_node: int) -> Span:
    """How many nodes the groups along these axes span, rank r being on node `r // nproc_per_node`."""
    named = (axes,) if isinstance(axes, str) else tuple(axes)
    steps = _steps(mesh, named)
    if steps is None:
        return _counted(mesh, named, nproc_per_node)
    own, others = steps
    # Ranks of a group differ by the same steps everywhere: only where a node begins differs from group to group.
    starts = _residues({mesh.offset % nproc_per_node}, others, nproc_per_node)
    found = {_nodes(start, own, nproc_per_node) for start in starts}
    return Span(min(found), max(found))


#: Size and stride of some axes.
_Steps = list[tuple[int, int]]


def _steps(mesh: DeviceMesh, axes: tuple[str, ...]) -> tuple[_Steps, _Steps] | None:
    """The sizes and strides inside the groups and between them; None where groups have no common equation."""
    names, strides = mesh.mesh_dim_names or (), mesh.strides
    if strides is None:
        return None
    steps = {name: (size, stride) for name, size, stride in zip(names, mesh.shape, strides, strict=True)}
    if axes == ("ulysses",) and "ulysses" not in names:
        return _overlaid(steps, mesh.ulysses_size or 1)
    if any(name not in steps for name in axes):
        return None
    return [steps[name] for name in axes], [step for name, step in steps.items() if name not in axes]


def _overlaid(steps: dict[str, tuple[int, int]], peers: int) -> tuple[_Steps, _Steps] | None:
    """The steps of ulysses peers, who follow each other along fsdp, then dp; None where they end inside an axis."""
    own: _Steps = []
    others = dict(steps)
    for name in ("fsdp", "dp"):
        size, stride = steps.get(name, (1, 0))
        part = gcd(size, peers)
        if part not in (size, peers):
            return None
        if part > 1:
            own.append((part, stride))
            others[name] = (size // part, stride * part)
            peers //= part
    return own, list(others.values())


def _residues(starts: set[int], steps: _Steps, modulus: int) -> set[int]:
    """Where, inside a node, the ranks that these steps reach can be."""
    for size, stride in steps:
        turns = range(min(size, modulus // gcd(stride, modulus)))
        starts = {(start + turn * stride) % modulus for start in starts for turn in turns}
    return starts


def _nodes(start: int, steps: _Steps, per: int) -> int:
    """How many nodes the ranks reach that these steps lead to, smaller strides nesting inside larger ones."""
    blocks = [range(start, start + 1)]
    for size, stride in sorted(steps, key=lambda step: abs(step[1])):
        blocks = _repeated(blocks, size, stride)
    return _touched(sorted(blocks, key=lambda block: block.start), per)


def _repeated(blocks: list[range], size: int, stride: int) -> list[range]:
    """Blocks repeated `size` times at a stride; a block that goes on evenly grows instead."""
    if size == 1:
        return blocks
    step = abs(stride) if len(blocks[0]) == 1 else blocks[0].step
    if len(blocks) == 1 and abs(stride) == step * len(blocks[0]):
        low = blocks[0].start + min(0, (size - 1) * stride)
        return [range(low, low + (size * len(blocks[0]) - 1) * step + 1, step)]
    if size * len(blocks) > LIST_CAP:
        raise MeshError(f"{size * len(blocks)} blocks of ranks are more than {LIST_CAP} (2**24) to count nodes for")
    return [range(b.start + turn * stride, b.stop + turn * stride, b.step) for turn in range(size) for b in blocks]


def _touched(blocks: list[range], per: int) -> int:
    """How many nodes hold a rank of these blocks, which ascend and do not overlap."""
    count, last = 0, None
    for block in blocks:
        first, end = block[0] // per, block[-1] // per
        count += len(block) if block.step >= per else end - first + 1
        # The node that two neighbouring blocks share counts once.
        count -= first == last
        last = end
    return count


def _counted(mesh: DeviceMesh, axes: tuple[str, ...], per: int) -> Span:
    """The span found by looking at every group."""
    import numpy as np

    nodes = np.sort(mesh.groups(axes) // per, axis=1)
    counts = (np.diff(nodes, axis=1) != 0).sum(axis=1) + 1
    return Span(int(counts.min()), int(counts.max()))
