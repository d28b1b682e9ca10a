"""The Mersenne twisters of Python and NumPy: what their public ways to a state are too slow for, or cannot see.

`random.getstate` makes a tuple of 625 numbers, which takes a third of the time in which a small batch is read; NumPy's
`get_state` takes as long as the batch. Both keep 624 words and a position in one piece of memory. Where a trial shows
that this interpreter and this NumPy do so, it is read and written there; elsewhere the public ways are gone.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ByBytes", "ByTuple", "Exchanged", "exchanged", "prepared_gaussian"]

_WORDS = 624
#: Of Python: the position, then the words.
_STATE = struct.Struct(f"=i{_WORDS}I")


class Exchanged(Protocol):
    """A way to put the state of one of Python's generators aside, and to put it back."""

    def save(self) -> Any:
        """The state as it is."""

    def restore(self, state: Any) -> None:
        """Makes a saved state the present one."""


class ByTuple:
    """The way that the language promises."""

    def __init__(self, generator: random.Random) -> None:
        self.save, self.restore = generator.getstate, generator.setstate


class ByBytes:
    """The memory of the generator, copied; right only where `_lies_open` says so."""

    def __init__(self, generator: random.Random) -> None:
        # The generator is kept, so its memory stays where it is.
        self._generator: Any = generator
        self._bytes = memoryview(_memory(generator)).cast("B")

    def save(self) -> Any:
        """The state as it is."""
        return self._bytes.tobytes(), self._generator.gauss_next

    def restore(self, state: Any) -> None:
        """Makes a saved state the present one."""
        self._bytes[:], self._generator.gauss_next = state


@cache
def exchanged() -> Exchanged:
    """The fastest way that is right here, for the generator behind `random.random`."""
    generator: Any = random.random.__self__  # type: ignore[attr-defined]
    return ByBytes(generator) if _lies_open() else ByTuple(generator)


def _memory(generator: random.Random) -> Any:
    return (ctypes.c_char * _STATE.size).from_address(id(generator) + object.__basicsize__)


def _lies_open() -> bool:
    """Whether the memory behind a generator's header is its state, read and written."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        # Elsewhere an id is no address, or another thread may draw while bytes are copied.
        return False
    if random.Random.__mro__[1].__basicsize__ - object.__basicsize__ < _STATE.size:
        return False
    one, other = random.Random(1), random.Random(2)
    one.random()
    *words, position = one.getstate()[1]
    if _STATE.unpack(bytes(_memory(one))) != (position, *words):
        return False
    ByBytes(other).restore(ByBytes(one).save())
    return other.getstate() == one.getstate()


def prepared_gaussian(bits: Any) -> float | None:
    """The Gaussian that NumPy's global generator has made in advance, None without one; it is taken out.

    They are made in pairs, and to exchange the bit generator drops the second of a pair without a word. `bits` is the
    bit generator in use, which stays as it is.
    """
    mersenne_twister, standard_normal = _of_numpy()
    if type(bits) is mersenne_twister and _position_lies_open():
        position = _position(bits)
        before, position.value = position.value, 0
        drawn = standard_normal()
        # One that was there costs no word. At position 0 the words last for hundreds of draws, so none is renewed.
        found, position.value = position.value == 0, before
        return drawn if found else None
    state = bits.state
    drawn = standard_normal()
    if repr(bits.state) == repr(state):
        return drawn
    bits.state = state
    return None


@cache
def _of_numpy() -> tuple[type, Callable[[], float]]:
    # Looked up once: every batch asks.
    from numpy.random import MT19937, standard_normal

    return MT19937, standard_normal


def _position(bits: Any) -> ctypes.c_int:
    return ctypes.c_int.from_address(bits.ctypes.state_address + 4 * _WORDS)


@cache
def _position_lies_open() -> bool:
    """Whether NumPy keeps the position behind the words."""
    from numpy.random import MT19937

    bits = MT19937(1)
    bits.random_raw()
    read = _position(bits).value == bits.state["state"]["pos"]
    _position(bits).value = 5
    return read and bits.state["state"]["pos"] == 5
