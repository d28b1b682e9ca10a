"""Results: which parts of what a method returned are rows, and what becomes of the others.

A worker takes the rows out of its result and leaves the rest; the caller joins the rests of all shards key by key,
each by its rule: `list` (one per shard), `mean` (weighted by rows or by another key), `sum`, `first` or `max`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError
from twinkle.remote import trees
from twinkle.remote.lookups import Leaf, check_keys, missing
from twinkle.remote.markers import Global, Rows, Same
from twinkle.remote.rows import count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinkle.plan import Layout
    from twinkle.remote.signature import Declaration

__all__ = ["Cut", "Leaf", "combined", "split_result", "unmarked"]

#: Whole numbers without a sign that fit into the widest with one.
_SMALL = ("uint8", "uint16", "uint32")


@dataclass(frozen=True, eq=False)
class Cut(Rows):
    """Rows in a result that are kept as one piece per shard of a layout, to be handed over without cutting.

    Without a layout they are plain rows.
    """

    layout: Layout | None


def split_result(
    value: Any, declaration: Declaration, rows_given: Callable[[], int] | None = None
) -> tuple[Any, list[Any], list[str]]:
    """The result without its rows, the rows, and the name of each.

    `rows_given` says how many rows the worker was given, where it was given any: a tuple of columns is told from a
    tuple of rows by it, and refused.
    """
    if callable(declaration.collect) or declaration.collect == "none":
        return unmarked(value), [], []
    if type(value) is list and declaration.result_rows is None and declaration.collects_rows:
        # What nearly every method returns; what is below comes to the same, in many more steps.
        marked = any(issubclass(kind, Rows) for kind in set(map(type, value)))
        if not marked:
            return Leaf(0, "rows"), [value], ["rows"]
    places = [key for key in declaration.result_rows or () if isinstance(key, int)]
    if places and hasattr(value, "_fields"):
        raise PlanError(
            f"{declaration.name} returned a {type(value).__name__}, whose parts have names, and result_rows says "
            f"{places[0]}: name its fields there, of {', '.join(value._fields)}",
            key=places[0],
        )
    leaves: list[Any] = []
    names: list[str] = []

    def taken(rows: Any, path: trees.Path, layout: Layout | None) -> Leaf:
        leaves.append(rows if layout is None else Cut(rows, layout))
        names.append(str(path[-1]) if path else "rows")
        return Leaf(len(leaves) - 1, names[-1])

    def columns(node: Any, path: trees.Path, layout: Layout | None = None) -> Any:
        if trees.is_branch(node) and not trees.is_items(node):
            return trees.rebuilt(
                node, lambda column, at: (False, None) if at == path else (True, columns(column, at, layout)), path
            )
        if count(node) is None:
            raise PlanError(
                f"{declaration.name} returned a {type(node).__name__} at {_at(path)}, which is declared as rows: "
                "return a list, tuple, array or tensor there",
                key=_at(path),
            )
        return taken(node, path, layout)

    def leaf(node: Any, path: trees.Path) -> tuple[bool, Any]:
        if isinstance(node, Rows):
            layout = getattr(node, "layout", None)
            return True, columns(node.value, path, layout)
        if isinstance(node, (Same, Global)):
            return True, node.value
        if path and declaration.rule(path[-1]) == "rows" and (isinstance(path[-1], str) or len(path) == 1):
            return True, columns(node, path)
        if not path and declaration.collects_rows and declaration.result_rows is None and count(node) is not None:
            marked = isinstance(node, (list, tuple)) and any(isinstance(item, Rows) for item in node)
            if marked:
                return False, None
            _refuse_columns(node, declaration, rows_given)
            return True, taken(node, path, None)
        return False, None

    return trees.rebuilt(value, leaf, scalars=bool(places)), leaves, names


def _refuse_columns(node: Any, declaration: Declaration, rows_given: Callable[[], int] | None) -> None:
    """Refuses a tuple that may be columns as well as rows."""
    if rows_given is None or not isinstance(node, tuple) or len(node) < 2:
        return
    counts = {count(item) for item in node}
    if counts == {rows_given()}:
        raise PlanError(
            f"{declaration.name} returned a tuple of {len(node)} columns, or rows, of {rows_given()} each, and was "
            f"given {rows_given()} rows: declare the columns in result_rows, as result_rows={tuple(range(len(node)))}, "
            "or return one list, if its items are rows",
            rows=rows_given(),
            found=len(node),
        )


def unmarked(value: Any) -> Any:
    """A tree without markers."""
    return trees.rebuilt(
        value,
        lambda node, _: (True, node.value) if isinstance(node, (Rows, Same, Global)) else (False, None),
        scalars=False,
    )


def combined(
    rests: Sequence[Any],
    weights: Sequence[float],
    declaration: Declaration,
    rows_of: Callable[[Leaf], Any],
    workers: Sequence[int],
) -> Any:
    """One result out of the rest of each shard; `rows_of` gives the joined rows of a leaf.

    `workers` are the numbers of the workers whose rests these are, for the words of a refusal.
    """
    check_keys(rests, declaration, workers)
    return _Combination(weights, declaration, rows_of, workers).node(list(rests), ())


class _Combination:
    def __init__(
        self, weights: Sequence[float], declaration: Declaration, rows_of: Callable[[Leaf], Any], workers: Sequence[int]
    ) -> None:
        self.weights, self.declaration, self.rows_of, self.workers = list(weights), declaration, rows_of, workers

    def node(self, found: list[Any], path: trees.Path, beside: list[Any] | None = None) -> Any:
        first = found[0]
        if self._is_first_s(first, path):
            return first
        self._check_kinds(found, path)
        if isinstance(first, Leaf):
            return self.rows_of(first)
        if self._opens(first, path):
            columns = [dict(trees.children(value)) for value in found]
            keys = [key for key in columns[0] if not self._is_first_s(columns[0][key], (*path, key))]
            for worker, other in zip(self.workers, columns, strict=True):
                differing = {key for key in other.keys() ^ columns[0].keys() if key in keys or self._counts(path, key)}
                if differing:
                    raise PlanError(
                        f"{self.declaration.name}: worker {worker} and worker {self.workers[0]} returned different "
                        f"keys at {_at(path)}: {', '.join(sorted(map(repr, differing)))}",
                        worker=worker,
                        key=_at(path),
                    )
            made = columns[0] | {key: self.node([one[key] for one in columns], (*path, key), found) for key in keys}
            # Every part is settled already, whatever it holds now.
            return trees.rebuilt(first, lambda _, at: (True, made[at[0]]) if at else (False, None))
        return self._by_rule(found, path, beside)

    def _rule(self, path: trees.Path) -> str | tuple[str, str]:
        return (self.declaration.rule(path[-1]) if path else None) or self.declaration.default_rule

    def _counts(self, path: trees.Path, key: str | int) -> bool:
        """Whether a key that the first result lacks is looked at in the others."""
        return self._rule((*path, key)) != "first"

    def _is_first_s(self, node: Any, path: trees.Path) -> bool:
        """Whether a part of the first result is taken whatever the others have in its place."""
        if isinstance(node, Leaf) or self._rule(path) != "first":
            return False
        if trees.are_scalars(node) or not trees.is_branch(node):
            return True
        return all(self._is_first_s(child, (*path, key)) for key, child in trees.children(node))

    def _opens(self, node: Any, path: trees.Path) -> bool:
        """Whether the parts of a node follow rules of their own."""
        if trees.is_items(node):
            return (isinstance(node, tuple) and not path) or _has_leaf(node)
        return trees.is_branch(node)

    def _check_kinds(self, found: list[Any], path: trees.Path) -> None:
        """Refuses rows beside what is none, None beside anything else, and parts that are not alike."""

        def kind(value: Any) -> Any:
            if value is None or isinstance(value, Leaf):
                return "rows" if value is not None else None
            if not self._opens(value, path):
                return "value"
            # The class of a script is another one in every process.
            return Mapping if isinstance(value, Mapping) else (type(value).__qualname__,)

        for worker, value in zip(self.workers, found, strict=True):
            if kind(value) != kind(found[0]):
                kinds = ["rows" if isinstance(v, Leaf) else type(v).__name__ for v in (found[0], value)]
                alike = ", one with rows in it" if kinds[0] == kinds[1] else ""
                raise PlanError(
                    f"{self.declaration.name}: worker {self.workers[0]} returned {kinds[0]} at {_at(path)} and worker "
                    f"{worker} {kinds[1]}{alike}; the workers whose results are collected must return alike",
                    worker=worker,
                    key=_at(path),
                )

    def _by_rule(self, found: list[Any], path: trees.Path, beside: list[Any] | None) -> Any:
        rule = self._rule(path)
        if found[0] is None and (rule != "list" or not path):
            return None
        if rule == "list":
            return found
        if rule == "first":
            return found[0]
        key = None
        if isinstance(rule, tuple):
            rule, key = rule
            self._check_weighed(key, path, beside or [])
        try:
            weights = self.weights if key is None else [float(_columns(values)[key]) for values in beside or ()]
            return _folded(found, weights, rule)
        except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
            raise PlanError(
                f"{self.declaration.name}: cannot take the {rule} of {type(found[0]).__name__} at {_at(path)}: {error}"
                "; give that key a rule in result_rows, as {'key': 'list'}",
                key=_at(path),
            ) from error

    def _check_weighed(self, key: str, path: trees.Path, beside: list[Any]) -> None:
        for worker, values in zip(self.workers, beside, strict=True):
            columns = _columns(values)
            if key not in columns:
                raise missing(self.declaration.name, worker, key, f"weighs {_at(path)}, beside it", values, columns)


def _folded(found: list[Any], weights: list[float], rule: str) -> Any:
    if rule == "mean" and any(weights):
        # What weighs nothing does not enter: the mean of no rows is no number, and would make the whole none.
        found = [value for value, weight in zip(found, weights, strict=True) if weight]
        weights = [weight for weight in weights if weight]
    if isinstance(found[0], (str, bytes)):
        raise TypeError("text has none")
    if isinstance(found[0], (list, tuple)):
        if len({len(value) for value in found}) > 1:
            raise ValueError(f"lengths {[len(value) for value in found]} differ")
        parts = [_folded(list(column), weights, rule) for column in zip(*found, strict=True)]
        return type(found[0])(parts)
    if rule == "max":
        return reduce(_highest, found)
    if rule == "mean" and any(isinstance(value, Decimal) for value in found):
        exact = [Decimal(weight) for weight in weights] if any(weights) else [Decimal(1)] * len(found)
        return sum(value * weight for value, weight in zip(found, exact, strict=True)) / sum(exact)
    if rule == "mean":
        whole = sum(weights)
        shares = [weight / whole for weight in weights] if whole else [1 / len(found)] * len(found)
        found = [value * share for value, share in zip(found, shares, strict=True)]
    if rule == "sum":
        found = list(map(_counted, found))
    total = found[0]
    for value in found[1:]:
        total = total + value
    numpy = sys.modules.get("numpy")
    return total.item() if numpy is not None and isinstance(total, numpy.generic) else total


def _counted(value: Any) -> Any:
    """A value that can be added up: truths count, and small whole numbers do not wrap around."""
    if isinstance(value, bool):
        return int(value)
    dtype = getattr(value, "dtype", None)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        whole = not (value.is_floating_point() or value.is_complex())
        return value.to(torch.int64) if whole and dtype != torch.uint64 else value
    return value.astype("int64") if getattr(dtype, "kind", "") in ("b", "i") or str(dtype) in _SMALL else value


def _highest(first: Any, second: Any) -> Any:
    """The higher of two, element by element; what is no number is the highest of all."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and (isinstance(first, torch.Tensor) or isinstance(second, torch.Tensor)):
        return torch.maximum(torch.as_tensor(first), torch.as_tensor(second))
    if numpy is not None and (hasattr(first, "shape") or hasattr(second, "shape")):
        return numpy.maximum(first, second)
    # What is no number is not equal to itself.
    return first if first != first else second if second != second else max(first, second)  # noqa: PLR0124


def _columns(node: Any) -> dict[Any, Any]:
    return dict(trees.children(node))


def _has_leaf(node: Any) -> bool:
    return not trees.are_scalars(node) and any(
        isinstance(child, Leaf) or (trees.is_branch(child) and _has_leaf(child)) for _, child in trees.children(node)
    )


def _at(path: trees.Path) -> str:
    return trees.path_text(path)
