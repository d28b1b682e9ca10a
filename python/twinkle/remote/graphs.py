"""Graphs: rows of this process are given on as leaves, in whatever depth of a row a tensor is.

What is pickled loses its graph on the way. What stays in this process would keep it, and with it all that its graph
holds, and a method's `backward` would run on into its caller.
"""

from __future__ import annotations

import sys
from typing import Any

from twinkle.errors import PlanError
from twinkle.remote import trees
from twinkle.remote.ownership import copied
from twinkle.remote.rows import leaf

__all__ = ["Known", "without_graphs"]

#: By the identity of what was met, the object itself, which keeps that identity its own, and what stands for it.
Known = dict[int, tuple[Any, Any]]


def without_graphs(value: Any, known: Known) -> Any:
    """The same rows, or the same mapping that is one row, with a leaf on the same memory for each tensor with a graph.

    Looks into lists, tuples, mappings and dataclasses. What holds no such tensor is the very object, and what comes
    twice, here or in an earlier call with the same `known`, is one object again.
    """
    if "torch" not in sys.modules or trees.are_scalars(value):
        return value
    if type(value) in (list, tuple):
        rows = [_row(row, known) for row in value]
        return value if all(new is old for new, old in zip(rows, value, strict=True)) else type(value)(rows)
    return _row(value, known)


def _row(row: Any, known: Known) -> Any:
    if type(row) in trees.SCALARS:
        return row
    if id(row) not in known:
        try:
            made = trees.rebuilt(row, lambda node, _: _settled(node, known), scalars=False)
        except PlanError:
            # It holds itself, of which only pickling makes another.
            made = copied(row)
        known[id(row)] = row, made
    return known[id(row)][1]


def _settled(node: Any, known: Known) -> tuple[bool, Any]:
    if id(node) in known:
        return True, known[id(node)][1]
    made = leaf(node)
    if made is node:
        return False, None
    known[id(node)] = node, made
    return True, made
