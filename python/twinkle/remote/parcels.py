"""Parcels: what one process sends to another, with the bytes of arrays and tensors beside the pickle, not in it.

A parcel is a head, which is pickled, and parts, which are raw bytes: of arrays and tensors on the CPU next to the head,
of tensors on an accelerator apart. Dtypes and shapes are in the head, so whoever has nothing to send needs to know
neither, and rows of one leaf may differ in width from process to process.
"""

from __future__ import annotations

import io
import pickle
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

from twinkle.remote.pickling import reducers

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Parcel", "digest_of", "is_here", "opened"]

#: Every part begins at a multiple of this, whatever its dtype.
_ALIGNED = 64
#: What is smaller than this costs more apart than in the pickle.
_LEAST = 512


class Parcel:
    """One value, ready to be written. Raises what pickling raises."""

    def __init__(self, value: Any) -> None:
        stream = io.BytesIO()
        pickler = _Pickler(stream)
        pickler.dump(value)
        head = stream.getvalue()
        #: Flat byte tensors on an accelerator, in the order of their parts.
        self.away = [part for is_away, part in pickler.parts if is_away]
        sizes = [(is_away, part.numel() if is_away else part.nbytes) for is_away, part in pickler.parts]
        index = pickle.dumps((len(head), sizes))
        here = [part for is_away, part in pickler.parts if not is_away]
        self._pieces = [len(index).to_bytes(8, "little") + index + head, *here]
        #: How many bytes it takes, and how many more on an accelerator.
        self.size = sum(_padded(memoryview(piece).nbytes) for piece in self._pieces)
        self.away_size = sum(_padded(part.numel()) for part in self.away)

    def write(self, buffer: Any, at: int) -> None:
        """Puts it into a byte array, from a place on."""
        import numpy

        for piece in self._pieces:
            flat = numpy.frombuffer(piece, dtype=numpy.uint8)
            buffer[at : at + flat.size] = flat
            at += _padded(flat.size)

    def write_away(self, buffer: Any, at: int) -> None:
        """Puts the parts on an accelerator into a byte tensor, from a place on."""
        for part in self.away:
            buffer[at : at + part.numel()].copy_(part)
            at += _padded(part.numel())


def opened(here: Any, away: Any) -> Any:
    """The value of a parcel: `here` is its byte array, `away` the byte tensor of its parts on an accelerator, or None.

    Large arrays and tensors look into these two and copy nothing.
    """
    view = memoryview(here)
    start = 8 + int.from_bytes(view[:8], "little")
    length, sizes = pickle.loads(view[8:start])
    parts: list[Any] = []
    place, away_place = _padded(start + length), 0
    for is_away, size in sizes:
        if is_away:
            parts.append(away[away_place : away_place + size])
            away_place += _padded(size)
        else:
            parts.append(view[place : place + size])
            place += _padded(size)
    return pickle.loads(view[start : start + length], buffers=parts)


def digest_of(value: Any) -> bytes:
    """A fingerprint by which replicas compare what they have: of values, never of where they lie in memory."""
    from hashlib import blake2b

    stream = io.BytesIO()
    pickler = _Digester(stream)
    # Without a memo, which would tell apart what is one object here and two equal ones there.
    pickler.fast = True
    try:
        pickler.dump(value)
    except (RecursionError, ValueError):
        # What holds itself needs the memo.
        stream = io.BytesIO()
        pickler = _Digester(stream)
        pickler.dump(value)
    found = blake2b(stream.getvalue(), digest_size=16)
    for is_away, part in pickler.parts:
        found.update(part.cpu().numpy() if is_away else part)
    return found.digest()


class _Pickler(pickle.Pickler):
    """Leaves the bytes of NumPy arrays and plain tensors out of the pickle."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=5, buffer_callback=self._apart)
        self.dispatch_table = reducers()
        #: Whether a part is on an accelerator, and its bytes.
        self.parts: list[tuple[bool, Any]] = []
        self._away: dict[int, tuple[pickle.PickleBuffer, Any]] = {}

    def reducer_override(self, value: Any) -> Any:
        """How a plain tensor is pickled; everything else as ever."""
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not torch.Tensor or not _is_plain(value, torch):
            return NotImplemented
        flat = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        # One of less than two numbers may keep a step that bytes do not have.
        flat = flat.as_strided((flat.numel(),), (1,)).view(torch.uint8)
        if is_here(flat):
            buffer = pickle.PickleBuffer(flat.numpy())
        else:
            # It stands for the bytes that stay where they are.
            buffer = pickle.PickleBuffer(bytearray(1))
            self._away[id(buffer)] = buffer, flat
        return _tensor, (buffer, value.dtype, tuple(value.shape), value.requires_grad)

    def _apart(self, buffer: pickle.PickleBuffer) -> bool:
        """Takes the bytes of an array or tensor; True leaves them in the pickle."""
        if id(buffer) in self._away:
            self.parts.append((True, self._away[id(buffer)][1]))
            return False
        raw = buffer.raw()
        if raw.nbytes < _LEAST:
            return True
        self.parts.append((False, raw))
        return False


def _named(name: str) -> str:
    """Stands for what is told by its name; nobody opens a digest."""
    return name


class _Digester(_Pickler):
    """Writes classes and functions by their names: those of a script are found under them in no worker."""

    def reducer_override(self, value: Any) -> Any:
        """How a value is told from others."""
        if value is not _named and isinstance(value, (type, FunctionType)):
            return _named, (f"{value.__module__}.{value.__qualname__}",)
        return super().reducer_override(value)


def is_here(flat: Any) -> bool:
    """Whether the bytes of a tensor are on the CPU."""
    return bool(flat.device.type == "cpu")


def _is_plain(tensor: Any, torch: Any) -> bool:
    """Whether a tensor is nothing but a dtype, a shape and bytes."""
    return tensor.layout is torch.strided and not tensor.is_quantized and tensor.device.type != "meta"


def _tensor(buffer: Any, dtype: Any, shape: Sequence[int], gradient: bool) -> Any:  # noqa: FBT001 - as it is pickled
    """The tensor of these bytes: a tensor of bytes, or memory. It has no graph, and wants a gradient if it did."""
    import torch

    if not isinstance(buffer, torch.Tensor):
        if memoryview(buffer).nbytes == 0:
            return torch.empty(shape, dtype=dtype).requires_grad_(gradient)
        buffer = torch.frombuffer(buffer, dtype=torch.uint8)
    found = buffer.view(dtype).reshape(shape)
    return found.requires_grad_() if gradient else found


def _padded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
