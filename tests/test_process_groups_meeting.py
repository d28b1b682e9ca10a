"""Meetings of members, with threads in place of processes and a store in memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs.support import when_these_have_come
from tests.waiting import PATIENCE
from twinkle.errors import DeviceError
from twinkle.process_groups.meeting import alone, meet

if TYPE_CHECKING:
    from collections.abc import Sequence

LONG = timedelta(seconds=PATIENCE)
SHORT = timedelta(milliseconds=300)


def met(
    store: Any, members: Sequence[int], coming: Sequence[int], terms: dict[int, str], timeout: timedelta
) -> dict[int, str]:
    """What each member that comes is told: the name of the meeting, or the words of the refusal."""

    def told(index: int) -> str:
        try:
            return meet(store, members, index, terms.get(index, "gloo"), timeout)
        except DeviceError as error:
            return f"refused: {error}"

    with ThreadPoolExecutor(len(members)) as pool:
        return dict(zip(coming, pool.map(told, coming), strict=True))


@settings(max_examples=20)
@given(st.lists(st.integers(0, 2**40), min_size=2, max_size=5, unique=True), st.data())
def test_members_meet_in_any_order_of_arrival_and_each_meeting_has_a_name_of_its_own(
    members: list[int], data: st.DataObject
) -> None:
    store = dist.HashStore()
    names = []
    for _ in range(3):
        coming = data.draw(st.permutations(range(len(members))))
        told = met(store, members, coming, {}, LONG)
        assert len(set(told.values())) == 1
        names.append(told[0])
    assert len(set(names)) == 3
    assert not any(name.startswith("refused") for name in names)


def test_other_members_and_other_orders_are_other_meetings() -> None:
    store = dist.HashStore()
    names = [met(store, members, (0, 1), {}, LONG)[0] for members in ((0, 1), (1, 0), (0, 2), range(2, 4))]
    assert len(set(names)) == 4


def test_the_absent_are_named_to_all_who_came_and_may_come_to_the_next_meeting() -> None:
    store = dist.HashStore()
    for _ in range(2):
        with when_these_have_come(2):
            told = met(store, (4, 7, 9), (0, 2), {}, SHORT)
        assert len(set(told.values())) == 1
        assert "no process group of ranks 4, 7, 9: rank " in told[0]
        assert "has waited 0.3 s for rank 7. Every member makes the same groups in the same order" in told[0]
    assert not met(store, (4, 7, 9), (0, 1, 2), {}, LONG)[1].startswith("refused")


def test_many_absent_are_counted_not_listed() -> None:
    told = met(dist.HashStore(), range(1000), (0,), {}, SHORT)
    assert "no process group of 1000 ranks (0, 1, 2, 3, 4, 5, 6, 7, ...)" in told[0]
    assert len(told[0]) < 300


def test_members_that_ask_for_something_else_are_all_told_at_once_and_may_ask_again() -> None:
    store = dist.HashStore()
    told = met(store, (0, 1, 2), (0, 1, 2), {2: "nccl"}, LONG)
    assert len(set(told.values())) == 1
    assert "asks for nccl, another member for gloo" in told[0] or "asks for gloo, another member for nccl" in told[0]
    assert not met(store, (0, 1, 2), (0, 1, 2), {}, LONG)[1].startswith("refused")


def test_a_member_that_comes_after_others_gave_up_is_told_so() -> None:
    store = dist.HashStore()
    met(store, (0, 1), (0,), {}, SHORT)
    assert "rank 1 has waited 0.3 s for rank 0" in met(store, (0, 1), (1,), {}, SHORT)[1]


def test_a_group_of_one_meets_nobody_and_has_a_name_of_its_own() -> None:
    assert alone(range(3, 4)) != alone(range(3, 4))


def test_the_refusal_carries_the_members() -> None:
    with pytest.raises(DeviceError) as refused:
        meet(dist.HashStore(), range(2), 0, "gloo", SHORT)
    assert refused.value.members == [0, 1]
