"""Local mode in one process with several threads: one at a time is in a component, and the others are refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import twinkle
from tests.remote.refusing import words
from tests.remote.rolls import Rolling, draw
from tests.waiting import PATIENCE
from twinkle import Sharded, remote_class, remote_function
from twinkle.dataloader import DataLoader
from twinkle.errors import PlacementError, RemoteCallError
from twinkle.remote import share
from twinkle.remote.turns import turn
from twinkle.runtime import current


@remote_class()
class Held:
    """Runs what it is given, in its constructor or in a method."""

    def __init__(self, run: Callable[[], Any] | None = None) -> None:
        self.made = None if run is None else run()

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True)
    def during(self, rows: Any, run: Callable[[], Any] | None = None) -> Any:
        """Its rows by the share of the call, which it asks for when the other has run."""
        if run is not None:
            run()
        return [rows[at] for at in share().rows]

    @remote_function()
    def told(self, run: Callable[[], Any]) -> Any:
        return run()


# A type checker does not see what the decorator adds.
Holder: Any = Held


@pytest.fixture(autouse=True)
def job() -> Iterator[None]:
    twinkle.initialize("local", seed=7)
    yield
    twinkle.shutdown()


def elsewhere(call: Callable[[], Any]) -> Any:
    """What a call comes to in a thread of the script, which was there before."""
    return pool.submit(call).result(timeout=PATIENCE)


pool = ThreadPoolExecutor(1, thread_name_prefix="other")


@pytest.mark.parametrize("method", ["Held.during", "Rolls.all"])
def test_a_second_thread_is_refused_while_one_is_in_a_method(method: str) -> None:
    one, two, rolls = Holder(), Holder(), Rolling()
    call = {"Held.during": lambda: two.during([9]), "Rolls.all": rolls.all}[method]
    told: list[str] = []
    assert one.during([1, 2, 3], lambda: told.append(elsewhere(lambda: words(call)))) == [1, 2, 3]
    assert told == [
        f"RemoteCallError: {method}: thread other_0 calls {method} while thread MainThread calls Held.during: in local "
        "mode one thread of a process at a time makes components, calls them and maps rows, and threads that a method "
        "begins do none of these"
    ]
    # Afterwards it is anybody's turn.
    assert elsewhere(lambda: two.during([9])) == [9]
    assert one.during([1]) == [1]


def test_of_two_threads_at_a_barrier_none_has_what_is_the_other_s() -> None:
    barrier = threading.Barrier(2)
    parts = [Holder(), Holder()]

    def called(number: int) -> bool:
        rows = list(range(number, number + 50))
        barrier.wait(PATIENCE)
        try:
            return bool(parts[number].during(rows) == rows)
        except RemoteCallError as error:
            return "while" in str(error)

    before = current.mode, current.positions
    with ThreadPoolExecutor(2) as threads:
        for _ in range(20):
            assert all(threads.map(called, range(2), timeout=PATIENCE))
    assert (current.mode, current.positions) == before
    for number, part in enumerate(parts):
        assert part.during([number] * 3) == [number] * 3


def test_constructors_and_maps_take_turns_with_methods() -> None:
    one, handle = Holder(), Rolling().kept([0, 0])
    told: list[Any] = []

    def tried() -> None:
        told.append(words(Holder))
        told.append(words(lambda: handle.map(abs)))
        # To read rows runs nobody's code.
        told.append(handle.gather())

    Holder(lambda: elsewhere(tried))
    one.told(lambda: elsewhere(tried))
    for at, doing in enumerate(("makes Held", "calls Held.told")):
        made, mapped, rows = told[3 * at : 3 * at + 3]
        assert f"Held: thread other_0 makes Held while thread MainThread {doing}: " in made
        assert f"map: thread other_0 maps rows of Rolls.kept (handle 0) while thread MainThread {doing}: " in mapped
        assert rows == [0, 0]
    handle.map(lambda _: told.append(elsewhere(lambda: words(lambda: one.during([1])))))
    assert "thread other_0 calls Held.during while thread MainThread maps rows of Rolls.kept" in told[-1]


def test_who_is_refused_leaves_generators_and_the_share_as_they_were() -> None:
    def seen(*, refused: bool) -> Any:
        twinkle.shutdown()
        twinkle.initialize("local", seed=7)
        holder, other = Holder(), Rolling()

        def drawn() -> Any:
            assert not refused or "while thread" in elsewhere(lambda: words(other.all))
            return draw()

        return holder.told(drawn), other.all(), draw()

    assert seen(refused=True) == seen(refused=False)


def test_a_thread_that_a_method_begins_is_refused_too_and_nobody_waits_for_ever() -> None:
    one = Holder()

    def begun() -> str:
        with ThreadPoolExecutor(1, thread_name_prefix="own") as threads:
            return threads.submit(lambda: words(lambda: one.during([1]))).result(timeout=PATIENCE)

    (told,) = one.told(begun)
    assert "Held.during: thread own_0 calls Held.during while thread MainThread calls Held.told: " in told


def test_a_thread_that_a_method_begins_reads_plain_batches_and_ends_no_job() -> None:
    one = Holder()

    def read() -> Any:
        with pytest.raises(PlacementError, match="a worker ends no job"):
            twinkle.shutdown()
        return [type(batch) for batch in DataLoader(range(2), batch_size=2, collate_fn=list)]

    assert one.told(lambda: elsewhere(read)) == [[list]]
    assert elsewhere(lambda: [type(batch) for batch in DataLoader(range(2), batch_size=2, collate_fn=list)]) == [
        Sharded
    ]


def test_a_method_that_fails_gives_its_turn_back() -> None:
    def fails() -> None:
        raise ValueError("nothing is done here")

    with pytest.raises(ValueError, match="nothing is done"):
        Holder().told(fails)
    assert elsewhere(lambda: Holder().during([1])) == [1]
    assert (current.thread, current.mode) == (None, "local")


def test_a_process_that_is_forked_meanwhile_has_its_own_turn() -> None:
    def forked() -> int:
        child = os.fork()
        if child == 0:
            with turn("f", "calls f"):
                os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert Holder().told(lambda: elsewhere(forked)) == [7]
