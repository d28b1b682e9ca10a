"""What the ranks of a job say they are doing, by which calls that do not belong together are caught.

Every exchange carries a mark: a number made of what this rank does and of how many exchanges it has had. Where the
marks differ the ranks tell each other the words.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Said", "mark_of", "ranks_text", "words_of"]

#: How many different things are told.
_SHOWN = 8


class Said(NamedTuple):
    """What one rank says when the marks differ."""

    #: Its exchange and its call, which ranks in step have in common.
    number: int
    call: str
    #: The step of the call, and what has happened here before it.
    doing: str
    note: str
    #: What has failed here before the others were needed, in words; None where nothing has.
    failure: str | None = None


def mark_of(number: int, doing: str, key: object) -> int:
    """A number of 63 bits, the same on every rank that does the same."""
    digest = blake2b(f"{number}|{doing}|{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks in words: `rank 0`, `ranks 1 to 3, 6`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a} to {b}" for a, b in runs]
    shown = ", ".join(texts[:_SHOWN]) + (f", ... ({len(ranks)})" if len(texts) > _SHOWN else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def words_of(told: Sequence[Said]) -> str:
    """Which ranks do what, in words."""
    groups: dict[str, list[int]] = {}
    for rank, said in enumerate(told):
        groups.setdefault(said.doing + (f" after {said.note}" if said.note else ""), []).append(rank)
    if len(groups) == 1:
        # They do the same with other rows, or one of them has missed a call.
        return f"all ranks say '{next(iter(groups))}', but of other rows or at another time"
    texts = [f"{ranks_text(ranks)}: {doing}" for doing, ranks in groups.items()]
    return "; ".join(texts[:_SHOWN]) + (f"; ... ({len(texts)})" if len(texts) > _SHOWN else "")
