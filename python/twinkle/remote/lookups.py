"""Lookups: the keys that a declaration names, looked for in what the workers returned."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError
from twinkle.remote import trees
from twinkle.remote.rows import UNCUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from twinkle.remote.signature import Declaration

__all__ = ["Leaf", "check_alike", "check_keys", "missing"]

#: How many keys are told at most.
_TOLD = 20


@dataclass(frozen=True)
class Leaf:
    """The place in a result where rows were taken out: the number of the leaf and the path it had."""

    index: int
    name: str


def check_keys(rests: Sequence[Any], declaration: Declaration, workers: Sequence[int]) -> None:
    """Refuses a key that `result_rows` names and a worker did not return, in whatever depth.

    A key of which the first worker's is taken is looked for in that one alone. Where nobody returned anything there is
    nothing to look in.
    """
    if not declaration.result_rows or all(rest is None for rest in rests):
        return
    for number, (rest, worker) in enumerate(zip(rests, workers, strict=True)):
        found = dict.fromkeys(_keys(rest, 0))
        for key in declaration.result_rows:
            if key not in found and (number == 0 or declaration.rule(key) != "first"):
                raise missing(declaration.name, worker, key, "result_rows names", rest, found)


def missing(  # noqa: PLR0917 - what is missing, and where
    method: str, worker: int, key: str | int, why: str, value: Any, keys: Iterable[Any]
) -> PlanError:
    """The refusal of a value that lacks a key, with those that are there."""
    found = [one for one in keys if isinstance(one, type(key))]
    told = ", ".join(map(repr, found[:_TOLD])) or f"a {type(value).__name__}"
    near = get_close_matches(str(key), [one for one in found if isinstance(one, str)], 1)
    hint = f", did you mean {near[0]}?" if near else ""
    return PlanError(
        f"{method}: worker {worker} returned no {key!r}, which {why}, but {told}{hint}",
        worker=worker,
        key=key,
        found=found,
    )


def check_alike(method: str, key: str, kinds: Mapping[int, str]) -> None:
    """Refuses rows of workers that nobody could join: of different types, dtypes or numbers of dimensions, or uncut."""
    for worker, kind in kinds.items():
        if UNCUT in kind:
            raise PlanError(
                f"{method}: worker {worker} returned rows at {key!r} that are a {kind}: return a dense tensor, or "
                "a list",
                worker=worker,
                key=key,
            )
        first = next(iter(kinds))
        if kind != kinds[first]:
            raise PlanError(
                f"{method}: worker {first} returned rows at {key!r} that are a {kinds[first]}, and worker {worker} "
                f"rows that are a {kind}; all workers return rows of one type",
                worker=worker,
                key=key,
            )


def _keys(node: Any, depth: int) -> Iterator[str | int]:
    """The keys of a tree; places in a list or tuple count where it is the whole result."""
    if isinstance(node, Leaf) or not trees.is_branch(node):
        return
    inside = not trees.are_scalars(node)
    for key, child in trees.children(node) if inside or not depth else ():
        if not depth or not trees.is_items(node):
            yield key
        if inside:
            yield from _keys(child, depth + 1)
