"""What travels: a script's classes, once, and arrays to write to, whatever a text says; and words for what cannot."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import numpy as np
import pytest

from tests.remote import components
from tests.support import run
from twinkle import Same, remote_class, remote_function
from twinkle.errors import PlanError, RemoteCallError
from twinkle.remote.pickling import Packed, packed

TEXTS = ["a text", "if __name__ == '__main__': ray.get(ObjectRef)", "ray.actor _object_ref_ _actor_handle_"]


def test_classes_of_a_script_are_defined_once_in_a_worker_and_keep_what_they_have_there() -> None:
    command = [sys.executable, "-m", "tests.remote.by_value"]
    told = json.loads(run(command).stdout.splitlines()[-1])
    # Steps of the module, objects made of the class, entries of the cache, calls of the base, marks of a row's class.
    assert told["seen"] == [[1, 1, 1, 1, 1], [2, 1, 2, 2, 2], [3, 2, 3, 3, 3], [4, 2, 4, 4, 4], 5, [5, 2, 5, 6, 5]]
    assert told["mapped"] == [[2, 2, 6, 5], [3, 2, 6, 5]]
    assert told["kept"] == [[2, 3], 5, 100]
    assert told["made"] == [200, 0]
    assert told["step"] == [6, 2, 6, 7, 6]
    assert told["written"] == [[1.0] * 3] * 3
    # What an error brings along is the driver's own too.
    is_own, is_row, value, raised, words = told["raised"]
    assert (is_own, is_row, value, raised) == (True, True, 5, 50)
    assert words.endswith("OwnError: Row(value=5)")


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [3, 100_000])
def test_what_a_text_says_decides_nothing(text: str, size: int) -> None:
    array = np.zeros(size)
    array.flags.writeable = False
    value = {"text": text, "array": array}
    assert packed(value).count(b"cloudpickle") == 0
    for opened in (Packed(value).opened(), Packed(value).opened()):
        opened["array"] += 1
        assert (opened["text"], opened["array"][0]) == (text, 1.0)
    assert Packed(value).head is not None
    assert array[0] == 0.0


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("size", [3, 100_000])
def test_rows_can_be_written_to_whatever_their_texts_say(size: int) -> None:
    writer: Any = components.Writer(remote_group="cpu2")  # type: ignore[call-arg]
    handle = writer.same([{"text": text, "x": np.ones(size)} for text in TEXTS])
    for _ in range(2):
        assert [row["x"][0] for row in writer.less_each(handle)] == [0.0] * 3
    gathered = handle.gather()
    gathered[0]["x"][0] = 7
    assert [row["x"][0] for row in handle] == [1.0] * 3


@pytest.mark.usefixtures("job")
def test_references_of_ray_travel_as_ray_has_them_and_beside_what_a_script_defines() -> None:
    import ray

    class Local:
        def __init__(self, held: Any) -> None:
            self.held = held

    reference = ray.put(5)
    for value in (reference, [Local(reference)], [reference, lambda: 1]):
        assert Packed(value).head is None
    assert packed([reference]).count(b"object_ref") > 0
    assert Packed([Local(1)]).opened()[0].held == 1


@remote_class()
class Locks:
    """Returns and takes what cannot travel."""

    def __init__(self, held: Any = None, **options: Any) -> None: ...

    @remote_function()
    def lock(self) -> Any:
        return {"locks": [1, threading.Lock()]}

    @remote_function(dispatch="slice_dp", collect="flatten")
    def locks(self, rows: Any) -> Any:
        return [threading.Lock() if row else row for row in rows]

    @remote_function(dispatch="slice_dp", collect="flatten")
    def same(self, rows: Any, config: Any = None) -> Any:
        return rows

    @remote_function()
    def taken(self, value: Any, *more: Any, option: Any = None) -> None: ...


@pytest.mark.usefixtures("job")
def test_what_cannot_travel_is_refused_by_its_place() -> None:
    make: Any = Locks
    locks, lock = make(remote_group="cpu2"), threading.Lock()
    why = "a lock cannot travel between processes: cannot pickle '_thread.lock' object"
    for asked, place in (
        (lambda: locks.taken(lock), r"Locks\.taken: value: "),
        (lambda: locks.taken(1, [lock]), r"Locks\.taken: argument 1\[0\]: "),
        (lambda: locks.taken(1, option={"deep": (1, lock)}), r"Locks\.taken: option\['deep'\]\[1\]: "),
        (lambda: locks.same([0, 1, {"a": lock}]), r"Locks\.same: rows\[2\]\['a'\]: "),
        (lambda: locks.same([0, 1], config=Same([lock, 1])), r"Locks\.same: config\[0\]: "),
        (lambda: make([lock], remote_group="cpu2"), r"Locks\.__init__: argument 0\[0\]: "),
        (lambda: make(lock=lock, remote_group="cpu2"), r"Locks\.__init__: lock: "),
    ):
        with pytest.raises(PlanError, match=f"^{place}{why}$"):
            asked()
    with pytest.raises(RemoteCallError, match=rf"(?m)Locks.lock: its result\['locks'\]\[1\]: {why}$"):
        locks.lock()
    with pytest.raises(RemoteCallError, match=rf"(?m)Locks.locks: its result 'rows'\[1\]: {why}$"):
        locks.locks([0, 1, 0, 1])
    with pytest.raises(RemoteCallError, match=rf"(?m)map: its result\[0\]: {why}$"):
        locks.same([1, 2]).map(lambda row: threading.Lock())
    assert locks.same([1, 2]).gather() == [1, 2]
