"""The random numbers of a loader: worlds of their own, and what is outside never notices."""

from __future__ import annotations

import random
import struct
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import MT19937, PCG64

from twinkle.dataloader import mersenne
from twinkle.dataloader.mersenne import ByBytes, ByTuple, exchanged, prepared_gaussian
from twinkle.dataloader.seeds import Randomness, hashed, hashed_after, sow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

get_bit_generator, set_bit_generator = np.random.get_bit_generator, np.random.set_bit_generator  # type: ignore[attr-defined]

#: Every kind of draw that keeps something beside the state: pairs of Gaussians, single words, whole blocks.
DRAWS: dict[str, Callable[[], Any]] = {
    "random": random.random,
    "gauss": lambda: random.gauss(0, 1),
    "shuffle": lambda: random.sample(range(100), 10),
    "randn": np.random.randn,
    "uint": lambda: int(np.random.randint(1 << 30)),
    "normal block": lambda: np.random.normal(size=301).sum(),
    "torch randn": lambda: torch.randn(1).item(),
    "torch block": lambda: torch.rand(700).sum().item(),
}
draws = st.lists(st.sampled_from(sorted(DRAWS)), max_size=6)


def drawn(names: list[str]) -> list[Any]:
    return [DRAWS[name]() for name in names]


@pytest.fixture(autouse=True)
def _generators_are_given_back() -> Iterator[None]:
    bits = get_bit_generator()
    with Randomness():
        yield
    assert get_bit_generator() is bits


@given(seed=st.integers(0, 2**62), parts=st.lists(st.tuples(draws, draws), max_size=4))
def test_what_is_outside_draws_as_if_nothing_had_been_inside(
    seed: int, parts: list[tuple[list[str], list[str]]]
) -> None:
    sow(seed)
    expected = [drawn(outside) for outside, _ in parts]
    sow(seed)
    world, found = Randomness(), []
    for number, (outside, inside) in enumerate(parts):
        found.append(drawn(outside))
        with world:
            sow(number)
            drawn(inside)
    assert found == expected


@given(seed=st.integers(0, 2**62), parts=st.lists(st.tuples(draws, draws), max_size=4))
def test_a_seeded_world_goes_on_where_it_stopped(seed: int, parts: list[tuple[list[str], list[str]]]) -> None:
    sow(seed)
    expected = [drawn(inside) for _, inside in parts]
    world, found = Randomness(seed), []
    for outside, inside in parts:
        drawn(outside)
        with world:
            found.append(drawn(inside))
    assert found == expected


def test_a_world_is_left_by_an_error_too() -> None:
    random.seed(3)
    before = random.getstate()
    with pytest.raises(ZeroDivisionError), Randomness(4):
        random.random() / 0
    assert random.getstate() == before


@pytest.mark.parametrize("bits", [PCG64, MT19937])
def test_any_bit_generator_may_be_outside(bits: Any) -> None:
    def draws_of(*, between: bool) -> list[float]:
        set_bit_generator(bits(5))
        first = np.random.randn()
        if between:
            with Randomness():
                sow(1)
                np.random.randn()
        return [first, np.random.randn(), np.random.randn(), np.random.rand()]

    before = get_bit_generator()
    try:
        assert draws_of(between=True) == draws_of(between=False)
    finally:
        set_bit_generator(before)


@given(seed=st.integers(0, 2**62), count=st.integers(0, 1300))
def test_copied_bytes_are_the_same_state_as_the_tuple(seed: int, count: int) -> None:
    one, other = random.Random(seed), random.Random(seed + 1)
    for _ in range(count):
        one.random()
    one.gauss(0, 1)
    ByBytes(other).restore(ByBytes(one).save())
    assert other.getstate() == one.getstate()
    assert [other.gauss(0, 1), other.random()] == [one.gauss(0, 1), one.random()]


def test_this_interpreter_is_read_by_bytes_and_another_by_the_tuple(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(exchanged(), ByBytes)
    for name, value in (("implementation", type("Other", (), {"name": "pypy"})), ("_is_gil_enabled", lambda: False)):
        with monkeypatch.context() as patch:
            patch.setattr(sys, name, value, raising=False)
            assert isinstance(exchanged.__wrapped__(), ByTuple)
    # A state that begins elsewhere than it is looked for.
    with monkeypatch.context() as patch:
        patch.setattr(mersenne, "_STATE", struct.Struct("=624Ii"))
        assert isinstance(exchanged.__wrapped__(), ByTuple)


@pytest.mark.parametrize("open_", [True, False])
@pytest.mark.parametrize("skipped", [0, 1, 623, 624, 1000])
def test_a_prepared_gaussian_is_found_and_no_word_is_spent_on_it(
    open_: bool, skipped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mersenne._position_lies_open()
    monkeypatch.setattr(mersenne, "_position_lies_open", lambda: open_)
    bits = get_bit_generator()
    for pairs_begun in (0, 1):
        np.random.seed(7)
        np.random.randint(1 << 30, size=skipped)
        expected = np.random.randn(2)[1] if pairs_begun else None
        np.random.seed(7)
        np.random.randint(1 << 30, size=skipped)
        np.random.randn(pairs_begun)
        state = repr(bits.state)
        assert prepared_gaussian(bits) == expected
        assert repr(bits.state) == state


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5))
def test_a_hash_begun_once_is_the_hash_of_all_numbers(numbers: list[int]) -> None:
    assert hashed(*numbers) == hashed_after(*numbers[:-1])(numbers[-1])
    assert 0 <= hashed(*numbers) < 2**63
    assert hashed(*numbers) != hashed(*numbers, 0)
