"""What a method declares: how its arguments are cut, where it runs, and what becomes of its results.

Everything is checked when the class is written, so that a wrong word never waits for the first call on a cluster.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError
from twinkle.remote.waiting import check_timeout

if TYPE_CHECKING:
    from twinkle.plan import CollectFrom

__all__ = ["RULES", "Declaration", "check_methods", "declared", "method_of"]

#: The words each option takes; where a function is accepted as well, the last column says so.
_WORDS: dict[str, tuple[tuple[str, ...], bool]] = {
    "dispatch": (("all", "slice", "slice_dp"), True),
    "execute": (("all", "first", "peer"), False),
    "collect": (("none", "flatten", "mean", "avg", "sum", "first", "last_pp", "last_pp_first"), True),
    "collect_from": (("pp_last", "pp_first", "any", "all"), False),
    "split": (("even", "pad"), True),
    "fan_out": (("all", "lead"), False),
    "on_error": (("leave", "kill_group"), False),
}
#: What a key of a result may follow.
RULES = ("rows", "list", "mean", "sum", "first", "max")
_CUTTING = ("slice", "slice_dp")
_ROW_COLLECTS = ("flatten", "last_pp")


@dataclass(frozen=True)
class Declaration:
    """The options of one remote method, as `twinkle.remote_function` documents them."""

    dispatch: Any = "all"
    execute: str = "all"
    collect: Any = "none"
    rows: Any = None
    result_rows: Any = None
    collect_from: CollectFrom = "pp_last"
    split: Any = "even"
    group: int = 1
    allow_empty: bool = False
    loss_mask: Any = None
    pad_values: Mapping[str, Any] | None = None
    fan_out: str = "all"
    verify_replicas: bool = False
    sync: bool = False
    lazy_collect: bool | None = None
    timeout: float | None = None
    on_error: str = "leave"
    #: The method's name and signature, once it is known.
    name: str = ""
    parameters: inspect.Signature | None = field(default=None, compare=False)

    @property
    def cuts(self) -> bool:
        """Whether rows are cut at all."""
        return self.dispatch in _CUTTING if isinstance(self.dispatch, str) else False

    @property
    def collects_rows(self) -> bool:
        """Whether a bare list, tuple, array or tensor that is returned is rows."""
        return isinstance(self.collect, str) and self.collect in _ROW_COLLECTS

    @property
    def holders(self) -> CollectFrom:
        """Which workers have the result, as `Placement` words it."""
        return "pp_last" if self.collect in ("last_pp", "last_pp_first") else self.collect_from

    def rule(self, key: str | int) -> str | tuple[str, str] | None:
        """What a key of the result follows by its declaration; None where it is not declared."""
        rules = self.result_rows
        if rules is None:
            return None
        if isinstance(rules, Mapping):
            return rules.get(key)
        return "rows" if key in rules else None

    @property
    def default_rule(self) -> str:
        """What an undeclared part of the result follows."""
        words = {"mean": "mean", "avg": "mean", "sum": "sum", "first": "first", "last_pp_first": "first"}
        return words.get(self.collect, "list") if isinstance(self.collect, str) else "list"

    def of(self, method: Callable[..., Any]) -> Declaration:
        """This declaration for one method; refused where it names parameters that the method lacks."""
        name = getattr(method, "__qualname__", getattr(method, "__name__", str(method)))
        signature = inspect.signature(method)
        parameters = list(signature.parameters.values())[1:]
        known = [entry.name for entry in parameters]
        keywords = any(entry.kind is inspect.Parameter.VAR_KEYWORD for entry in parameters)
        for row in self.rows or ():
            if row not in known and not keywords:
                raise PlanError(f"{name}: rows={row!r} is no parameter; it has {_listed(known)}", parameter=row)
        return Declaration(**{**self.__dict__, "name": name, "parameters": signature.replace(parameters=parameters)})


def declared(options: Mapping[str, Any]) -> Declaration:
    """A checked declaration; every refusal names the option, what was given and what is accepted."""
    accepted = [entry for entry in Declaration.__dataclass_fields__ if entry not in ("name", "parameters")]
    for option in options:
        if option not in accepted:
            near = get_close_matches(option, accepted, 1)
            told = f", did you mean {near[0]}?" if near else ""
            raise PlanError(
                f"remote_function has no option {option!r}{told} It takes {_listed(accepted)}", option=option
            )
    for option, (words, function) in _WORDS.items():
        _check_word(option, options.get(option, words[0]), words, function=function)
    for option in ("allow_empty", "verify_replicas", "sync"):
        if not isinstance(options.get(option, False), bool):
            raise PlanError(f"{option} must be True or False, not {options[option]!r}", option=option)
    if options.get("lazy_collect") not in (None, True, False):
        raise PlanError(f"lazy_collect must be None, True or False, not {options['lazy_collect']!r}")
    group = options.get("group", 1)
    if isinstance(group, bool) or not isinstance(group, int) or group < 1:
        raise PlanError(f"group must be a whole number of rows from 1, not {group!r}", group=group)
    check_timeout(options.get("timeout"))
    made = Declaration(
        **{
            **options,
            "rows": _names("rows", options.get("rows")),
            "result_rows": _rules(options.get("result_rows")),
            "loss_mask": _loss_mask(options.get("loss_mask")),
            "pad_values": _pad_values(options.get("pad_values")),
        }
    )
    _check_together(made)
    return made


def method_of(kind: type, name: str) -> tuple[Declaration, Any]:
    """The declaration and the function of a remote method, by its qualified name.

    A method that a class overrides is still there for `super()`, so that its own one is not always what is meant.
    """
    for base in kind.__mro__:
        found = getattr(base.__dict__.get(name.rpartition(".")[2]), "__twinkle__", None)
        if found is not None and found[0].name == name:
            declaration, method = found
            return declaration, method
    raise PlanError(f"{kind.__qualname__} has no remote method {name} here: define it in the body of the class")


def check_methods(kind: type) -> None:
    """Refuses remote methods that a worker would not find, or could not call on its object."""
    for base in kind.__mro__:
        for name, value in base.__dict__.items():
            inner = value.fget if isinstance(value, property) else getattr(value, "__func__", None)
            if hasattr(inner, "__twinkle__"):
                raise PlanError(
                    f"{base.__qualname__}.{name}: a {type(value).__name__} is no remote method, since it is not called "
                    "on an object in a worker; remote_function takes plain methods",
                    method=name,
                )
            declaration = getattr(value, "__twinkle__", (None,))[0]
            if isinstance(declaration, Declaration) and declaration.name.rpartition(".")[2] != name:
                raise PlanError(
                    f"{base.__qualname__}.{name} is {declaration.name} under another name, by which workers do not "
                    f"find it: write `def {name}(self, ...)` and decorate that",
                    method=name,
                )
            _check_override(kind, base, name, value)


def _check_override(kind: type, base: type, name: str, value: Any) -> None:
    """Refuses what stands before a remote method of the same name without being one; None takes the method away."""
    if value is None or hasattr(value, "__twinkle__"):
        return
    mro = kind.__mro__
    for further in mro[mro.index(base) + 1 :]:
        found = getattr(further.__dict__.get(name), "__twinkle__", (None,))[0]
        if isinstance(found, Declaration):
            raise PlanError(
                f"{base.__qualname__}.{name} overrides the remote method {found.name} without @remote_function(): it "
                "would run on the driver, where the object is not; decorate it as well",
                method=name,
                base=further.__qualname__,
            )


def _check_together(made: Declaration) -> None:
    if made.rows is not None and not made.cuts:
        raise PlanError(
            f"rows={made.rows} needs dispatch='slice_dp' or 'slice'; dispatch={made.dispatch!r} cuts nothing"
        )
    if made.collect_from == "all" and made.collects_rows:
        raise PlanError(
            f"collect_from='all' returns every worker's result and never joins rows: use collect='none' with it, or "
            f"collect_from='any' with collect={made.collect!r}"
        )
    if not made.cuts:
        for option in ("group", "allow_empty", "loss_mask", "fan_out"):
            if getattr(made, option) != Declaration.__dataclass_fields__[option].default:
                raise PlanError(f"{option} is about rows and needs dispatch='slice_dp' or 'slice'", option=option)
        if made.split != "even":
            raise PlanError("split is about rows and needs dispatch='slice_dp' or 'slice'", option="split")


def _check_word(option: str, value: Any, words: Sequence[str], *, function: bool) -> None:
    if isinstance(value, str) and value in words:
        return
    if function and callable(value):
        parameters = list(inspect.signature(value).parameters) if inspect.isfunction(value) else []
        if parameters[:1] == ["self"]:
            raise PlanError("remote_function is called with its options: write @remote_function()")
        return
    or_function = ", or a function" if function else ""
    raise PlanError(f"{option} must be one of {_listed(words)}{or_function}, not {value!r}", option=option, found=value)


def _names(option: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise PlanError(f"{option} must be names of parameters, not {value!r}", option=option)
    return tuple(names)


def _rules(value: Any) -> Any:
    """Names or indices of keys that are rows, or a mapping from each to its rule."""
    if value is None or isinstance(value, (str, int)):
        return None if value is None else (value,)
    if isinstance(value, Mapping):
        for key, rule in value.items():
            weighted = isinstance(rule, tuple) and len(rule) == 2 and rule[0] == "mean" and isinstance(rule[1], str)
            if not weighted and rule not in RULES:
                raise PlanError(
                    f"result_rows[{key!r}] must be one of {_listed(RULES)}, or ('mean', key that weighs it), "
                    f"not {rule!r}"
                )
        return dict(value)
    if isinstance(value, Sequence) and all(isinstance(key, (str, int)) for key in value):
        return tuple(value)
    raise PlanError(f"result_rows must be keys of the result, or a mapping from keys to rules, not {value!r}")


def _loss_mask(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return {value: -100}
    if isinstance(value, Mapping) and value and all(isinstance(key, str) for key in value):
        return dict(value)
    raise PlanError(f"loss_mask must be the key that masks a row, as 'labels', or keys with values, not {value!r}")


def _pad_values(value: Any) -> dict[str, Any] | None:
    if value is None or (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        return None if value is None else dict(value)
    raise PlanError(f"pad_values must map keys or dtypes to values, as {{'input_ids': 0}}, not {value!r}")


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)
