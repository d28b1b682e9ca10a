"""How the members of a new group find each other and agree: through the job's store, by who they are.

A meeting is named by its members and by how often these members have met, a number that the store keeps. Nobody else
takes part, and it does not matter what a member made before. It ends once, for everybody alike: complete, or refused
with a reason, either because members disagree or because one of them has waited long enough.
"""

from __future__ import annotations

import itertools
from datetime import timedelta
from hashlib import blake2b
from time import monotonic
from typing import TYPE_CHECKING

from twinkle.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch._C._distributed_c10d import Store

__all__ = ["alone", "meet"]

_COMPLETE = "complete"
#: A wait is cut into pieces, so that an interrupt from the keyboard is heard.
_PIECE = timedelta(seconds=10)
#: A store reads a wait of less as one without end.
_LEAST = timedelta(milliseconds=1)
#: How many absent members a refusal looks for and names.
_NAMED = 8

_counter = itertools.count()


def meet(store: Store, members: Sequence[int], index: int, terms: str, timeout: timedelta) -> str:
    """Wait for all members, and return the name of the meeting; DeviceError for other terms and absent members.

    `terms` is all that the members must agree on, in words; `index` is this process's place among them.
    """
    root = _root(members)
    place = f"{root}/{store.add(f'{root}/meetings', 0)}"
    me = str(members[index])
    agreed = store.compare_set(f"{place}/terms", "", terms).decode()
    if agreed == terms:
        store.set(f"{place}/{me}", "here")
        if store.add(f"{place}/count", 1) == len(members):
            _end(store, root, place, me, _COMPLETE)
    else:
        _end(store, root, place, me, f"rank {me} asks for {terms}, another member for {agreed}")
    verdict = _verdict(store, place, timeout)
    if verdict is None:
        absent = [rank for rank in members if not store.check([f"{place}/{rank}"])][:_NAMED]
        waited = f"rank {me} has waited {timeout.total_seconds():g} s for {_ranks(absent)}"
        _end(store, root, place, me, waited)
        verdict = _verdict(store, place, _PIECE) or waited
    if verdict != _COMPLETE:
        raise DeviceError(
            f"no process group of {_ranks(members)}: {verdict}. Every member makes the same groups in the same order",
            members=list(members),
        )
    return place


def alone(members: Sequence[int]) -> str:
    """A name for a group that needs no meeting: a group of one, or one that never communicates."""
    return f"{_root(members)}/alone/{next(_counter)}"


def _root(members: Sequence[int]) -> str:
    text = repr(members) if isinstance(members, range) else ",".join(map(str, members))
    return f"twinkle/{blake2b(text.encode(), digest_size=16).hexdigest()}"


def _end(store: Store, root: str, place: str, me: str, verdict: str) -> None:
    """End a meeting for everybody, unless somebody has; the next one has its number before this one is known to end."""
    if store.compare_set(f"{place}/ended by", "", me).decode() == me:
        store.add(f"{root}/meetings", 1)
        store.set(f"{place}/verdict", verdict)


def _verdict(store: Store, place: str, timeout: timedelta) -> str | None:
    """How a meeting ended, None when it has not within the timeout."""
    key, deadline = f"{place}/verdict", monotonic() + timeout.total_seconds()
    while (left := timedelta(seconds=deadline - monotonic())) > timedelta():
        try:
            store.wait([key], max(_LEAST, min(left, _PIECE)))
        except RuntimeError:
            continue
        return str(store.get(key).decode())
    return None


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    named = ", ".join(map(str, ranks[:_NAMED]))
    return f"ranks {named}" if len(ranks) <= _NAMED else f"{len(ranks)} ranks ({named}, ...)"
