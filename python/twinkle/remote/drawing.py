"""What the function of a `map` draws: numbers of its own, the same on Ray and in local mode.

A function runs where its rows are: on some workers, or some ranks, and not on others, whose scripts go on alike. Each
piece of the rows has a seed of its own, from that of the job, the number of the `map` in the job, and the number of the
piece; all who hold a piece draw alike.
"""

from __future__ import annotations

import random
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from twinkle.dataloader.seeds import hashed
from twinkle.remote.seeding import Generators
from twinkle.remote.session import current_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["drawing", "draws_of_map", "seeds_of_map"]

#: Keeps the seeds apart from those of components, which are numbered from 0.
_MAPS = 2**64 - 1


def draws_of_map(*, launched: bool) -> Callable[[int], AbstractContextManager[None]]:
    """From which generators the function of the `map` that begins now draws, by the number of the piece.

    Under a launcher every rank calls it, and where the job has no seed the script's `random` gives one and stays as it
    is. One process without a seed draws as its script does.
    """
    session = current_session()
    if session is None or (session.seed is None and not launched):
        return lambda piece: nullcontext()
    script = _told_by_script() if session.seed is None else session.seed
    seeds = seeds_of_map(script)
    return lambda piece: drawing(script, seeds(piece))


def seeds_of_map(script: int) -> Callable[[int], int]:
    """The seed of each piece in the `map` that begins now, in a job with this seed."""
    session = current_session()
    number = 0 if session is None else session.next_map()
    return lambda piece: hashed(script % 2**64, _MAPS, number, piece)


@contextmanager
def drawing(script: int, seed: int) -> Iterator[None]:
    """Inside, the generators are exchanged for others with this seed; those of accelerators stay a component's."""
    generators = Generators(script, 0, 0)
    generators.enter()
    try:
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed % 2**32)
        if "torch" in sys.modules:
            sys.modules["torch"].default_generator.manual_seed(seed)
        yield
    finally:
        generators.leave()


def _told_by_script() -> int:
    """A number by where the script's generator stands, which it does afterwards as before."""
    state = random.getstate()
    try:
        return random.getrandbits(63)
    finally:
        random.setstate(state)
