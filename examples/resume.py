"""A run on four data ranks is interrupted in the middle of an epoch, and goes on with two.

The lines of this repository's LICENSE are shuffled and read in global batches of 12. After some batches the four ranks
are gone; all that is left is a cursor of a few numbers, the same on every rank. Two ranks with loader workers of their
own load it and go on: in every step their rows together are exactly those that the four would have read.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from twinkle import DeviceMesh
from twinkle.dataloader import DataLoader

TEXT = Path(__file__).resolve().parent.parent / "LICENSE"
BATCH, INTERRUPTED = 12, 9


def be_rank(rank: int, world_size: int) -> None:
    """Here one process plays all ranks; under torchrun these variables are set."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))


def loader_of(lines: list[str], rank: int, world_size: int, workers: int = 0) -> DataLoader:
    """The loader that every rank of a job makes."""
    be_rank(rank, world_size)
    return DataLoader(
        list(enumerate(lines)),
        batch_size=BATCH,
        device_mesh=DeviceMesh.from_sizes(dp_size=world_size),
        shuffle=True,
        tail="pad",
        num_workers=workers,
        collate_fn=list,
    )


def run(
    lines: list[str], world_size: int, steps: int, state: Any = None, workers: int = 0
) -> tuple[list[Any], list[Any]]:
    """What the ranks of a job read, step by step and rank by rank, and the state that each would save."""
    read, states = [], []
    for rank in range(world_size):
        loader = loader_of(lines, rank, world_size, workers)
        if state is not None:
            loader.load_state_dict(state)
        own: list[list[int]] = []
        while len(own) < steps:
            for batch in loader:
                own.append([number for (number, _), pad in zip(batch, loader.is_pad, strict=True) if not pad])
                if len(own) == steps:
                    break
        read.append(own)
        states.append(loader.state_dict())
    return [list(step) for step in zip(*read, strict=True)], states


def joined(steps: list[Any]) -> list[list[int]]:
    """The global batches."""
    return [[row for rank in step for row in rank] for step in steps]


def show(title: str, steps: list[Any], first: int, lines: list[str]) -> None:
    """Prints who reads which lines in the first steps."""
    print(title)
    for number, step in enumerate(steps[:2], first):
        shares = "   ".join(f"rank {rank}: {rows}" for rank, rows in enumerate(step))
        print(f"  step {number:<3}{shares}")
        print(f"          rank 0 begins with line {step[0][0]}: {lines[step[0][0]].strip()[:70]!r}")


def main() -> None:
    """Runs the story and checks it."""
    lines = [line for line in TEXT.read_text(encoding="utf-8").splitlines() if line.strip()]
    per_epoch = -(-len(lines) // BATCH)
    total = 2 * per_epoch
    uninterrupted, _ = run(lines, 4, total)
    before, states = run(lines, 4, INTERRUPTED)
    if any(state != states[0] for state in states):
        raise SystemExit("the ranks saved different cursors")
    saved = json.dumps(states[0])
    print(f"{len(lines)} lines of {TEXT.name}, batches of {BATCH}: {per_epoch} steps an epoch\n")
    show("Four data ranks, from the beginning", before, 0, lines)
    print(f"\nInterrupted after {INTERRUPTED} steps. Saved by every rank alike:\n  {saved}\n")
    after, _ = run(lines, 2, total - INTERRUPTED, json.loads(saved), workers=1)
    show("Two data ranks with a worker each, from the cursor", after, INTERRUPTED, lines)
    if joined(before) + joined(after) != joined(uninterrupted):
        raise SystemExit("the interrupted run read other rows than the uninterrupted one")
    steps = joined(before + after)
    epochs = [sorted(row for step in part for row in step) for part in (steps[:per_epoch], steps[per_epoch:])]
    if epochs != [list(range(len(lines)))] * 2:
        raise SystemExit("an epoch lost or repeated a line")
    if steps[0] == steps[per_epoch]:
        raise SystemExit("the second epoch came in the order of the first")
    print(
        f"\nAll {total} steps are those of an uninterrupted run; both epochs read every line once, in different orders."
    )


if __name__ == "__main__":
    main()
