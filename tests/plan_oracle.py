"""Plans the slow way: plain Python over single rows, with no arithmetic that the core shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Rows = list[list[int]]


def even(n: int, shards: int, group: int = 1) -> Rows:
    """Deals out groups one at a time to find the sizes, then fills them in order."""
    sizes = [0] * shards
    for index in range(n // group):
        sizes[index % shards] += group
    rows = iter(range(n))
    return [[next(rows) for _ in range(size)] for size in sizes]


def padded(n: int, shards: int, multiple: int = 1, group: int = 1) -> tuple[Rows, Rows]:
    rows = even(n, shards, group)
    size = max(map(len, rows))
    while size % multiple or size % group:
        size += 1
    pads: Rows = []
    for shard, held in enumerate(rows):
        first = shard % (n // group) * group
        last = held[-group:] or list(range(first, first + group))
        fill: list[int] = []
        while len(held) + len(fill) < size:
            fill += last
        pads.append(fill)
    return rows, pads


def balanced(weights: Sequence[int], shards: int, equal: bool = True, group: int = 1) -> Rows:
    groups = [list(range(start, start + group)) for start in range(0, len(weights), group)]
    weigh = [sum(weights[row] for row in rows) for rows in groups]
    room = [len(held) for held in even(len(groups), shards)] if equal else [len(groups)] * shards
    loads = [0] * shards
    held: list[list[int]] = [[] for _ in range(shards)]
    for index in sorted(range(len(groups)), key=lambda index: (-weigh[index], index)):
        shard = min((s for s in range(shards) if len(held[s]) < room[s]), key=lambda s: (loads[s], s))
        held[shard].append(index)
        loads[shard] += weigh[index]
    return [[row for index in sorted(indices) for row in groups[index]] for indices in held]


def minibatched(n: int, shards: int, minibatches: int, rotate: bool = False) -> list[Rows]:
    """Per mini-batch, the rows of every shard."""
    cells: list[Rows] = []
    next_spare = 0
    for batch in even(n, minibatches):
        sizes = [len(batch) // shards] * shards
        for spare in range(len(batch) % shards):
            sizes[(next_spare + spare) % shards] += 1
        if rotate:
            next_spare = (next_spare + len(batch) % shards) % shards
        rows = iter(batch)
        cells.append([[next(rows) for _ in range(size)] for size in sizes])
    return cells


def copies(pieces: Rows) -> list[tuple[int, int, int]]:
    """(shard, local, global) of every row, by global row."""
    return sorted(
        ((shard, local, row) for shard, rows in enumerate(pieces) for local, row in enumerate(rows)),
        key=lambda copy: copy[2],
    )


def reshard(source: Rows, target: Rows) -> list[list[int]]:
    """Row by row, then joined where a row continues the one before on both sides."""
    home = {row: (shard, local) for shard, local, row in copies(source)}
    moves: list[list[int]] = []
    for shard, rows in enumerate(target):
        for local, row in enumerate(rows):
            last = moves[-1] if moves else [-1, 0, -1, 0, 0]
            if (last[0], last[2]) == (home[row][0], shard) and last[1] + last[4] == home[row][1]:
                last[4] += 1
            else:
                moves.append([*home[row], shard, local, 1])
    return moves


def route(
    moves: list[list[int]],
    holders: list[list[int]],
    members: list[list[int]],
    *,
    same_process: list[int] | None = None,
    source_node: list[str] | None = None,
    target_node: list[str] | None = None,
) -> list[list[int]]:
    loads: dict[int, int] = {}
    routed = []
    for source, start, target, target_start, length in sorted(moves, key=lambda move: (move[2], move[3])):
        for worker in members[target]:

            def distance(holder: int, worker: int = worker) -> tuple[bool, bool, int, int]:
                far = same_process is None or same_process[worker] != holder
                remote = source_node is None or target_node is None or source_node[holder] != target_node[worker]
                return far, remote, loads.get(holder, 0), holder

            holder = min(holders[source], key=distance)
            if distance(holder)[0]:
                loads[holder] = loads.get(holder, 0) + length
            routed.append([holder, start, worker, target_start, length])
    return routed


def pack(
    lengths: list[list[int]],
    cap: int,
    *,
    align: int = 1,
    cuts: list[list[tuple[int, int]]] | None = None,
    row_multiple: int = 1,
    fill: str = "refuse",
) -> list[list[tuple[list[int], bool]]] | None:
    """Per shard, (rows, pad) of every bin; None where it is refused."""
    cuts = cuts or [[(0, len(rows))] for rows in lengths]
    rounded = [[-(-length // row_multiple) * row_multiple for length in rows] for rows in lengths]
    result: list[list[tuple[list[int], bool]]] = [[] for _ in lengths]
    for minibatch in range(len(cuts[0]) if cuts else 0):
        opened = []
        for shard, rows in enumerate(rounded):
            bins: list[list[int]] = []
            for row in sorted(range(*cuts[shard][minibatch]), key=lambda row: (-rows[row], row)):
                fitting = [held for held in bins if sum(rows[other] for other in held) + rows[row] <= cap]
                if fitting:
                    fitting[0].append(row)
                else:
                    bins.append([row])
            opened.append(bins)
        count = max(map(len, opened))
        while count % align:
            count += 1
        for shard, bins in enumerate(opened):
            rows = rounded[shard]
            while len(bins) < count and any(len(held) > 1 for held in bins):
                heaviest = max(
                    (held for held in bins if len(held) > 1), key=lambda held: sum(rows[row] for row in held)
                )
                halves: tuple[list[int], list[int]] = ([], [])
                for row in sorted(heaviest, key=lambda row: (-rows[row], row)):
                    loads = [sum(rows[other] for other in half) for half in halves]
                    # Rows without tokens would all stay in the first half: the second one gets a row before that.
                    second = loads[1] < loads[0] or (bool(halves[0]) and not halves[1])
                    halves[second].append(row)
                bins[bins.index(heaviest)] = halves[0]
                bins.append(halves[1])
            missing = count - len(bins)
            if missing and (fill == "refuse" or not rows):
                return None
            result[shard] += [(held, False) for held in sorted(sorted(held) for held in bins)]
            start, stop = cuts[shard][minibatch]
            repeated = stop - 1 if start < stop else len(rows) - 1
            result[shard] += [([repeated], True)] * missing
    return result


def placement(
    dims: list[tuple[str, int]], ulysses: int = 1, workers: list[list[int]] | None = None
) -> dict[str, list[list[int]] | list[int]]:
    """Walks every position of a mesh, outermost axis first."""
    positions: list[dict[str, int]] = [{}]
    for name, size in dims:
        positions = [{**position, name: index} for position in positions for index in range(size)]
    sizes = dict(dims)
    owners = workers or [[position] for position in range(len(positions))]

    def shard(position: int) -> int:
        at = positions[position]
        return (at.get("dp", 0) * sizes.get("fsdp", 1) + at.get("fsdp", 0)) // ulysses

    spanned = [sorted({shard(position) for position in owned}) for owned in owners]
    assert all(len(shards) == 1 for shards in spanned), "a worker spans shards"
    count = sizes.get("dp", 1) * sizes.get("fsdp", 1) // ulysses
    owner = {position: worker for worker, owned in enumerate(owners) for position in owned}

    def at_stage(stage: int) -> list[int]:
        chosen = []
        for wanted in range(count):
            there = [p for p in range(len(positions)) if shard(p) == wanted and positions[p].get("pp", 0) == stage]
            chosen.append(owner[min(there)])
        return chosen

    members = [[worker for worker, shards in enumerate(spanned) if shards == [wanted]] for wanted in range(count)]
    return {
        "shard_of_worker": [shards[0] for shards in spanned],
        "members": members,
        "lead": [workers[0] for workers in members],
        "pp_last": at_stage(sizes.get("pp", 1) - 1),
        "pp_first": at_stage(0),
    }


def karmarkar_karp(weights: Sequence[int], shards: int) -> list[list[int]]:
    """Largest differencing: joins the two least level partitions, heaviest part of one to lightest of the other."""
    import heapq

    heap: list[tuple[int, int, list[tuple[int, tuple[Any, ...]]]]] = []
    for index, weight in enumerate(weights):
        parts: list[tuple[int, tuple[Any, ...]]] = [(0, ())] * (shards - 1) + [(weight, (index,))]
        heap.append((-weight, index, parts))
    heapq.heapify(heap)
    count = len(heap)
    while len(heap) > 1:
        _, _, first = heapq.heappop(heap)
        _, _, second = heapq.heappop(heap)
        joined = [(a[0] + b[0], (a[1], b[1])) for a, b in zip(first, reversed(second), strict=True)]
        joined.sort(key=lambda part: part[0])
        heapq.heappush(heap, (joined[0][0] - joined[-1][0], count, joined))
        count += 1

    def flat(nested: tuple[Any, ...]) -> list[int]:
        found: list[int] = []
        stack = [nested]
        while stack:
            for item in stack.pop():
                if isinstance(item, tuple):
                    stack.append(item)
                else:
                    found.append(item)
        return sorted(found)

    return [flat(part[1]) for part in heap[0][2]] if heap else [[] for _ in range(shards)]
