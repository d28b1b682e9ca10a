"""Samplers with random generators of their own: every epoch its order, after any restart the same, nothing used up."""

from __future__ import annotations

import json
import pickle
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tests.loading import epoch_of, flat, loader_of, state_after
from twinkle.dataloader import DataLoader
from twinkle.dataloader.owned import generators_kept, generators_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Shuffled:
    """Rows in an order that a generator of its own draws."""

    def __init__(self, generator: Any, shuffled: Callable[[Any, int], list[int]]) -> None:
        self.own, self.shuffled = generator, shuffled

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[int]:
        return iter(self.shuffled(self.own, 8))


def of_python(generator: random.Random, rows: int) -> list[int]:
    return generator.sample(range(rows), rows)


def of_numpy(generator: Any, rows: int) -> list[int]:
    return [int(row) for row in generator.permutation(rows)]


def of_torch(generator: torch.Generator, rows: int) -> list[int]:
    return torch.randperm(rows, generator=generator).tolist()


KINDS: dict[str, tuple[Callable[[int], Any], Callable[[Any, int], list[int]]]] = {
    "random.Random": (random.Random, of_python),
    "numpy Generator": (np.random.default_rng, of_numpy),
    "numpy Generator of Philox": (lambda seed: np.random.Generator(np.random.Philox(seed)), of_numpy),
    "numpy RandomState": (np.random.RandomState, of_numpy),
    "numpy RandomState of PCG64": (lambda seed: np.random.RandomState(np.random.PCG64(seed)), of_numpy),
    "torch Generator": (lambda seed: torch.Generator().manual_seed(seed), of_torch),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def sampler_of(kind: str, seed: int = 0) -> Shuffled:
    made, shuffled = KINDS[kind]
    return Shuffled(made(seed), shuffled)


@each_kind
def test_every_epoch_has_its_order_and_a_resumed_run_finds_it(kind: str) -> None:
    def options(seed: int = 0) -> dict[str, Any]:
        return {"sampler": sampler_of(kind, seed), "batch_size": 4}

    loader = loader_of(None, 0, range(8), **options())
    epochs = [list(loader) for _ in range(3)]
    assert flat(epochs[0]) == list(sampler_of(kind))
    assert len({tuple(flat(epoch)) for epoch in epochs}) == 3
    state = json.loads(json.dumps(state_after(None, range(8), 3, **options())))
    assert (state["epoch"], state["next_row"]) == (1, 4)
    assert epoch_of(None, 0, range(8), state, **options()) == epochs[1][1:]
    skipped = loader_of(None, 0, range(8), **options())
    skipped.skip_consumed_samples(20)
    assert list(skipped) == epochs[2][1:]
    loader.set_epoch(1)
    assert list(loader) == epochs[1]
    other = loader_of(None, 0, range(8), **options(1))
    assert [list(other) for _ in range(3)] != epochs


@each_kind
def test_a_loader_leaves_a_generator_as_it_was(kind: str) -> None:
    used, plain = sampler_of(kind), sampler_of(kind)
    list(plain), list(used)
    loader = DataLoader(range(8), batch_size=4, sampler=used, collate_fn=list)
    for _ in range(2):
        assert len(list(loader)) == 2
    assert [list(used) for _ in range(2)] == [list(plain) for _ in range(2)]


@each_kind
def test_looking_at_a_sampler_draws_nothing(kind: str) -> None:
    sampler = sampler_of(kind)
    with generators_kept(sampler):
        looked = list(sampler)
    assert list(sampler) == looked


def test_what_nobody_seeds_is_left_alone() -> None:
    class Holder:
        def __init__(self, *owned: Any) -> None:
            self.owned, self.first, self.second = owned, *owned[:2]

    system = random.SystemRandom()
    everywhere: list[Any] = [torch.default_generator, np.random.mtrand._rand, random.random.__self__]  # type: ignore[attr-defined]
    for one in (system, *everywhere):
        assert generators_of(Holder(one, 3)) == []
    assert generators_of(Holder(np.arange(3), [random.Random(1)])) == []
    own = random.Random(1)
    assert len(generators_of(Holder(own, own))) == 1


def test_a_sampler_stays_behind_when_its_loader_travels() -> None:
    loader = DataLoader(range(8), batch_size=4, sampler=sampler_of("random.Random"), collate_fn=list)
    first = list(loader)
    loader.set_epoch(0)
    assert list(pickle.loads(pickle.dumps(loader))) == first
