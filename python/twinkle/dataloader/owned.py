"""The random generators that a sampler owns: kept while it is looked at, and seeded for an epoch."""

from __future__ import annotations

import random
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from twinkle.dataloader.seeds import hashed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Owned", "generators_kept", "generators_of", "parts_of"]


class Owned(NamedTuple):
    """A generator that a sampler draws from, and where it stood."""

    #: Puts it back.
    restore: Callable[[], Any]
    #: Seeds it anew.
    seed: Callable[[int], Any]
    #: What tells it from another of its kind that was seeded otherwise.
    origin: int

    def renew(self, epoch: int, place: int) -> None:
        """Brings it to where it begins an epoch: the first where it stood, every other where the epoch says."""
        self.restore()
        if epoch:
            self.seed(hashed(self.origin, epoch, place))


def parts_of(sampler: Any) -> list[Any]:
    """A sampler, and the one inside it that it goes by."""
    inner = [getattr(sampler, name, None) for name in ("sampler", "batch_sampler")]
    return [sampler, *(part for part in inner if part is not None)]


def generators_of(sampler: Any) -> list[Owned]:
    """The generators of torch, Python and NumPy that a sampler, or the one inside it, has in an attribute."""
    owned: dict[int, Owned] = {}
    for part in parts_of(sampler):
        # torch's samplers name it so, whatever keeps it.
        for value in (getattr(part, "generator", None), *getattr(part, "__dict__", {}).values()):
            found = None if id(value) in owned else _owned(value)
            if found is not None:
                owned[id(value)] = found
    return list(owned.values())


def _owned(value: Any) -> Owned | None:
    import numpy
    import torch

    if any(value is one for one in _of_everybody()):
        # Exchanged as a whole, where a sampler may draw.
        return None
    restore: Callable[[], Any]
    if isinstance(value, torch.Generator):
        restore = partial(value.set_state, value.get_state())
        return Owned(restore, value.manual_seed, value.initial_seed() & (2**63 - 1))
    # The others do not say what they were seeded with. What each would draw next does.
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        restore = partial(value.setstate, value.getstate())
        return _restored(Owned(restore, value.seed, value.getrandbits(63)))
    if isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        restore = partial(setattr, bits, "state", bits.state)
        return _restored(Owned(restore, partial(_seed_bits, bits), int(value.integers(2**63))))
    if isinstance(value, numpy.random.RandomState):
        restore = partial(value.set_state, value.get_state(legacy=False))
        return _restored(Owned(restore, partial(_seed_state, value), int(value.randint(2**63, dtype=numpy.int64))))
    return None


@cache
def _of_everybody() -> tuple[Any, ...]:
    from numpy.random import rand
    from torch import default_generator

    return default_generator, rand.__self__, random.random.__self__  # type: ignore[attr-defined]


def _restored(owned: Owned) -> Owned:
    owned.restore()
    return owned


def _seed_bits(bits: Any, seed: int) -> None:
    bits.state = type(bits)(seed).state


def _seed_state(generator: Any, seed: int) -> None:
    import numpy

    kind = getattr(numpy.random, generator.get_state(legacy=False)["bit_generator"])
    generator.set_state(kind(seed).state)


@contextmanager
def generators_kept(sampler: Any) -> Iterator[None]:
    """While a sampler is only looked at: the generators that it owns stand afterwards where they stood before."""
    owned = generators_of(sampler)
    try:
        yield
    finally:
        for generator in owned:
            generator.restore()
