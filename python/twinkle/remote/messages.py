"""Messages: what a driver asks of a worker in one call, and what the worker says about its result.

They travel as tuples of plain values: each class in a pickle is looked up by its name on both sides, and in a process
that has been idle that takes longer than the rest of a small message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinkle.remote.lookups import Leaf
from twinkle.remote.pickling import Packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinkle.plan import Layout

__all__ = ["Fill", "Reply", "Request"]


@dataclass(eq=False)
class Fill:
    """How one slot is filled: pieces in order, then pads, each a local row or a piece.

    A piece is `(which object, leaf, cut)`. Without pieces the rows are entry `plain` of what the driver cut;
    `parts` are the fills of a zip.
    """

    name: str
    plain: int | None = None
    #: How many of the plain rows are no pads, where there are some.
    real: int | None = None
    pieces: tuple[tuple[int, int, tuple[int, int]], ...] = ()
    pads: tuple[Any, ...] = ()
    #: What pieces of different widths are widened by, as (key, pad_values).
    rule: tuple[str, Mapping[str, Any] | None] = ("", None)
    parts: tuple[Fill, ...] = ()
    absent: bool = False

    def told(self) -> tuple[Any, ...]:
        """This fill as it travels."""
        *most, parts, absent = vars(self).values()
        return (*most, tuple(part.told() for part in parts), absent)

    @classmethod
    def arrived(cls, told: tuple[Any, ...]) -> Fill:
        """The fill that has travelled. The inverse of `told`."""
        name, plain, real, pieces, pads, rule, parts, absent = told
        return cls(name, plain, real, pieces, pads, rule, tuple(map(cls.arrived, parts)), absent)


@dataclass(eq=False)
class Request:
    """One call of one worker, without the rows."""

    component: str
    method: str
    fills: tuple[Fill, ...]
    shard: int
    #: The pickled layout of the call's rows, which few methods ask for.
    layout: bytes | None
    #: Whether the result's rows stay here, come back, or (None) are dropped since another worker's are collected.
    keep: bool | None
    #: The shard and layout fingerprint that the result's rows are stored under.
    identity: int
    #: What each piece that arrives must be: (layout fingerprint, shard).
    expected: tuple[tuple[int, int], ...]
    digest: bool = False

    def told(self) -> tuple[Any, ...]:
        """This request as it travels."""
        component, method, fills, *others = vars(self).values()
        return (component, method, tuple(fill.told() for fill in fills), *others)

    @classmethod
    def arrived(cls, told: tuple[Any, ...]) -> Request:
        """The request that has travelled. The inverse of `told`."""
        component, method, fills, *others = told
        return cls(component, method, tuple(map(Fill.arrived, fills)), *others)


@dataclass(eq=False)
class Reply:
    """What a worker says about its result: everything but the rows, and where the rows are."""

    #: Packed while it travels: Ray's own pickling would define the classes of a script anew in the driver.
    rest: Any
    names: list[str]
    counts: list[int | None]
    lengths: list[list[int] | None]
    #: A list of references to `Stored`, or of the rows themselves, or None.
    rows: Any
    digest: bytes | None
    received: int
    #: Where the rows are kept as one piece per shard of a layout of their own.
    layout: Layout | None = None
    #: What the rows of each leaf are.
    kinds: tuple[str, ...] = ()

    def told(self) -> tuple[Any, ...]:
        """This reply as it travels."""
        bare = type(self.rest) is Leaf
        rest, *others = vars(self).values()
        return (bare, None if bare else rest, *others)

    @classmethod
    def arrived(cls, found: Any) -> Reply:
        """The reply that a worker has sent, with what it says opened."""
        made = unpacked(found)
        if isinstance(made, cls):
            reply = made
        else:
            bare, *fields = made
            reply = cls(*fields)
            if bare:
                reply.rest = Leaf(0, reply.names[0])
        if isinstance(reply.rest, Packed):
            reply.rest = unpacked(reply.rest)
        if reply.rows and isinstance(reply.rows[0], Packed):
            reply.rows = list(map(unpacked, reply.rows))
        return reply
