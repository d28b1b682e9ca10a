"""Plain rows under a launcher: each rank's own, or in `Global` the same on all; compared before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from twinkle.errors import PlanError
from twinkle.remote.agreement import mark_of, ranks_text
from twinkle.remote.arguments import Part
from twinkle.remote.handle import Sharded
from twinkle.remote.parcels import digest_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.plan import Placement
    from twinkle.remote.exchange import Exchange
    from twinkle.remote.signature import Declaration

__all__ = ["Brought", "inner_part", "is_own"]

#: How many rows, and the digest of them; None where they cannot be pickled.
Fingerprint = tuple[int, "bytes | None"]


def is_own(part: Part) -> bool:
    """Whether a part is this rank's own rows."""
    return part.kind in ("plain", "single") and not part.everybody


def inner_part(part: Part, value: Any) -> Part:
    """One part of a zip; what is zipped with a handle has all its rows."""
    kind = "handle" if isinstance(value, Sharded) else "plain"
    return Part(part.name, kind, value, part.rows, part.whole, everybody=True)


class Brought(NamedTuple):
    """Compares what the ranks of one call bring; every refusal is the same on every rank."""

    declaration: Declaration
    peers: Exchange
    placement: Placement
    ranks: list[int]

    def sizes(self, cut: Sequence[Part], *, inside: bool) -> list[int] | None:
        """How many rows each shard has been brought; None where no part is the ranks' own."""
        mine = [part for part in cut if is_own(part)]
        whole = [one for part in cut for one in _whole(part)]
        here = [_fingerprint(part) for part in whole]
        if not mine:
            step = f"compares {_names(whole)}, which all ranks have"
            # Equal ones, as nearly always, are known by one number.
            if whole and len(set(self.peers.compared(mark_of(0, "", here), step))) > 1:
                self._check_whole(whole, self.peers.gathered(here, step=step))
            return None
        own = [_fingerprint(part) for part in mine] if inside else None
        told = self.peers.gathered((own, here), step=f"brings own rows as {_names(mine)}")
        self._check_whole(whole, [those for _, those in told])
        brought = [own for own, _ in told]
        self._check_replicas(mine, brought)
        found = [brought[self._member(shard)] for shard in range(self.placement.shards)]
        self._check_shards(mine, found)
        return [one[0][0] for one in found]

    def _member(self, shard: int, number: int = 0) -> int:
        return self.ranks[int(self.placement.members(shard)[number])]

    def _check_whole(self, whole: Sequence[Part], told: Sequence[Sequence[Fingerprint]]) -> None:
        for at, part in enumerate(whole):
            found: dict[Fingerprint, list[int]] = {}
            for rank, one in enumerate(told):
                found.setdefault(one[at], []).append(rank)
            if len(found) > 1:
                texts = [f"{ranks_text(ranks)}: {rows} rows" for (rows, _), ranks in found.items()]
                raise PlanError(
                    f"{self.declaration.name}: {part.name} is the whole of the job's rows, the same on every rank, and "
                    f"the ranks brought {len(found)} different ones ({'; '.join(texts[:8])}): give every rank the "
                    "same, or pass each rank's own rows as a plain list",
                    argument=part.name,
                    ranks=list(found.values()),
                )

    def _check_replicas(self, mine: Sequence[Part], brought: Sequence[Any]) -> None:
        for shard in range(self.placement.shards):
            first = self._member(shard)
            for number in range(len(self.placement.members(shard))):
                rank = self._member(shard, number)
                if brought[rank] != brought[first]:
                    raise PlanError(
                        f"{self.declaration.name}: {mine[0].name} is a plain list, which means each rank's own "
                        f"rows, but ranks {first} and {rank} are replicas of shard {shard} and brought "
                        f"different ones ({brought[first][0][0]} and {brought[rank][0][0]} rows): pass the handle of "
                        "another call, wrap the rows of the whole job in Global, or change rows in place with "
                        "handle.map(f)",
                        shard=shard,
                        ranks=[first, rank],
                    )

    def _check_shards(self, mine: Sequence[Part], found: Sequence[list[Fingerprint]]) -> None:
        """Refuses what every shard brought alike: rows that all ranks have, taken for each one's own."""
        rows, digest = found[0][0]
        alike = digest is not None and all(one == found[0] for one in found)
        if len(found) < 2 or not rows or not alike or any(part.own for part in mine):
            return
        ranks = [self._member(0), self._member(1)]
        raise PlanError(
            f"{self.declaration.name}: ranks {ranks[0]} and {ranks[1]} brought the same {rows} rows of {mine[0].name} "
            f"to different shards, and so did all {len(found)} shards: wrap what all ranks have in Global, which cuts "
            "it, or in Rows what is really each rank's own",
            argument=mine[0].name,
            ranks=ranks,
        )


def _whole(part: Part) -> list[Part]:
    """The plain rows of the whole job in a part: those in Global, and lists that are zipped with a handle."""
    if part.kind == "zip":
        return [one for value in part.value.parts for one in _whole(inner_part(part, value))]
    return [part] if part.kind in ("plain", "single") and part.everybody else []


def _fingerprint(part: Part) -> Fingerprint:
    try:
        return part.rows, digest_of(part.value)
    except Exception:  # whatever a user's class raises: such rows need not travel
        return part.rows, None


def _names(parts: Sequence[Part]) -> str:
    return ", ".join(dict.fromkeys(part.name for part in parts))
