"""Arguments: what of a call is rows and what is the same for every worker, decided before anything is sent.

What is rows is declared: by name in `rows=`, by `Rows`, by being a handle, or, where nothing is declared, by being
the first parameter and a list, tuple, other sequence, array or tensor. Nothing is cut because its length happens to
fit; what looks as if it should have been declared is refused, and so are rows without an order of their own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from dataclasses import dataclass, replace
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from twinkle._batch import torch_layout
from twinkle.errors import PlanError
from twinkle.platform.checks import LIST_CAP, shown
from twinkle.remote import trees
from twinkle.remote.handle import Sharded, Zipped, is_handle
from twinkle.remote.joining import joined
from twinkle.remote.markers import Global, Rows, Same
from twinkle.remote.one_row import OneRow
from twinkle.remote.rows import count
from twinkle.remote.signature import Declaration
from twinkle.remote.singles import is_single, one_row

__all__ = ["Part", "Prepared", "Slot", "check_travels", "dispatched", "filled", "prepare"]


_LAZY = (AsyncGeneratorType, CoroutineType, GeneratorType)
_HANDLES = {Sharded, Zipped}
_TEXTS = (str, bytes, bytearray, memoryview)
_ACCEPTED = "rows are a list, tuple or other sequence, an array, a tensor or a handle"


@dataclass(frozen=True)
class Slot:
    """The place in an argument tree where the rows of one part go."""

    index: int


@dataclass(frozen=True, eq=False)
class Part:
    """One value whose rows are cut, or, when `whole`, a handle of which every worker gets all rows.

    `kind` is 'plain' (a list, tuple, range, array or tensor), 'handle', 'zip', or 'single' for a mapping that is one
    row, whose `rows` are a `OneRow`.
    """

    name: str
    kind: str
    value: Any
    rows: int
    whole: bool = False
    #: Whether the caller said that a plain value holds the rows of the whole job.
    everybody: bool = False
    #: Whether the caller said, by `Rows`, that a plain value holds rows of this process's own.
    own: bool = False


@dataclass(frozen=True, eq=False)
class Prepared:
    """A call with slots in the place of rows, the parts that fill them, and how many rows it has; None without rows."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    parts: tuple[Part, ...]
    rows: int | None

    @property
    def cut(self) -> list[Part]:
        """The parts that are cut."""
        return [part for part in self.parts if not part.whole]


def prepare(
    declaration: Declaration,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    mine: bool = False,
    engine: type | None = None,
) -> Prepared:
    """Sorts the arguments of one call; refused where lengths differ or rows are not declared.

    With `mine` plain rows are those of this rank alone, of which there may be another number. Handles that another
    engine than `engine` keeps are rows that this process has, and are pulled.
    """
    signature = declaration.parameters
    try:
        bound = signature.bind(*args, **kwargs) if signature is not None else None
    except TypeError as error:
        raise TypeError(f"{declaration.name}: {error}") from None
    if bound is None or not declaration.cuts:
        collector = _Collector(declaration, engine)
        return Prepared(
            tuple(collector.walk(value, (f"argument {at}",)) for at, value in enumerate(args)),
            {name: collector.walk(value, (name,)) for name, value in kwargs.items()},
            tuple(collector.parts),
            None,
        )
    _apply_defaults(declaration, bound)
    collector = _Collector(declaration, engine)
    undeclared = []
    for name, parameter, value, holder, key in _named(bound):
        first = name == _first(bound.signature)
        is_named = first if declaration.rows is None else not {name, parameter}.isdisjoint(declaration.rows)
        settled, is_declared = collector.argument(name, value, is_named=is_named)
        holder[key] = settled
        if not is_declared:
            undeclared.append((name, value))
    for entry in bound.signature.parameters.values():
        if entry.kind is inspect.Parameter.VAR_POSITIONAL and entry.name in bound.arguments:
            bound.arguments[entry.name] = tuple(bound.arguments[entry.name])
    collector.parts = _settled(collector.parts)
    parts = [part for part in collector.parts if not part.whole]
    own = [part for part in parts if mine and part.kind in ("plain", "single") and not part.everybody]
    rows = _one_length(declaration, [part for part in parts if part not in own])
    if rows is None:
        rows = _one_length(declaration, own)
    for name, value in undeclared:
        _refuse_undeclared(declaration, name, value, rows, first=name == _first(bound.signature))
    return Prepared(bound.args, bound.kwargs, tuple(collector.parts), rows)


