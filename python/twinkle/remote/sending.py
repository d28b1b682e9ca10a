"""What the driver sends with one call: arguments and the rows it has itself, cut and pickled."""

from __future__ import annotations

from inspect import Parameter
from typing import TYPE_CHECKING, Any

from twinkle.remote.arguments import Part, Prepared, Slot
from twinkle.remote.handle import Sharded, Zipped
from twinkle.remote.pickling import packed, travelling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinkle.plan import Layout
    from twinkle.remote.signature import Declaration

__all__ = ["columns_of", "handles_of", "inner_of", "plain_parts", "share_of", "shared", "template_of", "whole_of"]

#: What is pickled to more than this is put into the object store once, instead of travelling with every call.
_INLINE_BYTES = 64 * 1024
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def handles_of(parts: Sequence[Part]) -> list[Sharded]:
    """The handles among some parts, those inside a zip included."""
    found: list[Sharded] = []
    for part in parts:
        if part.kind == "handle":
            found.append(part.value)
        elif part.kind == "zip":
            found += handles_of([inner_of(part, value) for value in part.value.parts])
    return found


def plain_parts(parts: Sequence[Part]) -> list[Part]:
    """The parts whose rows the driver has, those inside a zip included."""
    found: list[Part] = []
    for part in parts:
        if part.kind == "zip":
            found += plain_parts([inner_of(part, value) for value in part.value.parts])
        elif part.kind != "handle":
            found.append(part)
    return found


def columns_of(prepared: Prepared) -> dict[int, int]:
    """The place of each plain value among what the driver cuts."""
    return {id(part.value): at for at, part in enumerate(plain_parts(prepared.parts))}


def inner_of(part: Part, value: Any) -> Part:
    """One part of a zip."""
    kind = "handle" if isinstance(value, Sharded) else "zip" if isinstance(value, Zipped) else "plain"
    return Part(part.name, kind, value, part.rows, part.whole)


def template_of(declaration: Declaration, prepared: Prepared) -> Any:
    """The arguments of a call, pickled, with slots in the place of rows; None where they are the rows, in order."""
    slots = [one.index for one in prepared.args if type(one) is Slot]
    if not prepared.kwargs and len(slots) == len(prepared.args) and slots == list(range(len(prepared.parts))):
        return None
    return _blob(declaration, (prepared.args, prepared.kwargs), _named(declaration, prepared))


def whole_of(declaration: Declaration, prepared: Prepared, *, copies: int) -> Any:
    """All rows that the driver has, pickled; None without any."""
    columns = plain_parts(prepared.parts)
    return _blob(declaration, [part.value for part in columns], _values(columns), copies) if columns else None


def share_of(declaration: Declaration, columns: Sequence[Part], layout: Layout, shard: int, copies: int) -> Any:
    """The rows of one shard of what the driver has, pickled."""
    return _blob(declaration, [_cut(part, layout, shard) for part in columns], _values(columns), copies)


def _cut(part: Part, layout: Layout, shard: int) -> Any:
    if part.whole:
        return part.value
    if part.kind == "single":
        return part.value if layout.sizes[shard] else []
    return layout.take(part.value, shard)


def _blob(declaration: Declaration, value: Any, named: Mapping[str, Any], copies: int = 2) -> Any:
    """A pickled value, in the object store when it is large and several workers get it; `named` says its parts."""
    with travelling(named, declaration.name):
        data = packed(value)
    return shared(data, copies)


def shared(data: bytes, copies: int) -> Any:
    """Bytes as they travel: in the object store when they are many and several workers get them."""
    import ray

    return ray.put(data) if len(data) > _INLINE_BYTES and copies > 1 else data


def _values(columns: Sequence[Part]) -> dict[str, Any]:
    return {part.name: part.value for part in columns}


def _named(declaration: Declaration, prepared: Prepared) -> dict[str, Any]:
    """The arguments by the names of their parameters."""
    entries = () if declaration.parameters is None else declaration.parameters.parameters.values()
    names = [entry.name for entry in entries if entry.kind in _POSITIONAL]
    told = {names[at] if at < len(names) else f"argument {at}": value for at, value in enumerate(prepared.args)}
    return {**told, **prepared.kwargs}
