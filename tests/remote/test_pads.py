"""Pads on a real local Ray: each is an object of its own, and masked wherever its row has the declared key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from tests.remote import components
from tests.remote.components import Pair, Sample
from twinkle import DeviceMesh
from twinkle.errors import PlanError, RemoteCallError

# A type checker does not see what the decorator adds.
Writer: Any = components.Writer


@pytest.fixture
def two(job: None) -> Any:
    return Writer(device_mesh=DeviceMesh.from_sizes(dp_size=2), remote_group="cpu2")


@contextmanager
def refused(words: str) -> Iterator[None]:
    """The RemoteCallError of a PlanError that a worker raised."""
    with pytest.raises(RemoteCallError, match=words) as caught:
        yield
    assert isinstance(caught.value.cause, PlanError)


def test_what_is_written_to_a_pad_leaves_its_row_alone(two: Any) -> None:
    given = [{"ids": [at], "labels": [at, at]} for at in range(3)]
    for whole in (given, two.same(given + given).select([0, 1, 2])):
        found = two.padded(whole)
        assert found[1] == [{"ids": [2], "labels": [2, 2]}, {"ids": [2, 0], "labels": [-100, -100]}]


@pytest.mark.parametrize(
    ("make", "masked"),
    [
        (lambda at: Sample([at], [at, at]), lambda at: Sample([at], [-100, -100])),
        (lambda at: Pair([at], np.array([at])), lambda at: Pair([at], np.array([-100]))),
        (lambda at: {"x": {"labels": [[at]], "y": at}}, lambda at: {"x": {"labels": [[-100]], "y": at}}),
        (lambda at: {"x": [Sample(at, at), {"labels": at}]}, lambda at: {"x": [Sample(at, -100), {"labels": -100}]}),
    ],
)
def test_a_pad_is_masked_wherever_its_row_has_the_key(two: Any, make: Any, masked: Any) -> None:
    given = [make(at) for at in range(3)]
    for whole in (given, two.same(given + given).select([0, 1, 2])):
        assert two.padded(whole)[1] == [make(2), masked(2)]


@pytest.mark.parametrize(
    "given",
    [
        [{"ids": [at]} for at in range(3)],
        [[at] for at in range(3)],
        [{"labels": 1}, {"labels": 1}, {"label": 1}],
        np.ones((3, 2)),
        torch.ones(3, 2),
    ],
)
def test_a_pad_that_no_key_masks_is_refused(two: Any, given: Any) -> None:
    for whole in (given, two.same(given)):
        with refused(r"Writer.padded: loss_mask='labels' is not in pad 0 of this worker"):
            two.padded(whole)
    assert two.padded(given[:2]) is not None


def test_a_pad_is_masked_by_the_argument_that_has_the_key(two: Any) -> None:
    advantages = [0.5, 1.5, 2.5]
    given = [{"labels": [at]} for at in range(3)]
    assert two.padded_two(given, advantages)[1] == ([{"labels": [2]}, {"labels": [-100]}], [2.5, 2.5])
    assert two.padded_two(two.same(advantages), given)[1][1] == [{"labels": [2]}, {"labels": [-100]}]
    columns = {"labels": np.array([1, 2, 3]), "ids": [1, 2, 3]}
    found = two.padded_two(columns, advantages)[1][0]
    assert (found["labels"].tolist(), found["ids"]) == ([3, -100], [3, 3])
    record = two.padded_two(Pair([1, 2, 3], np.array([1, 2, 3])), advantages)[1][0]
    assert (type(record), record.ids, record.labels.tolist()) == (Pair, [3, 3], [3, -100])
