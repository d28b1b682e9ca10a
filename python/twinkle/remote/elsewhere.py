"""The driver's object of a component: it has the methods alone, since all else is where the object itself lives.

A decorated class gets ways to its attributes that refuse on the driver, in words. Elsewhere they are those that the
class had: its own, or those of a base such as `torch.nn.Module`. Data in the class itself, which the object elsewhere
may have other than the class, is refused as well, by a way that reading takes in the driver's process alone: where
objects live it would cost time at each attribute.
"""

from __future__ import annotations

from typing import Any

from twinkle.errors import PlanError
from twinkle.runtime import current

__all__ = ["COMPONENT", "group_of", "guard", "guard_reading", "keep", "kept", "unguard_reading"]

#: Where an instance keeps what runs its calls.
COMPONENT = "_twinkle_component"
#: Where the way that reading takes keeps the one that the class had.
_OWN = "__twinkle_own__"


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


def guard_reading(kind: Any) -> None:
    """Has a class refuse data that is in the class itself where it is read from an object that lives elsewhere."""
    if not hasattr(kind.__getattribute__, _OWN):
        kind.__getattribute__ = _reader(kind, kind.__dict__.get("__getattribute__"))


def unguard_reading(kind: Any) -> None:
    """Takes that away again from a class that has travelled with it, and from its bases."""
    for base in kind.__mro__:
        found = base.__dict__.get("__getattribute__")
        if hasattr(found, _OWN):
            own = getattr(found, _OWN)
            if own is None:
                del base.__getattribute__
            else:
                base.__getattribute__ = own


def _reader(kind: Any, own: Any) -> Any:
    def read(self: Any, name: str) -> Any:
        group = None if _is_special(name) else group_of(self)
        if group is not None and kept(self, name) is None and _is_data(type(self), name):
            raise _refusal(self, group, name)
        return super(kind, self).__getattribute__(name) if own is None else own(self, name)

    setattr(read, _OWN, own)
    return read


def _is_data(kind: type, name: str) -> bool:
    """Whether a class has something under a name that is no method, property or other way to read, and no class.

    A name in capitals is a constant by the convention of the language, the same wherever the class is.
    """
    if name.isupper():
        return False
    found = next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), kind)
    return not isinstance(found, type) and not hasattr(type(found), "__get__")


def _refusal(instance: Any, group: str, name: str) -> AttributeError:
    kind = type(instance)
    of_class = f", or as {kind.__qualname__}.{name} where that of the class is meant" if _is_data(kind, name) else ""
    return AttributeError(
        f"{kind.__name__!r} object lives in remote group {group!r}, and so does its {name!r}: read it through a method "
        f"decorated with @remote_function(){of_class}"
    )


def _getter(kind: Any, own: Any) -> Any:
    def find(self: Any, name: str) -> Any:
        group = group_of(self)
        if group is not None and not _is_special(name):
            raise _refusal(self, group, name)
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
        group = None if _is_special(name) else group_of(self)
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
        group = group_of(self)
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
        group = group_of(self)
        if group is not None:
            return f"<{type(self).__qualname__} in remote group {group!r}>"
        return str(super(kind, self).__repr__() if own is None else own(self))

    return words


def _is_special(name: str) -> bool:
    """Whether a name is Python's own, which it looks for and sets itself."""
    return name.startswith("__") and name.endswith("__")


def group_of(instance: Any) -> str | None:
    """The group that the object itself lives in; None where it is this one."""
    return getattr(getattr(kept(instance, COMPONENT), "group", None), "name", None)
