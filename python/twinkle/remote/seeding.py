"""Seeds: a constructor draws alike on all workers, methods as their data rank does, and a script on by itself.

Every component has generators of its own, which are exchanged for those of its process while it runs: another component
of the process, and in local mode the script, draw as if it were not there.
"""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from twinkle.dataloader.mersenne import exchanged, prepared_gaussian
from twinkle.dataloader.seeds import alone, hashed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

__all__ = ["Generators", "seed_loaded", "seed_of"]


def seed_of(seed: int, number: int, data_rank: int | None = None) -> int:
    """The seed of what component `number` of a job draws on one data rank, once it is built; None is its constructor's.

    No two components are built alike: two critics, say, are to differ.
    """
    return hashed(seed % 2**64, number, *([] if data_rank is None else [data_rank]))


def seed_loaded(seed: int | None, but: Collection[str] = ()) -> Collection[str]:
    """Seeds Python's generator, NumPy's and torch's (accelerators too) where they are loaded, and says which are.

    None seeds nothing; those named by `but` have been seeded before.
    """
    if seed is None:
        return but
    loaded = _loaded()
    for name in loaded:
        if name not in but:
            _LIBRARIES[name].seed(seed)
    return loaded


class Generators:
    """What one component draws from: the one of that number in a job with that seed, on one data rank."""

    def __init__(self, seed: int, number: int, data_rank: int) -> None:
        self._script = seed
        self._built, self._own = seed_of(seed, number), seed_of(seed, number, data_rank)
        self._kept: dict[str, Any] = {}
        self._outside: dict[str, Any] = {}
        self._seeded: Collection[str] = ()

    @contextmanager
    def building(self) -> Iterator[None]:
        """Inside, the constructor draws as it does on every worker; afterwards its methods as their data rank does."""
        with self._exchanged():
            try:
                seed_loaded(self._built)
                yield
            finally:
                self._seeded = seed_loaded(self._own)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Inside, draws go on where the last ones of the component ended."""
        with self._exchanged():
            self.freshen()
            yield

    def enter(self) -> None:
        """Puts the component's generators in the place of those outside, which `leave` puts back."""
        self._outside = _exchange(
            {name: self._kept[name] if name in self._kept else _LIBRARIES[name].fresh() for name in _loaded()}
        )

    def freshen(self) -> None:
        """Seeds what has been loaded since; for who has entered."""
        if len(self._seeded) < len(_LIBRARIES):
            self._seeded = seed_loaded(self._own, self._seeded)

    def leave(self) -> None:
        """Puts the generators outside back. The inverse of `enter`."""
        loaded = _loaded()
        self._kept = _exchange(self._outside)
        for name in loaded:
            if name not in self._outside:
                # Loaded meanwhile: as if it had been there when the job began.
                _LIBRARIES[name].put(_LIBRARIES[name].fresh())
                seed_loaded(self._script, [other for other in loaded if other != name])

    @contextmanager
    def _exchanged(self) -> Iterator[None]:
        self.enter()
        try:
            yield
        finally:
            self.leave()


class _Library(NamedTuple):
    """How the global generator of one library is seeded, and how its state is taken, put back, and begun."""

    seed: Callable[[int], Any]
    take: Callable[[], Any]
    put: Callable[[Any], Any]
    fresh: Callable[[], Any]


def _exchange(states: dict[str, Any]) -> dict[str, Any]:
    """Makes these the present states, and returns those that were."""
    # No thread that reads rows is in the middle of one, and would put back what it found.
    with alone():
        before = {name: _LIBRARIES[name].take() for name in _loaded()}
        for name, state in states.items():
            _LIBRARIES[name].put(state)
    return before


def _loaded() -> list[str]:
    return [name for name in _LIBRARIES if name in sys.modules]


def _seed_numpy(seed: int) -> None:
    sys.modules["numpy"].random.seed(seed % 2**32)


def _take_numpy() -> Any:
    # To read NumPy's state takes a hundred times as long as to exchange its generator, which drops a prepared Gaussian.
    bits = sys.modules["numpy"].random.get_bit_generator()
    return bits, prepared_gaussian(bits)


def _put_numpy(state: Any) -> None:
    bits, gaussian = state
    generators = sys.modules["numpy"].random
    generators.set_bit_generator(bits)
    if gaussian is not None:
        generators.set_state({**generators.get_state(legacy=False), "has_gauss": 1, "gauss": gaussian})


def _fresh_numpy() -> Any:
    return sys.modules["numpy"].random.MT19937(0), None


def _seed_torch(seed: int) -> None:
    sys.modules["torch"].manual_seed(seed)


def _take_torch() -> Any:
    # Generators of accelerators are not exchanged: the seed of the component stays with them.
    return sys.modules["torch"].default_generator.get_state()


def _put_torch(state: Any) -> None:
    sys.modules["torch"].default_generator.set_state(state)


def _take_python() -> Any:
    return exchanged().save()


def _put_python(state: Any) -> None:
    exchanged().restore(state)


_LIBRARIES = {
    "random": _Library(random.seed, _take_python, _put_python, _take_python),
    "numpy": _Library(_seed_numpy, _take_numpy, _put_numpy, _fresh_numpy),
    "torch": _Library(_seed_torch, _take_torch, _put_torch, _take_torch),
}
