"""Token-balanced sharding: the lines of this project's licence as rows, their lengths as weights.

    python examples/token_balance.py

Shows what eight data ranks would hold when the lines are cut evenly and when they are balanced, packs micro-batches
under a token cap, hands the rows over to six ranks, and proves that every line comes back in its place.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinkle.plan import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXT = Path(__file__).resolve().parent.parent / "LICENSE"
SHARDS, FEWER, CAP = 8, 6, 512


def table(title: str, columns: dict[str, Sequence[Any]]) -> None:
    """Prints columns under their names, numbers to the right."""
    cells = {
        name: [f"{value:,}" if isinstance(value, int) else str(value) for value in values]
        for name, values in columns.items()
    }
    widths = {name: max(map(len, [name, *values])) for name, values in cells.items()}
    print(f"\n{title}")
    print("  ".join(name.rjust(width) for name, width in widths.items()))
    for line in zip(*cells.values(), strict=True):
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths.values(), strict=True)))


def loads(layout: Layout, lengths: list[int]) -> list[int]:
    """The tokens of every shard."""
    return [sum(layout.take(lengths, shard)) for shard in range(layout.shards)]


def main() -> None:
    """The whole walk: balance, pack, hand over, collect."""
    lines = [line for line in TEXT.read_text(encoding="utf-8").splitlines() if line.strip()]
    lengths = [len(line) for line in lines]
    print(f"{len(lines)} lines, {sum(lengths):,} characters, the longest {max(lengths)}")

    even, balanced = Layout.even(len(lines), SHARDS), Layout.balanced(lengths, SHARDS)
    refined = Layout.balanced(lengths, SHARDS, method="refined")
    sides = {
        name: loads(layout, lengths) for name, layout in (("even", even), ("balanced", balanced), ("refined", refined))
    }
    assert sides["balanced"] == balanced.loads.tolist()
    table(
        f"Characters per shard, {SHARDS} shards",
        {
            "shard": range(SHARDS),
            "rows": even.sizes.tolist(),
            **sides,
            "loss scale": [f"{balanced.loss_scale(s):.3f}" for s in range(SHARDS)],
        },
    )
    mean = sum(lengths) / SHARDS
    for name, side in sides.items():
        print(f"{name}: the heaviest shard holds {max(side) / mean - 1:.2%} more than the mean")
    assert max(sides["refined"]) <= max(sides["balanced"]) <= max(sides["even"])

    packed = balanced.pack(lengths, CAP, align=2)
    held = [balanced.take(lengths, shard) for shard in range(SHARDS)]
    tokens = [[sum(held[shard][row] for row in rows) for rows in bins] for shard, bins in enumerate(packed)]
    table(
        f"Micro-batches of at most {CAP} characters, a multiple of 2, equally many on all shards",
        {
            "shard": range(SHARDS),
            "micro-batches": [len(bins) for bins in packed],
            "fullest": [max(shard) for shard in tokens],
            "emptiest": [min(shard) for shard in tokens],
        },
    )
    assert len({len(bins) for bins in packed}) == 1
    assert max(map(max, tokens)) <= CAP

    target = Layout.balanced(lengths, FEWER)
    moves = balanced.reshard(target)
    sent = [balanced.take(lines, shard) for shard in range(SHARDS)]
    received = [[""] * int(size) for size in target.sizes]
    for source, start, shard, at, length in moves.tolist():
        received[shard][at : at + length] = sent[source][start : start + length]
    table(
        f"Handed over to {FEWER} shards in {len(moves)} moves",
        {"shard": range(FEWER), "rows": target.sizes.tolist(), "characters": target.loads.tolist()},
    )
    assert balanced.collect(sent) == lines
    assert target.collect(received) == lines
    print(f"\nAll {len(lines)} lines came back in order, from {SHARDS} shards and from {FEWER}.")


if __name__ == "__main__":
    main()
