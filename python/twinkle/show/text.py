"""What a mesh answers, as text for a terminal of any width."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from twinkle.show.answers import Shares, about_mesh, about_rank, groups_along, refuse_long
from twinkle.show.fold import folded
from twinkle.show.table import table, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from twinkle.mesh import DeviceMesh

__all__ = ["groups_text", "mesh_text", "rank_text", "rows_in", "slices_text", "some_rows"]

Item = TypeVar("Item")

#: Rows of a table that are shown before it is folded.
SHOWN = 24


def mesh_text(mesh: DeviceMesh, *, nproc_per_node: int | None = None, width: int = 80) -> str:
    """The axes of a mesh in a table, its data ranks, and with `nproc_per_node` which axes stay inside a node."""
    answer = about_mesh(mesh, nproc_per_node)
    headings = ["axis", "size", "stride", "groups", "first group"]
    rows = []
    for axis in answer["axes"]:
        first = folded(mesh.group_of(axis["name"], mesh.rank_at(0)))
        stride = "" if axis["stride"] is None else axis["stride"]
        rows.append([axis["name"], axis["size"], stride, axis["groups"], first])
    if nproc_per_node is not None:
        headings.insert(4, "nodes per group")
        for row, axis in zip(rows, answer["axes"], strict=True):
            least, most = axis["nodes_per_group"]
            row.insert(4, most if least == most else f"{least}-{most}")
    lines = [*wrapped(answer["mesh"], width), *wrapped(_shares_line(answer), width), ""]
    lines.append(table(headings, rows, width=width, right=" rrrr" if nproc_per_node is not None else " rrr"))
    if nproc_per_node is not None:
        lines += ["", *_nodes_lines(answer, width)]
    return "\n".join(lines)


def _shares_line(answer: dict[str, Any]) -> str:
    ranks = _counted(answer["world_size"], "rank")
    if answer["data_world_size"] is None:
        return f"{ranks}; a view for groups, which shares no rows"
    shares = f"{_counted(answer['data_world_size'], 'data rank')} of {_counted(answer['ranks_per_data_rank'], 'rank')}"
    order = "" if answer["order"] is None else f"; Megatron order {answer['order']}"
    return f"{ranks}, {shares} each{order}"


def _nodes_lines(answer: dict[str, Any], width: int) -> list[str]:
    inside = [axis["name"] for axis in answer["axes"] if axis["nodes_per_group"][1] == 1]
    across = [axis["name"] for axis in answer["axes"] if axis["nodes_per_group"][1] > 1]
    nodes = f"{_counted(answer['nodes'], 'node')} of {_counted(answer['nproc_per_node'], 'rank')}"
    line = f"{nodes}. Inside a node: {', '.join(inside) or 'no axis'}. Across nodes: {', '.join(across) or 'no axis'}."
    lines = wrapped(line, width)
    for warning in answer["warnings"]:
        lines += wrapped(f"warning: {warning}", width)
    return lines


def rank_text(
    mesh: DeviceMesh, rank: int, *, nproc_per_node: int | None = None, batch: int | None = None, width: int = 80
) -> str:
    """Place, coordinates, groups and rows of a rank; RankError outside the mesh."""
    answer = about_rank(mesh, rank, nproc_per_node, batch)
    coordinates = " ".join(f"{name}={index}" for name, index in answer["coordinates"].items())
    lines = wrapped(f"rank {answer['rank']} of {mesh!r}", width)
    place = f"position {answer['position']}: {coordinates}"
    if "node" in answer:
        place += f"; node {answer['node']}, local rank {answer['local_rank']}"
    lines += [*wrapped(place, width), ""]
    rows = []
    for name, group in answer["groups"].items():
        rows.append([name, f"{group['index']} of {len(group['ranks'])}", folded(group["ranks"])])
    lines.append(table(["group", "index", "ranks"], rows, width=width))
    if "data_rank" in answer:
        collected = answer["collected_from"]
        source = "this rank" if collected == answer["rank"] else f"rank {collected}"
        line = f"data rank {answer['data_rank']} of {answer['data_world_size']}, collected from {source}"
        if "rows" in answer:
            line += f"; {rows_in(answer['rows'])} of {batch}"
        lines += ["", *wrapped(line, width)]
    return "\n".join(lines)


def groups_text(mesh: DeviceMesh, axes: Sequence[str], *, everything: bool = False, width: int = 80) -> str:
    """The groups along some axes, a line each, the middle ones left out where there are many."""
    groups = groups_along(mesh, axes)
    count, size = len(groups), len(groups[0])
    lines = [f"{'+'.join(axes) or 'no axis'}: {_counted(count, 'group')} of {_counted(size, 'rank')}", ""]

    def row(number: int) -> list[object]:
        return [number, folded(groups[number])]

    rows = some_rows(range(count), row, what="groups", count=count, last=count - 1, everything=everything)
    return "\n".join([*lines, table(["group", "ranks"], rows, width=width, right="r")])


def slices_text(mesh: DeviceMesh, batch: int, *, everything: bool = False, width: int = 80) -> str:
    """The rows of every data rank and the ranks that share them, the middle ones left out where there are many."""
    shares = Shares(mesh)
    count = len(shares)

    def row(data_rank: int) -> list[object]:
        start, stop = shares.rows(batch, data_rank)
        ranks = folded(shares.ranks(data_rank), pieces=3)
        return [data_rank, rows_in([start, stop]), stop - start, ranks, shares.collected_from(data_rank)]

    lines = [f"{_counted(batch, 'row')} over {_counted(count, 'data rank')}", ""]
    if batch < count:
        lines[1:1] = wrapped(f"warning: data ranks {batch} to {count - 1} get no row", width)
    headings = ["data rank", "rows", "count", "ranks", "collected from"]
    rows = some_rows(range(count), row, what="data ranks", count=count, last=count - 1, everything=everything)
    return "\n".join([*lines, table(headings, rows, width=width, right="r r r")])


def rows_in(rows: Sequence[int]) -> str:
    """Rows from a start to a stop: `rows 0-4`, the last one included."""
    start, stop = rows
    if start == stop:
        return "no rows"
    return f"row {start}" if stop - start == 1 else f"rows {start}-{stop - 1}"


def some_rows(
    items: Iterable[Item], row: Callable[[Item], list[object]], *, what: str, count: int, last: Item, everything: bool
) -> Iterator[list[object] | str]:
    """The rows of a table; of many items the first and the last, with a line that says how many are left out."""
    if everything:
        refuse_long(count, what)
    if everything or count <= SHOWN:
        yield from map(row, items)
        return
    yield from map(row, islice(items, SHOWN - 1))
    yield f"... {count - SHOWN} more {what}, all of them with --all ..."
    yield row(last)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
