"""Trees of arguments and results: lists, tuples, mappings and dataclasses, rebuilt with their types kept."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from twinkle._batch import retyped
from twinkle.errors import PlanError
from twinkle.remote.elsewhere import group_of

__all__ = ["SCALARS", "are_scalars", "children", "is_branch", "is_items", "path_text", "rebuilt"]

Path = tuple[str | int, ...]

#: What has no parts and cannot be changed.
SCALARS = frozenset({int, float, complex, bool, str, bytes, type(None)})


def are_scalars(node: object) -> bool:
    """Whether this is a list or tuple of nothing but numbers, texts and None, told without a look at each by itself."""
    return type(node) in (list, tuple) and SCALARS.issuperset(map(type, node))  # type: ignore[call-overload]


def is_items(node: object) -> bool:
    """Whether a node is items one after another: a list, or a tuple without names, which would make it a record."""
    return isinstance(node, list) or (isinstance(node, tuple) and not hasattr(node, "_fields"))


def is_branch(node: object) -> bool:
    """Whether a node holds others that are looked at one by one: a list, tuple, mapping or dataclass."""
    return isinstance(node, (list, tuple, Mapping)) or _is_record(node)


def children(node: Any) -> Iterator[tuple[str | int, Any]]:
    """The parts of a branch, each with the key that names it."""
    if isinstance(node, Mapping):
        yield from node.items()
    elif isinstance(node, tuple) and hasattr(node, "_fields"):
        yield from zip(node._fields, node, strict=True)
    elif isinstance(node, (list, tuple)):
        yield from enumerate(node)
    elif _is_record(node):
        yield from ((entry.name, getattr(node, entry.name)) for entry in dataclasses.fields(node))


def rebuilt(node: Any, leaf: Callable[[Any, Path], tuple[bool, Any]], path: Path = (), *, scalars: bool = True) -> Any:
    """The same tree with some nodes replaced; `leaf` says for each node whether it settles it, and as what.

    A branch in which nothing was replaced is the very same object; one in which something was is a copy of its type.
    Without `scalars` lists of nothing but numbers and texts are left as they are, which takes no time.
    """
    try:
        return _rebuilt(node, leaf, path, scalars=scalars)
    except RecursionError:
        raise PlanError(
            f"{path_text(path)} holds itself, or is nested too deeply: rows and markers are looked for in all its parts"
        ) from None


def _rebuilt(node: Any, leaf: Callable[[Any, Path], tuple[bool, Any]], path: Path, *, scalars: bool) -> Any:
    settled, value = leaf(node, path)
    if settled:
        return value
    if not is_branch(node) or (not scalars and are_scalars(node)):
        return node
    before = list(children(node))
    after = [(key, _rebuilt(child, leaf, (*path, key), scalars=scalars)) for key, child in before]
    if all(new is old for (_, old), (_, new) in zip(before, after, strict=True)):
        return node
    return _with_children(node, after)


def _with_children(node: Any, parts: list[tuple[Any, Any]]) -> Any:
    values = [value for _, value in parts]
    kind = type(node)
    if kind in (list, tuple, dict):
        return kind(parts) if kind is dict else kind(values)
    if isinstance(node, (list, tuple)):
        return retyped(values, node)
    if isinstance(node, Mapping) and not hasattr(node, "__setitem__"):
        return dict(parts)
    made = copy.copy(node)
    if isinstance(node, Mapping):
        for key, value in parts:
            made[key] = value
    else:
        for key, value in parts:
            object.__setattr__(made, key, value)
    return made


def path_text(path: Path) -> str:
    """A path as Python writes it: `samples[0]['logps']`."""
    if not path:
        return "the result"
    head, *rest = path
    return str(head) + "".join(f"[{key!r}]" for key in rest)


def _is_record(node: object) -> bool:
    # The fields of a component that lives elsewhere are not here.
    return dataclasses.is_dataclass(node) and not isinstance(node, type) and group_of(node) is None