def dispatched(  # noqa: PLR0917 - what such a function is called with
    declaration: Declaration, workers: int, worker: int, args: tuple[Any, ...], kwargs: dict[str, Any], mesh: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of one worker, by the function that dispatches; refused where it returns anything else."""
    found = declaration.dispatch(workers, worker, args, kwargs, mesh)
    pair = found if isinstance(found, (list, tuple)) and len(found) == 2 else (None, None)
    if (
        not isinstance(pair[0], (list, tuple))
        or not isinstance(pair[1], Mapping)
        or not all(isinstance(name, str) for name in pair[1])
    ):
        raise PlanError(
            f"{declaration.name}: dispatch({workers}, {worker}, args, kwargs, device_mesh) returned {shown(found)}: it "
            "returns the arguments of that worker as a pair, (args, kwargs): a list or tuple, and a mapping with names "
            "as keys",
            worker=worker,
        )
    return tuple(pair[0]), dict(pair[1])


def filled(template: Any, values: list[Any]) -> Any:
    """A tree with the values in their slots."""
    if type(template) is tuple and all(type(node) is Slot or type(node) in trees.SCALARS for node in template):
        # Nearly every call: nothing but rows, and numbers and texts beside them.
        return tuple(values[node.index] if type(node) is Slot else node for node in template)
    return trees.rebuilt(
        template, lambda node, _: (True, values[node.index]) if type(node) is Slot else (False, None), scalars=False
    )


def check_travels(tree: Any, who: str, path: trees.Path = ()) -> None:
    """Refuses what can go to no other process since it is code that has stopped halfway; `who` begins the words."""

    def leaf(node: Any, path: trees.Path) -> tuple[bool, Any]:
        if isinstance(node, _LAZY):
            raise PlanError(
                f"{who}: {trees.path_text(path)} is a {type(node).__name__}, which cannot travel between processes: "
                "make a list of its items",
                argument=trees.path_text(path),
            )
        return False, None

    trees.rebuilt(tree, leaf, path, scalars=False)


class _Collector:
    """Walks arguments, taking out the parts that are rows."""

    def __init__(self, declaration: Declaration, engine: type | None) -> None:
        self.declaration, self.engine = declaration, engine
        self.parts: list[Part] = []

    def argument(self, name: str, value: Any, *, is_named: bool) -> tuple[Any, bool]:
        """The settled argument, and whether anybody has said what it is."""
        named = self.declaration.rows
        if isinstance(value, (Rows, Same, Global)) or not is_named or value is None:
            return self.walk(value, (name,)), isinstance(value, (Rows, Same, Global)) or value is None
        if is_single(value, name, self.declaration.name, declared=named is not None):
            return self._single(name, value, declared=named is not None), True
        if isinstance(value, Mapping) or (trees.is_branch(value) and not trees.is_items(value)):
            if named is None:
                # A mapping may be configuration; a record of columns in the place of the rows is an oversight.
                return self.walk(value, (name,)), isinstance(value, Mapping)
            return self._columns(value, (name,)), True
        if _has_no_order(value) or (named is not None and count(value) is None and _is_text_or_items(value)):
            wanted = "make a list of its items" if not isinstance(value, _TEXTS) else "wrap it in Same, or in a list"
            raise PlanError(
                f"{self.declaration.name}: {name} holds rows, and a {type(value).__name__} is none: {_ACCEPTED}; "
                f"{wanted}",
                argument=name,
            )
        return self._rows(value, (name,), refuse=False), True

    def walk(self, tree: Any, path: trees.Path) -> Any:
        """A replicated tree, with the handles and markers in it taken out."""
        return trees.rebuilt(tree, self._leaf, path, scalars=False)

    def _leaf(self, node: Any, path: trees.Path) -> tuple[bool, Any]:
        cuts = self.declaration.cuts
        if self.engine is not None and isinstance(node, _LAZY):
            # In this very process it may be handed on.
            check_travels(node, self.declaration.name, path)
        if isinstance(node, Same):
            whole = _Collector(Declaration(name=self.declaration.name), self.engine)
            whole.parts = self.parts
            return True, whole.walk(node.value, path)
        if isinstance(node, (Rows, Global)):
            if not cuts:
                raise PlanError(
                    f"{self.declaration.name}: {trees.path_text(path)} is marked {type(node).__name__}, but "
                    f"dispatch={self.declaration.dispatch!r} cuts nothing; declare dispatch='slice_dp'",
                    argument=trees.path_text(path),
                )
            value = node.value
            name = trees.path_text(path)
            if type(node) is Global and is_single(value, name, self.declaration.name, declared=True):
                return True, self._single(name, value, declared=True, said=Global)
            if trees.is_branch(value) and not trees.is_items(value):
                return True, self._columns(value, path, type(node))
            return True, self._rows(value, path, refuse=True, said=type(node))
        if isinstance(node, Sharded) and self._foreign(node):
            rows = node.gather()
            return True, self._rows(rows, path, refuse=True) if cuts else rows
        if isinstance(node, Zipped):
            node = Zipped([part.gather() if self._foreign(part) else part for part in node.parts])
        if is_handle(node):
            kind = "handle" if isinstance(node, Sharded) else "zip"
            return True, self._part(trees.path_text(path), kind, node, len(node), whole=not cuts)
        return False, None

    def _foreign(self, node: Any) -> bool:
        return self.engine is not None and isinstance(node, Sharded) and not isinstance(node.keeper, self.engine)

    def _single(self, name: str, value: Any, *, declared: bool, said: type | None = None) -> Slot:
        """A mapping that is one row; of markers only `Same` can be in it, which says what is so of all of it."""
        found = len(self.parts)
        bare = self.walk(value, (name,))
        if len(self.parts) > found:
            raise PlanError(
                f"{self.declaration.name}: {name} is one row, and there is a handle in it, in Same: pass the rows "
                "themselves, as gather() gives them, or the handle as an argument of its own",
                argument=name,
            )
        return self._part(name, "single", bare, one_row(value, name, declared=declared), said=said)

    def _columns(self, value: Any, path: trees.Path, said: type | None = None) -> Any:
        """A mapping or dataclass whose every column is rows, but for what is in `Same`."""
        columns = dict(trees.children(value))
        if all(isinstance(column, Same) for column in columns.values()):
            raise PlanError(f"{self.declaration.name}: {trees.path_text(path)} has no columns, so no rows either")

        def leaf(node: Any, at: trees.Path) -> tuple[bool, Any]:
            if at == path or (isinstance(node, Mapping) and node):
                return False, None
            if isinstance(node, Same):
                return self._leaf(node, at)
            if isinstance(node, (Rows, Global)):
                return True, self._rows(node.value, at, refuse=True, said=type(node))
            return True, self._rows(node, at, refuse=True, said=said)

        return trees.rebuilt(value, leaf, path)

    def _rows(self, value: Any, path: trees.Path, *, refuse: bool, said: type | None = None) -> Any:
        name = trees.path_text(path)
        if is_handle(value):
            return self._leaf(value, path)[1]
        value = _as_list(value, name)
        handles = _listed(value)
        if handles:
            return self._leaf(joined(handles), path)[1]
        if isinstance(value, (list, tuple)) and not _HANDLES.isdisjoint(map(type, value)):
            others = sum(not is_handle(item) for item in value)
            raise PlanError(
                f"{self.declaration.name}: {name} is a list of {len(value) - others} handles and {others} other items; "
                "a list of handles alone is their rows, one handle after another, and gather() makes rows of a handle",
                argument=name,
            )
        layout = torch_layout(value)
        if layout is not None:
            raise PlanError(
                f"{self.declaration.name}: {name} is a tensor of layout {layout}, whose rows cannot be cut: pass a "
                "dense tensor or a list of tensors, or wrap it in Same where every worker gets it whole",
                argument=name,
                found=layout,
            )
        rows = count(value)
        if rows is not None:
            return self._part(name, "plain", value, rows, said=said)
        if not refuse:
            # Scalars, texts and arrays without dimensions are the same for everybody.
            return self.walk(value, path)
        raise PlanError(
            f"{self.declaration.name}: {name} is a {type(value).__name__}, which holds no rows: {_ACCEPTED}, or a "
            "mapping or dataclass whose every column is one",
            argument=name,
        )

    def _part(
        self, name: str, kind: str, value: Any, rows: int, *, whole: bool = False, said: type | None = None
    ) -> Slot:
        self.parts.append(Part(name, kind, value, rows, whole, said is Global, said is Rows))
        return Slot(len(self.parts) - 1)


def _listed(value: Any) -> list[Any]:
    """The handles of a list that holds nothing else, those of lists inside it included; else an empty list."""
    if not isinstance(value, (list, tuple)):
        return []
    found: list[Any] = []
    for item in value:
        inner = [item] if is_handle(item) else _listed(item)
        if not inner:
            return []
        found += inner
    return found


def _is_sequence(value: object) -> bool:
    """Whether this is a sequence of items that is no list, tuple, range or text, such as a deque."""
    return isinstance(value, Sequence) and not isinstance(value, _TEXTS) and count(value) is None


def _as_list(value: Any, name: str) -> Any:
    """A sequence that is not cut in its own type as a list; anything else as it is."""
    if not _is_sequence(value):
        return value
    if len(value) > LIST_CAP:
        raise PlanError(f"{name} has {len(value)} items, and a list of at most {LIST_CAP} is made of a sequence")
    return list(value)


def _has_no_order(value: object) -> bool:
    """Whether this is a bag of items, or can be gone through only once."""
    return isinstance(value, (Set, ValuesView, Iterator))


def _is_text_or_items(value: Any) -> bool:
    """Whether this has items and is nothing that rows can be cut from."""
    return isinstance(value, Iterable) and not _is_sequence(value) and getattr(value, "shape", None) != ()


def _apply_defaults(declaration: Declaration, bound: inspect.BoundArguments) -> None:
    """Puts in the rows that a parameter has by default, which are the same on every rank of a job."""
    first = _first(bound.signature)
    for name, entry in bound.signature.parameters.items():
        is_named = name == first if declaration.rows is None else name in declaration.rows
        if is_named and name not in bound.arguments and entry.default is not inspect.Parameter.empty:
            rows = _as_list(entry.default, name)
            if count(rows):
                bound.arguments[name] = Global(rows)


def _named(bound: inspect.BoundArguments) -> Iterator[tuple[str, str, Any, Any, Any]]:
    """Every argument by name, with the parameter that takes it and the container and the key that hold it."""
    for name, value in list(bound.arguments.items()):
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            copied = bound.arguments[name] = dict(value)
            yield from ((key, name, item, copied, key) for key, item in value.items())
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            # A list while it is settled; `prepare` makes it a tuple again.
            listed = bound.arguments[name] = list(value)
            yield from ((f"{name}[{at}]", name, item, listed, at) for at, item in enumerate(value))
        else:
            yield name, name, value, bound.arguments, name


def _first(signature: inspect.Signature) -> str | None:
    for entry in signature.parameters.values():
        return f"{entry.name}[0]" if entry.kind is inspect.Parameter.VAR_POSITIONAL else entry.name
    return None


def _settled(parts: list[Part]) -> list[Part]:
    """The same parts; where those that are cut are not all columns alike, a mapping that may be one row is that."""
    columns = {part.rows.columns if isinstance(part.rows, OneRow) else None for part in parts if not part.whole}
    if len(columns) < 2:
        return parts
    return [replace(part, rows=part.rows.certain()) if isinstance(part.rows, OneRow) else part for part in parts]


def _one_length(declaration: Declaration, cut: list[Part]) -> int | None:
    for part in cut[1:]:
        if part.rows != cut[0].rows:
            ways = [f"; {one.rows.ways}" for one in (cut[0], part) if isinstance(one.rows, OneRow)]
            raise PlanError(
                f"{declaration.name}: {cut[0].name} has {cut[0].rows} rows and {part.name} has {part.rows}; what is "
                f"cut together must have as many rows{ways[0] if ways else ''}",
                lengths=[cut[0].rows, part.rows],
            )
    return cut[0].rows if cut else None


def _refuse_undeclared(declaration: Declaration, name: str, value: Any, rows: int | None, *, first: bool) -> None:
    record = trees.is_branch(value) and not trees.is_items(value) and not isinstance(value, Mapping)
    columns = (
        [str(key) for key, column in trees.children(value) if (count(column) or 0) > 1] if first and record else []
    )
    if rows is None and columns:
        raise PlanError(
            f"{declaration.name}: {name} is a {type(value).__name__} whose {', '.join(columns)} may be rows, and the "
            "call has no others: declare it in rows=, or wrap it in Rows or Same",
            argument=name,
        )
    if rows is None or rows < 2 or is_handle(value):
        return
    if (len(value) if _is_sequence(value) else count(value)) == rows and not any(
        isinstance(item, (Sharded, Zipped, Rows, Same, Global)) for _, item in trees.children(value)
    ):
        raise PlanError(
            f"{declaration.name}: {name} has {rows} items, as many as the call has rows, and nobody has said whether "
            "it is rows: declare it in rows=, or wrap it in Rows or Same",
            argument=name,
            rows=rows,
        )
