"""Pickling of what travels between a driver and its workers: classes and functions of a script go with it, by value.

What decides is met while a value is pickled, never read off its bytes: a text may say anything.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
import weakref
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from twinkle.errors import PlanError, TwinkleError
from twinkle.remote.trees import children, is_branch, path_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinkle.remote.trees import Path

__all__ = ["Packed", "light", "packed", "reducers", "stuck", "travelling", "unpacked"]

#: What is smaller than this costs more beside a pickle than in it.
_LEAST = 512
#: Whose name says what is pickled, which is found under it in the same script alone.
_NAMED = (type, FunctionType, TypeVar)


class Packed:
    """A pickled value, with the bytes of its arrays beside it: in the object store they are looked into, not copied."""

    __slots__ = ("buffers", "head")

    def __init__(self, value: Any) -> None:
        #: The pickle, and what is beside it.
        self.head: Any
        self.buffers: Sequence[Any]
        try:
            self.head, buffers = _dumped(value, least=_LEAST)
            self.buffers = [buffer.raw() for buffer in buffers]
        except _OfRayError:
            # Ray counts who has its references when it pickles them itself.
            self.head, self.buffers = None, [value]

    def opened(self, *, own: bool = True) -> Any:
        """The value: the caller's own, to be written to, or else one whose arrays look into this."""
        if self.head is None:
            return self.buffers[0]
        # A copy of the bytes is what makes an array writable, in whatever depth of the value it is.
        return pickle.loads(self.head, buffers=[bytearray(one) for one in self.buffers] if own else self.buffers)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.head is None:
            return _again, (None, *self.buffers)
        # Older pickles have nothing beside them.
        kind = pickle.PickleBuffer if protocol >= 5 else bytes
        return _again, tuple(map(kind, (self.head, *self.buffers)))


def _again(head: Any, *buffers: Any) -> Packed:
    made = Packed.__new__(Packed)
    made.head, made.buffers = head, buffers
    return made


def light(value: Any) -> Packed | bytes:
    """A packed value as Ray sends it at the least cost: as bare bytes where nothing is beside them.

    Bytes pass Ray's own pickling by, on both sides, which takes as long as a small call itself.
    """
    made = Packed(value)
    return made if made.head is None or made.buffers else made.head


def unpacked(found: Any) -> Any:
    """What `light` or `Packed` has packed, the caller's own; anything else as it is."""
    if isinstance(found, bytes):
        return pickle.loads(found)
    return found.opened() if isinstance(found, Packed) else found


def packed(value: Any) -> bytes:
    """A pickle that any worker can load, of anything that Ray could send; its arrays can be written to."""
    try:
        return _dumped(value)[0]
    except _OfRayError:
        return _by_value(value, None, refuse_references=False)


