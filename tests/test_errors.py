"""Refusals: which class catches them, what they say, and that nothing of it is lost on the way to another process."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import LIMIT
from twinkle import errors
from twinkle.errors import AxisError, MeshError, RankError, TwinkleError

if TYPE_CHECKING:
    from collections.abc import Callable

BASES: dict[str, tuple[type[Exception], ...]] = {
    "TwinkleError": (Exception,),
    "MeshError": (TwinkleError, ValueError),
    "RankError": (MeshError, IndexError),
    "AxisError": (MeshError, KeyError),
    "PlanError": (TwinkleError, ValueError),
    "PlacementError": (TwinkleError, ValueError),
    "DeviceError": (TwinkleError, RuntimeError),
    "LauncherError": (TwinkleError, ValueError),
    "RemoteCallError": (TwinkleError, RuntimeError),
}
CLASSES: list[type[TwinkleError]] = [getattr(errors, name) for name in BASES]

every_class = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
every_way = pytest.mark.parametrize(
    "carry",
    [copy.copy, copy.deepcopy, *(lambda error, p=p: pickle.loads(pickle.dumps(error, p)) for p in range(6))],
    ids=["copy", "deepcopy", *(f"pickle-{p}" for p in range(6))],
)


class DerivedError(AxisError):
    """A refusal that somebody else derived."""


def raise_one(rank: int) -> None:
    raise RankError(f"rank {rank} is not among 0..7", rank=rank, world_size=8)


def test_the_module_offers_exactly_the_documented_classes() -> None:
    assert sorted(errors.__all__) == sorted(BASES)
    defined = {name for name, value in vars(errors).items() if getattr(value, "__module__", None) == errors.__name__}
    assert defined == set(BASES)


@pytest.mark.parametrize(("name", "bases"), BASES.items())
def test_a_refusal_is_caught_as_the_built_in_that_a_caller_expects(name: str, bases: tuple[type, ...]) -> None:
    assert getattr(errors, name).__bases__ == bases


@every_class
@given(message=st.text())
def test_the_text_is_the_message_and_nothing_else(kind: type[TwinkleError], message: str) -> None:
    assert str(kind(message)) == message
    assert str(kind(message, rank=1)) == message
    assert repr(kind(message, rank=1)) == f"{kind.__name__}({message!r})"


def test_a_refusal_without_words_is_empty() -> None:
    assert str(TwinkleError()) == ""
    assert TwinkleError().fields == {}


def test_fields_are_attributes() -> None:
    error = RankError("rank 9 is not among 0..7", rank=9, world_size=8)
    assert (error.rank, error.world_size) == (9, 8)
    assert error.fields == {"rank": 9, "world_size": 8}
    assert {"rank", "world_size"} <= set(dir(error))


def test_fields_may_have_any_name() -> None:
    error = TwinkleError("words", message="other words", self=1)
    assert str(error) == "words"
    assert (error.message, error.self) == ("other words", 1)


def test_a_field_that_is_not_there_is_an_ordinary_attribute_error() -> None:
    error = AxisError("no axis 'tq'", axis="tq")
    with pytest.raises(AttributeError, match="'AxisError' object has no attribute 'rank'") as refused:
        _ = error.rank
    assert refused.value.name == "rank"
    assert not hasattr(error, "rank")


def test_an_error_that_is_only_half_built_has_no_fields() -> None:
    assert not hasattr(TwinkleError.__new__(TwinkleError), "rank")


@every_way
@pytest.mark.parametrize("kind", [*CLASSES, DerivedError], ids=lambda kind: kind.__name__)
def test_class_message_fields_and_notes_survive(
    kind: type[TwinkleError], carry: Callable[[TwinkleError], TwinkleError]
) -> None:
    error = kind("it's 9, of 8", rank=9, axes=("dp", "tp"))
    error.add_note("while cutting a batch")
    again = carry(error)
    assert type(again) is kind
    assert str(again) == "it's 9, of 8"
    assert again.fields == {"rank": 9, "axes": ("dp", "tp")}
    assert again.axes == ("dp", "tp")
    assert again.__notes__ == ["while cutting a batch"]


def test_a_refusal_crosses_a_process_boundary() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(RankError) as refused:
        pool.submit(raise_one, 9).result(timeout=LIMIT)
    assert (refused.value.rank, refused.value.world_size) == (9, 8)


@every_way
def test_a_refusal_of_the_core_is_the_python_class_and_survives(
    carry: Callable[[TwinkleError], TwinkleError],
) -> None:
    from twinkle import DeviceMesh

    with pytest.raises(MeshError) as refused:
        DeviceMesh.from_sizes(world_size=16, fsdp_size=8, dp_size=1)
    error = refused.value
    assert error.fields
    again = carry(error)
    assert type(again) is type(error)
    assert (str(again), again.fields) == (str(error), error.fields)
