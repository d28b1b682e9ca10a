"""The reference data flow in one process, with one logical worker per rank.

Lines of a real text go from a loader to a sampler on dp=4, are collected, go on to an actor on pp=2, dp=2, tp=2, and
are collected again. Each step prints which ranks hold which rows, and every row must arrive once and in order. Then
the same questions are answered for one rank of the published layouts of Llama 3 405B.
"""

from __future__ import annotations

from pathlib import Path

from twinkle import DeviceMesh
from twinkle.explain import folded

TEXT = Path(__file__).resolve().parent.parent / "LICENSE"
BATCH = 16


def dispatch(rows: list[str], mesh: DeviceMesh) -> dict[int, list[str]]:
    """Every rank with the rows that are its own; replicas get the same ones."""
    ranks = [mesh.rank_at(position) for position in range(mesh.world_size)]
    return {rank: rows[mesh.get_slice(len(rows), global_rank=rank)] for rank in ranks}


def collect(held: dict[int, list[str]], mesh: DeviceMesh) -> list[str]:
    """The rows of one representative per data rank, in data-rank order."""
    return [row for rank in mesh.get_collect_ranks() for row in held[rank]]


def show(step: str, mesh: DeviceMesh, first: int, count: int) -> None:
    """Prints which ranks hold which rows of the batch that starts at row `first`."""
    print(f"  {step}")
    replicas: dict[int, list[int]] = {}
    for position, data_rank in enumerate(mesh.data_ranks().tolist()):
        replicas.setdefault(data_rank, []).append(mesh.rank_at(position))
    for (start, stop), (data_rank, ranks) in zip(mesh.slices(count).tolist(), sorted(replicas.items()), strict=True):
        rows = f"rows {first + start}..{first + stop - 1}" if stop > start else "no rows"
        print(f"    data rank {data_rank} = ranks {folded(ranks):<8}  {rows}")


def flow(lines: list[str]) -> int:
    """Sends every line through both meshes; returns how many batches there were."""
    sampler = DeviceMesh.from_sizes(dp_size=4)
    actor = DeviceMesh.from_sizes(dp_size=2, pp_size=2, tp_size=2)
    arrived: list[str] = []
    print(f"{len(lines)} lines of {TEXT.name} in batches of {BATCH}, sampler {sampler!r}, actor {actor!r}\n")
    starts = range(0, len(lines), BATCH)
    for start in starts:
        batch = lines[start : start + BATCH]
        sampled = {rank: [f"{row}|sampled" for row in rows] for rank, rows in dispatch(batch, sampler).items()}
        samples = collect(sampled, sampler)
        trained = {rank: [f"{row}|trained" for row in rows] for rank, rows in dispatch(samples, actor).items()}
        output = collect(trained, actor)
        if output != [f"{row}|sampled|trained" for row in batch]:
            raise SystemExit(f"rows {start}..{start + len(batch) - 1} did not arrive once and in order")
        arrived += output
        if start in (starts[0], starts[-1]):
            print(f"batch {start // BATCH} ({len(batch)} rows)")
            show("sampler, dp=4", sampler, start, len(batch))
            print(f"    collected from ranks {sampler.get_collect_ranks()}: {len(samples)} rows")
            show("actor, pp=2 dp=2 tp=2", actor, start, len(batch))
            print(f"    collected from ranks {actor.get_collect_ranks()}: {len(output)} rows\n")
    if [row.removesuffix("|sampled|trained") for row in arrived] != lines:
        raise SystemExit("the text did not arrive as it left")
    print(f"every one of {len(arrived)} rows arrived once and in order, in {len(starts)} batches\n")
    return len(starts)


def llama() -> None:
    """One rank of each published layout, answered without a list of ranks."""
    layouts = {
        "8,192 GPUs": ({"pp": 16, "dp": 64, "cp": 1, "tp": 8}, 4_321),
        "16,384 GPUs": ({"pp": 16, "dp": 128, "cp": 1, "tp": 8}, 4_321),
        "16,384 GPUs, long context": ({"dp": 8, "pp": 16, "cp": 16, "tp": 8}, 4_321),
    }
    for name, (sizes, rank) in layouts.items():
        mesh = DeviceMesh.from_axes(sizes)
        rows = mesh.get_slice(2_048, global_rank=rank)
        print(f"Llama 3 405B on {name}\n{mesh.explain(rank)}\n  rows {rows.start}..{rows.stop - 1} of 2048\n")


if __name__ == "__main__":
    text = TEXT.read_text(encoding="utf-8").splitlines()
    flow([f"{number}:{line}" for number, line in enumerate(text)])
    llama()
