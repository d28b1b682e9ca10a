"""Random numbers of a loader: worlds of their own, seeded by what a batch is and never by who reads it."""

from __future__ import annotations

import random
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Randomness", "hashed", "sow"]


def hashed(*numbers: int) -> int:
    """A seed from 0 to 2**63 - 1 that depends on every number and on their order."""
    packed = b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), "little") >> 1


def sow(seed: int) -> None:
    """Seeds `random`, NumPy's and torch's generators of this process; those of accelerators are left alone."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)
    torch.default_generator.manual_seed(seed)


def _exchange_bits(bits: Any) -> Any:
    """Puts another bit generator below NumPy's global functions, and gives back the one that was there."""
    from numpy import random as numpy_random

    get, put = numpy_random.get_bit_generator, numpy_random.set_bit_generator  # type: ignore[attr-defined]
    before = get()
    put(bits)
    return before


class Randomness:
    """The global generators, exchanged for others inside a `with` block; what is outside never notices.

    The same instance goes on inside its next block where it stopped.
    """

    def __init__(self, seed: int | None = None) -> None:
        import numpy as np

        self._bits: Any = np.random.MT19937(0)
        self._inside: tuple[Any, Any] | None = None
        self._outside: tuple[Any, Any, Any] | None = None
        self._seed = seed

    def __enter__(self) -> Randomness:
        import torch

        generator = torch.default_generator
        # Exchanging NumPy's bit generator costs a hundredth of reading its state.
        self._outside = (random.getstate(), generator.get_state(), _exchange_bits(self._bits))
        if self._inside is not None:
            random.setstate(self._inside[0])
            generator.set_state(self._inside[1])
        elif self._seed is not None:
            sow(self._seed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import torch

        generator = torch.default_generator
        if self._seed is not None:
            self._inside = (random.getstate(), generator.get_state())
        if self._outside is not None:
            state, torch_state, bits = self._outside
            random.setstate(state)
            generator.set_state(torch_state)
            _exchange_bits(bits)
            self._outside = None