class travelling:  # noqa: N801 - reads as what it does, in a `with`
    """While a value is pickled, what cannot be is refused by its place in the value; `who` begins the words."""

    __slots__ = ("path", "value", "who")

    def __init__(self, value: Any, who: str, *path: str) -> None:
        self.value, self.who, self.path = value, who, path

    def __enter__(self) -> None:
        """Begins; a class of its own, since a generator takes several times as long in every call."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception):
            made = stuck(error, self.value, self.who, *self.path)
            raise made from made.__cause__


def stuck(error: Exception, value: Any, who: str, *path: str) -> PlanError:
    """The refusal of a value whose pickling raised this, by the place in it that cannot be; its cause is why."""
    found, cause = _culprit(value, path, error)
    why = str(cause)
    if not isinstance(cause, TwinkleError):
        why = f"a {type(found[0]).__name__} cannot travel between processes: {why}"
    text = path_text(found[1]) if found[1] else "what it is given"
    made = PlanError(f"{who}: {text}: {why}", argument=text)
    made.__cause__ = cause
    return made


def _culprit(value: Any, path: Path, error: Exception) -> tuple[tuple[Any, Path], Exception]:
    """The innermost part that cannot be pickled by itself, with its path, and what its pickling raises."""
    try:
        parts = list(children(value)) if is_branch(value) else []
    except Exception:  # a component that is a dataclass has its fields elsewhere
        parts = []
    for key, part in parts:
        try:
            packed(part)
        except Exception as inner:
            return _culprit(part, (*path, key), inner)
    return (value, path), error


class _OfRayError(Exception):
    """There is a reference to an object or an actor, which plain pickling makes useless elsewhere."""


class _OfScriptError(Exception):
    """There is what only this script can find by its name."""


def _dumped(value: Any, least: int | None = None) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """A pickle, and beside it the bytes of arrays of at least so many bytes; None leaves all of them in it."""
    buffers: list[pickle.PickleBuffer] = []

    def apart(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < (least or 0):
            return True
        buffers.append(buffer)
        return False

    callback: Callable[[pickle.PickleBuffer], bool] | None = None if least is None else apart
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=5, buffer_callback=callback)
    pickler.dispatch_table = _table((len(copyreg.dispatch_table), "numpy" in sys.modules), _references())
    try:
        pickler.dump(value)
        data = stream.getvalue()
        # A look at every object takes its time, and where nothing says so it is not needed.
        if b"__main__" in data:
            _check_names(value)
        return data, buffers
    except (_OfScriptError, pickle.PicklingError, AttributeError, TypeError):
        # What a script defines itself must travel by value, which takes longer.
        buffers.clear()
        return _by_value(value, callback, refuse_references=True), buffers


@cache
def _table(known: Any, references: tuple[type, ...]) -> dict[Any, Any]:
    """The table of a pickler that refuses references, made anew when `known` says that something has been added."""
    return {**reducers(), **dict.fromkeys(references, _refuse_reference)}


def _references() -> tuple[type, ...]:
    ray: Any = sys.modules.get("ray")
    return (ray.ObjectRef, ray.actor.ActorHandle) if ray is not None and hasattr(ray, "actor") else ()


def _refuse_reference(_: Any) -> NoReturn:
    raise _OfRayError


class _Names(pickle.Pickler):
    """Looks at every object for what the script defines."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, _NAMED) and value.__module__ == "__main__":
            raise _OfScriptError
        return NotImplemented


class _Nothing:
    """Takes bytes, and keeps none."""

    def write(self, data: Any) -> int:
        return len(data)


def _check_names(value: Any) -> None:
    names = _Names(_Nothing(), protocol=5, buffer_callback=lambda _: False)
    names.dispatch_table = reducers()
    names.dump(value)


def _by_value(value: Any, callback: Any, *, refuse_references: bool) -> bytes:
    stream = io.BytesIO()
    pickler = _by_value_pickler()(stream, protocol=5, buffer_callback=callback)
    pickler.refused = _references() if refuse_references else ()
    pickler.dump(value)
    return stream.getvalue()


@cache
def _by_value_pickler() -> Any:
    from ray.cloudpickle import CloudPickler

    class ByValue(CloudPickler):
        """Ray's pickler, by which a class is defined in another process once, however often it arrives."""

        refused: tuple[type, ...] = ()

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, self.refused):
                raise _OfRayError
            if _is_array(value):
                return _writable(value)
            made: Any = super().reducer_override(value)  # type: ignore[no-untyped-call]
            if isinstance(value, type) and isinstance(made, tuple) and len(made) == 6:
                _defined.add(value)
                maker, args, state, *items, setter = made
                return maker, args, (setter, state), *items, _define
            return made

    return ByValue


#: The classes of a script that this process has made or been given.
_defined: weakref.WeakSet[type] = weakref.WeakSet()


def _define(kind: type, told: tuple[Callable[[type, Any], Any], Any]) -> None:
    """Gives a class that has arrived what it has, unless it has been here before: its attributes have moved on."""
    setter, state = told
    if kind not in _defined:
        _defined.add(kind)
        setter(kind, state)


def reducers() -> dict[Any, Any]:
    """How a pickler reduces what it has no way of its own for, by type: arrays such that they can be written to."""
    numpy = sys.modules.get("numpy")
    return {**copyreg.dispatch_table, **({} if numpy is None else {numpy.ndarray: _writable})}


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def _writable(array: Any) -> Any:
    """How an array is pickled: one that cannot be written to would arrive as such, so a copy takes its place."""
    return (array if array.flags.writeable else array.copy()).__reduce_ex__(5)
