"""Pickling of what travels between a driver and its workers: classes and functions of a script go with it, by value."""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Packed", "packed", "reducers"]

#: What is smaller than this costs more beside a pickle than in it.
_LEAST = 512


class Packed:
    """A pickled value, with the bytes of its arrays beside it: in the object store they are looked into, not copied."""

    __slots__ = ("buffers", "head")

    def __init__(self, value: Any) -> None:
        #: The pickle, and what is beside it.
        self.head: Any
        self.buffers: Sequence[Any]
        self.head, buffers = _dumped(value, least=_LEAST)
        self.buffers = [buffer.raw() for buffer in buffers]
        if _is_of_ray(self.head):
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


def packed(value: Any) -> bytes:
    """A pickle that any worker can load, of anything that Ray could send; its arrays can be written to."""
    return _dumped(value)[0]


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
    pickler.dispatch_table = reducers()
    try:
        pickler.dump(value)
        data = stream.getvalue()
    except (pickle.PicklingError, AttributeError, TypeError):
        data = b"__main__"
    # What a script defines itself must travel by value, and a reference with its owner, which takes longer.
    if b"__main__" not in data and (least is not None or not _is_of_ray(data)):
        return data, buffers
    from ray import cloudpickle

    buffers.clear()
    return bytes(cloudpickle.dumps(value, protocol=5, buffer_callback=callback)), buffers  # type: ignore[no-untyped-call]


def _is_of_ray(data: bytes) -> bool:
    """Whether there are references to objects or actors in a pickle, which plain pickling makes useless elsewhere."""
    return any(word in data for word in (b"ObjectRef", b"_object_ref_", b"ray.actor", b"_actor_handle_"))


def reducers() -> dict[Any, Any]:
    """How a pickler reduces what it has no way of its own for, by type: arrays such that they can be written to."""
    numpy = sys.modules.get("numpy")
    return {**copyreg.dispatch_table, **({} if numpy is None else {numpy.ndarray: _writable})}


def _writable(array: Any) -> Any:
    """How an array is pickled: one that cannot be written to would arrive as such, so a copy takes its place."""
    return (array if array.flags.writeable else array.copy()).__reduce_ex__(5)
