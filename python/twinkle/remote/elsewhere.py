"""The driver's object of a component: it has the methods alone, since all else is where the object itself lives.

A decorated class gets ways to its attributes that refuse on the driver, in words. Elsewhere they are those that the
class had: its own, or those of a base such as `torch.nn.Module`.
"""

from __future__ import annotations

from typing import Any

from twinkle.errors import PlanError
from twinkle.runtime import current

__all__ = ["COMPONENT", "guard", "keep", "kept"]

#: Where an instance keeps what runs its calls.
COMPONENT = "_twinkle_component"


def kept(instance: Any, name: str) -> Any:
    """What twinkle itself keeps in an object, whatever its class does about attributes; None where that is nothing."""
    try:
        return object.__getattribute__(instance, "__dict__").get(name)
    except AttributeError:
        return None


def keep(instance: Any, name: str, value: Any) -> None:
    """Keeps something in an object; refused where it has no place for it."""
    try:
        object.__setattr__(instance, name, value)
    except AttributeError as error:
        raise PlanError(
            f"{type(instance).__qualname__} has __slots__ without {name!r}; a remote class needs a __dict__"
        ) from error


def guard(kind: Any) -> None:
    """Gives a class its ways to attributes, to copies and to words."""
    for name, make in (
        ("__getattr__", _getter),
        ("__setattr__", _setter),
        ("__reduce_ex__", _reducer),
        ("__repr__", _words),
    ):
        setattr(kind, name, make(kind, kind.__dict__.get(name)))


def _getter(kind: Any, own: Any) -> Any:
    def find(self: Any, name: str) -> Any:
        group = _group_of(self)
        if group is not None and not _is_special(name):
            raise AttributeError(
                f"{type(self).__name__!r} object lives in remote group {group!r}, and so does its {name!r}: read it "
                "through a method decorated with @remote_function()"
            )
        if group is None and own is not None:
            return own(self, name)
        inherited = getattr(super(kind, self), "__getattr__", None)
        if group is None and inherited is not None:
            return inherited(name)
        # It is not there, or it is a property that raised this: asked once more, what is missing says so itself.
        return object.__getattribute__(self, name)

    return find


def _setter(kind: Any, own: Any) -> Any:
    def assign(self: Any, name: str, value: Any) -> None:
        group = None if _is_special(name) else _group_of(self)
        if group is not None:
            # Where the object lives nobody would hear of it.
            raise AttributeError(
                f"{type(self).__name__!r} object lives in remote group {group!r}, and so does its {name!r}: set it in "
                "a method decorated with @remote_function()"
            )
        if own is not None:
            own(self, name, value)
        else:
            super(kind, self).__setattr__(name, value)

    return assign


def _reducer(kind: Any, own: Any) -> Any:
    def reduced(self: Any, protocol: Any) -> Any:
        group = _group_of(self)
        if group is not None or (kept(self, COMPONENT) is not None and current.mode == "ray"):
            where = "this process" if group is None else f"group {group!r}"
            raise PlanError(
                f"{type(self).__qualname__} is a component of {where}, and does not travel: pass handles of its rows, "
                "or make an object of its class where it is needed",
                group=group,
            )
        return super(kind, self).__reduce_ex__(protocol) if own is None else own(self, protocol)

    return reduced


def _words(kind: Any, own: Any) -> Any:
    def words(self: Any) -> str:
        group = _group_of(self)
        if group is not None:
            return f"<{type(self).__qualname__} in remote group {group!r}>"
        return str(super(kind, self).__repr__() if own is None else own(self))

    return words


def _is_special(name: str) -> bool:
    """Whether a name is Python's own, which it looks for and sets itself."""
    return name.startswith("__") and name.endswith("__")


def _group_of(instance: Any) -> str | None:
    """The group that the object itself lives in; None where it is this one."""
    return getattr(getattr(kept(instance, COMPONENT), "group", None), "name", None)
