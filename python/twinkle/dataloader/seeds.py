"""Random numbers of a loader: worlds of their own, seeded by what a batch is and never by who reads it."""

from __future__ import annotations

import random
from functools import cache
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["Randomness", "hashed", "sow"]

_WORD = Struct("<Q")


def hashed(*numbers: int) -> int:
    """A seed from 0 to 2**63 - 1 that depends on every number and on their order."""
    packed = b"".join(map(_WORD.pack, numbers))
    return int(_WORD.unpack(blake2b(packed, digest_size=8).digest())[0]) >> 1


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


class Randomness:
    """The global generators, exchanged for others inside a `with` block; what is outside never notices.

    Made with a seed, it goes on inside its next block where it stopped; without one, who is inside sows.
    """

    __slots__ = ("_bits", "_inside", "_outside", "_seed")

    def __init__(self, seed: int | None = None) -> None:
        from numpy.random import MT19937

        self._bits: Any = MT19937(0)
        self._inside: tuple[Any, Any] | None = None
        self._outside: tuple[Any, Any, Any] | None = None
        self._seed = seed

    def __enter__(self) -> Randomness:
        found = _globals()
        # Exchanging NumPy's bit generator costs a hundredth of reading its state.
        self._outside = random.getstate(), found.torch.get_state(), found.get_bits()
        found.put_bits(self._bits)
        if self._inside is not None:
            random.setstate(self._inside[0])
            found.torch.set_state(self._inside[1])
        elif self._seed is not None:
            sow(self._seed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        found = _globals()
        if self._seed is not None:
            self._inside = random.getstate(), found.torch.get_state()
        if self._outside is not None:
            state, torch_state, bits = self._outside
            random.setstate(state)
            found.torch.set_state(torch_state)
            found.put_bits(bits)
            self._outside = None
