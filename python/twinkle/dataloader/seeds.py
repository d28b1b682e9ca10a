"""Random numbers of a loader: worlds of their own, seeded by what a batch is and never by who reads it."""

from __future__ import annotations

import os
import random
import threading
from functools import cache
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from twinkle.dataloader.mersenne import exchanged, prepared_gaussian

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["Randomness", "alone", "hashed", "hashed_after", "sow"]

_WORD = Struct("<Q")


def hashed(*numbers: int) -> int:
    """A seed from 0 to 2**63 - 1 that depends on every number and on their order."""
    return hashed_after(*numbers[:-1])(numbers[-1])


def hashed_after(*numbers: int) -> Callable[[int], int]:
    """`hashed(*numbers, last)` as a function of the last number, for a loop over many."""
    begun = blake2b(b"".join(map(_WORD.pack, numbers)), digest_size=8)

    def with_last(last: int) -> int:
        whole = begun.copy()
        whole.update(_WORD.pack(last))
        return int.from_bytes(whole.digest(), "little") >> 1

    return with_last


class _Globals(NamedTuple):
    # NumPy's and torch's global generators, looked up once: reading a batch asks for them several times.
    numpy_seed: Callable[[int], None]
    get_bits: Callable[[], Any]
    put_bits: Callable[[Any], None]
    torch: Any


@cache
def _globals() -> _Globals:
    from numpy import random as numpy_random
    from torch import default_generator

    get, put = numpy_random.get_bit_generator, numpy_random.set_bit_generator  # type: ignore[attr-defined]
    return _Globals(numpy_random.seed, get, put, default_generator)


def sow(seed: int) -> None:
    """Seeds `random`, NumPy's and torch's generators of this process; those of accelerators are left alone."""
    found = _globals()
    random.seed(seed)
    found.numpy_seed(seed & 0xFFFF_FFFF)
    found.torch.manual_seed(seed)


#: Held by the thread that is inside a world of random numbers.
_inside = threading.RLock()


def _renew() -> None:
    # A process forked meanwhile has none of the thread that would give it back.
    global _inside
    _inside = threading.RLock()


os.register_at_fork(after_in_child=_renew)


def alone() -> threading.RLock:
    """A lock that is held while any thread is inside a `Randomness`: who has it exchanges the generators alone."""
    return _inside


class _World(NamedTuple):
    """Where the global generators stand; NumPy's is the very object, with the Gaussian it has ready."""

    python: Any
    torch: Any
    bits: Any
    gaussian: float | None


class Randomness:
    """The global generators, exchanged for others inside a `with` block; what is outside never notices.

    Made with a seed, it goes on inside its next block where it stopped; without one, who is inside sows. The generators
    are the process's: one thread is inside at a time, and a thread that draws without coming here shares them with it.
    """

    __slots__ = ("_bits", "_held", "_inside", "_outside", "_seed")

    def __init__(self, seed: int | None = None) -> None:
        from numpy.random import MT19937

        self._bits: Any = MT19937(0)
        self._inside: _World | None = None
        self._outside: _World | None = None
        self._held = _inside
        self._seed = seed

    def __enter__(self) -> Randomness:
        self._held = _inside
        self._held.acquire()
        found = _globals()
        self._outside = _left(found)
        found.put_bits(self._bits)
        if self._inside is not None:
            _entered(found, self._inside)
        elif self._seed is not None:
            sow(self._seed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            found = _globals()
            if self._seed is not None:
                self._inside = _left(found)
            if self._outside is not None:
                found.put_bits(self._outside.bits)
                _entered(found, self._outside)
                self._outside = None
        finally:
            self._held.release()


def _left(found: _Globals) -> _World:
    # Reading the state of NumPy's generator costs a hundred times as much as exchanging it.
    bits = found.get_bits()
    return _World(exchanged().save(), found.torch.get_state(), bits, prepared_gaussian(bits))


def _entered(found: _Globals, world: _World) -> None:
    """All but the bit generator of NumPy, which has been exchanged: that also dropped what Gaussian there was."""
    exchanged().restore(world.python)
    found.torch.set_state(world.torch)
    if world.gaussian is not None:
        from numpy.random import get_state, set_state

        set_state({**get_state(legacy=False), "has_gauss": 1, "gauss": world.gaussian})
