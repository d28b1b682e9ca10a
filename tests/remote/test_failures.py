"""What goes wrong on a real local Ray: the first failure ends a call at once, and nothing hangs or stays behind."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.remote import components
from tests.remote.listening import ended
from tests.support import run
from tests.waiting import PATIENCE, becomes
from twinkle import DeviceMesh, remote_class, remote_function
from twinkle.errors import PlanError, RemoteCallError
from twinkle.remote.failing import UnsendableError, sendable, told_of
from twinkle.remote.waiting import Deadline, results_of

# A type checker does not see what the decorator adds.
Echo: Any = components.Echo

pytestmark = pytest.mark.usefixtures("job")


def echo(group: str, **sizes: int) -> Any:
    return Echo(device_mesh=DeviceMesh.from_axes(sizes), remote_group=group)


def test_the_first_failure_wins_while_its_peers_still_work(tmp_path: Path) -> None:  # D57
    component = echo("cpu4", dp=4)
    component.same(list(range(8)))
    with pytest.raises(RemoteCallError, match=r"Echo.fails_on failed on worker 2") as caught:
        component.fails_on(list(range(8)), 2, tmp_path)
    assert not list(tmp_path.glob("done *"))
    error = caught.value
    assert "dp=2" in str(error)
    assert "rows 4 to 5" in str(error)
    assert "ValueError: this shard fails" in str(error)
    assert (error.method, error.worker, error.coordinates, error.rows) == ("Echo.fails_on", 2, {"dp": 2}, (4, 6))
    assert error.node == "127.0.0.1"
    assert isinstance(error.cause, ValueError)
    (tmp_path / "go").touch()
    assert component.pulled([1, 2, 3, 4]) == [1, 2, 3, 4]
    assert {path.name for path in tmp_path.glob("done *")} == {"done 0", "done 1", "done 3"}


def test_one_deadline_holds_for_the_whole_call(tmp_path: Path) -> None:  # D59
    component = echo("cpu2", dp=2)
    component.identity()
    with pytest.raises(RemoteCallError, match=r"not done after 0.5 s: workers 0, 1 were still at it") as caught:
        component.too_slow(tmp_path / "go")
    (tmp_path / "go").touch()
    assert caught.value.workers == [0, 1]


def test_what_is_done_by_the_time_the_late_are_named_is_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def late(references: Any, timeout: float | None = None) -> Any:
        if timeout is not None:
            raise ray.exceptions.GetTimeoutError
        return get(references)

    get, references = ray.get, [ray.put(at) for at in range(3)]
    monkeypatch.setattr(ray, "get", late)
    assert results_of(references, Deadline(0.5), "Echo.same", lambda at: {"worker": at}) == [0, 1, 2]


def test_a_constructor_that_fails_says_where() -> None:
    @remote_class()
    class Broken:
        def __init__(self) -> None:
            raise KeyError("no such file")

        @remote_function()
        def anything(self) -> None: ...

    broken: Any = Broken
    with pytest.raises(RemoteCallError, match=r"Broken.__init__ failed on worker [01].*no such file"):
        broken(remote_group="cpu2")


@pytest.mark.parametrize(
    ("kind", "words"), [("odd", "OddError: odd 1 2"), ("code", "CodeError: code 5"), ("locked", "LockedError: held")]
)
def test_an_error_that_cannot_be_sent_keeps_its_type_and_words(kind: str, words: str) -> None:
    writer: Any = components.Writer(remote_group="cpu2")  # type: ignore[call-arg]
    with pytest.raises(RemoteCallError) as caught:
        writer.raises(kind)
    assert str(caught.value).endswith(f"): {words}")
    cause = caught.value.cause
    assert isinstance(cause, UnsendableError)
    assert f"{type(cause).__name__}: {cause.kind}" not in str(caught.value)
    assert "in raises" in cause.trace
    handle = writer.same([1, 2])
    with pytest.raises(RemoteCallError, match=r"(?m)map failed on worker [01] .*: OddError: odd 1 2$"):
        handle.map(_odd)


def test_a_method_that_would_end_its_process_fails_and_the_process_stays() -> None:
    writer: Any = components.Writer(remote_group="cpu2")  # type: ignore[call-arg]
    before = writer.pid()
    with pytest.raises(RemoteCallError, match=r"(?m)raises failed on worker [01] .*: SystemExit: 3$") as caught:
        writer.raises("exit")
    assert "in raises" in caught.value.cause.trace
    assert writer.pid() == before


def _odd(_: Any) -> None:
    raise components.OddError(1, 2)


@remote_class()
class Deep:
    """Fails deep in its own code, and keeps what says whether its objects live."""

    living: list[Any] = []  # noqa: RUF012 - the workers share it

    def __init__(self, worker: int | None = None) -> None:
        Deep.living.append(weakref.ref(self))
        if worker == self.device_mesh.data_rank:  # type: ignore[attr-defined]
            self._raised({})

    @remote_function(collect="none")
    def count(self) -> int:
        gc.collect()
        return sum(one() is not None for one in Deep.living)

    @remote_function()
    def train(self, worker: int | None = None) -> None:
        if worker in (None, self.device_mesh.data_rank):  # type: ignore[attr-defined]
            self._raised({})

    @remote_function(on_error="kill_group")
    def strict(self) -> None:
        self._raised({})

    @remote_function()
    def long(self) -> None:
        raise ValueError("x" * 100_000)

    def _raised(self, found: dict[str, Any]) -> Any:
        return found["missing"]


def test_an_error_says_once_where_in_the_code_of_the_worker_it_was_raised() -> None:
    make: Any = Deep
    deep = make(remote_group="cpu2")
    for asked in (lambda: deep.train(1), lambda: make(1, remote_group="cpu2")):
        with pytest.raises(RemoteCallError, match=r"failed on worker 1 .*: KeyError: 'missing'") as caught:
            asked()
        shown = "".join(traceback.format_exception(caught.value))
        assert shown.count('return found["missing"]') == 1
        assert "test_failures.py" in shown.partition("in _raised")[0].splitlines()[-1]
        assert "\x1b" not in shown
        assert caught.value.__notes__[0].startswith("on worker 1:\n")
        assert pickle.loads(pickle.dumps(caught.value)).__notes__ == caught.value.__notes__
    writer: Any = components.Writer(remote_group="cpu2")  # type: ignore[call-arg]
    with pytest.raises(RemoteCallError) as caught:
        writer.raises("locked")
    assert "".join(traceback.format_exception(caught.value)).count("raise ERRORS[kind]()") == 1


def test_a_message_repeats_some_of_a_long_error_and_its_cause_has_all() -> None:
    deep: Any = Deep(remote_group="cpu2")  # type: ignore[call-arg]
    with pytest.raises(
        RemoteCallError, match=r"ValueError: x{900,1000} \.\.\. \(100012 characters\) \.\.\. x{1000}"
    ) as caught:
        deep.long()
    assert len(str(caught.value)) < 2_500
    assert sum(map(len, caught.value.__notes__)) < 20_000
    assert str(caught.value.cause) == "x" * 100_000


def test_the_error_of_an_ended_group_says_where_as_well(local_ray: None) -> None:
    import twinkle

    twinkle.shutdown()
    groups = [{"name": f"cpu{size}", "ranks": size, "device_type": "cpu"} for size in (1, 2, 4, 8)]
    twinkle.initialize("ray", ncpu_proc_per_node=15, groups=groups)
    deep: Any = Deep(remote_group="cpu1")  # type: ignore[call-arg]
    with pytest.raises(RemoteCallError, match="ended group 'cpu1'") as caught:
        deep.strict()
    assert caught.value.__notes__[0].count('return found["missing"]') == 1


def test_a_call_names_all_workers_that_have_failed_by_then() -> None:
    import ray

    @ray.remote(num_cpus=0)
    def fails(at: int) -> None:
        raise ValueError(f"number {at}")

    @ray.remote(num_cpus=0)
    def works() -> int:
        return 1

    calls = [works.remote(), fails.remote(1), *map(fails.remote, range(2, 12))]
    ray.wait(calls, num_returns=len(calls))
    with pytest.raises(RemoteCallError, match=r"(?m)failed on worker 1 .*: ValueError: number 1$") as caught:
        results_of(calls, Deadline(None), "Kind.method", lambda at: {"worker": at, "node": "here"})
    note = caught.value.__notes__[1].splitlines()
    assert note[0] == "failed as well so far: worker 2: ValueError: number 2"
    assert note[-1] == "... (10)"
    assert len(note) == 9


class MuteError(Exception):
    """Its words cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_whose_words_fail_is_told_by_its_type_and_by_where_it_was_raised() -> None:
    with pytest.raises(MuteError) as caught:
        raise MuteError
    assert told_of(caught.value) == "MuteError: "
    sent = sendable(caught.value)
    assert isinstance(sent, UnsendableError)
    assert (sent.kind, sent.text) == ("MuteError", "")
    assert "raise MuteError" in sent.__notes__[0]


def test_errors_that_come_when_the_call_has_ended_are_not_printed() -> None:
    done = run([sys.executable, "-m", "tests.remote.failing"])
    assert done.stdout.count("failed on worker ") == 3
    assert "no such key" not in done.stderr


def test_a_constructor_that_fails_leaves_no_object_on_any_worker() -> None:
    make: Any = Deep
    deep = make(remote_group="cpu2")
    before = deep.count()
    for _ in range(3):
        with pytest.raises(RemoteCallError, match=r"Deep.__init__ failed on worker 1"):
            make(1, remote_group="cpu2")
    assert deep.count() == before
    other = make(remote_group="cpu2")
    assert deep.count() == [count + 1 for count in before]
    del other


def test_an_interrupted_driver_gets_its_prompt_back(interrupted_at: Callable[..., None], tmp_path: Path) -> None:
    component = echo("cpu2", dp=2)
    interrupted_at(tmp_path / "begun 0", tmp_path / "begun 1")
    with pytest.raises(KeyboardInterrupt):
        component.fails_on([1, 2], 7, tmp_path)
    (tmp_path / "go").touch()
    assert component.pulled([1, 2]) == [1, 2]


def test_calls_of_several_threads_keep_their_results_and_one_order_whatever_fails() -> None:
    component = echo("cpu8", dp=8)
    seen: dict[str, list[Any]] = {"a": [], "b": []}
    before = sys.getswitchinterval()

    def calls(name: str) -> None:
        for at in range(20):
            word = f"{name}{at}"
            try:
                component.note(word, fails=name == "a" and at % 3 == 0)
                seen[name].append(component.pulled([f"{word} {row}" for row in range(8)]))
            except RemoteCallError as error:
                seen[name].append(str(error.cause))

    threads = [threading.Thread(target=calls, args=(name,)) for name in seen]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    for name, found in seen.items():
        for at, one in enumerate(found):
            failed = name == "a" and at % 3 == 0
            assert one == (f"a{at}" if failed else [f"{name}{at} {row}" for row in range(8)])
    told = component.note("end")
    assert all(one == told[0] for one in told)
    for name in seen:
        assert [word for word in told[0] if word.startswith(name)] == [f"{name}{at}" for at in range(20)]


def test_a_producer_that_failed_is_named_by_its_own_call() -> None:
    component = echo("cpu2", dp=2)
    handle = component.same([1, 2])
    with pytest.raises(RemoteCallError, match="map failed"):
        handle.map(lambda row: row.missing)


def test_a_killed_worker_ends_its_call_and_leaves_the_rows_of_the_others() -> None:
    component = echo("cpu8", dp=8)
    handle = component.same(list(range(16)))
    with pytest.raises(RemoteCallError, match=r"Echo.dies failed on worker 3"):
        component.dies(3)
    with pytest.raises(RemoteCallError, match="failed on worker 3"):
        component.same(list(range(16)))
    assert handle[0] == 0
    assert handle[-1] == 15
    other = echo("cpu2", dp=2)
    assert other.pulled(handle.select([0, 1, 14, 15])) == [0, 1, 14, 15]
    with pytest.raises(RemoteCallError, match=r"cutting rows for Echo.pulled failed on worker 3 \(node .*; shard 3\)"):
        other.pulled([handle, handle[:7]])
    with pytest.raises(RemoteCallError):
        handle.gather()


def test_reading_rows_of_a_worker_that_died_or_does_not_answer_is_refused(tmp_path: Path) -> None:
    component, other = echo("cpu4", dp=4), echo("cpu2", dp=2)
    handle = component.same(list(range(8)))
    with pytest.raises(RemoteCallError, match="too_slow was not done"):
        component.too_slow(tmp_path / "go")
    with pytest.raises(RemoteCallError, match=r"reading rows was not done after 0.01 s: worker 1 was still at it"):
        handle[2:4].gather(timeout=0.01)
    with pytest.raises(RemoteCallError, match=r"map was not done after 0.01 s: workers 0, 1, 2, 3 were still at it"):
        handle.map(str, timeout=0.01)
    with pytest.raises(RemoteCallError, match=r"reading rows was not done after 0.01 s"):
        handle.zip(range(8)).gather(timeout=0.01)
    with pytest.raises(PlanError, match="timeout must be seconds above 0, or None to wait, not 0"):
        handle.gather(timeout=0)
    (tmp_path / "go").touch()
    assert handle.gather(timeout=PATIENCE) == list(range(8))
    os.kill(component.identity()[1]["pid"], signal.SIGKILL)
    for asked in (
        handle.gather,
        lambda: list(handle),
        lambda: handle[2],
        lambda: handle.map(str),
        lambda: other.pulled(handle.select([7, 2, 0])),
    ):
        with pytest.raises(RemoteCallError, match=r" failed on worker 1 \("):
            asked()


def test_an_ended_job_leaves_no_process_behind(local_ray: None) -> None:
    import ray

    import twinkle

    twinkle.shutdown()
    twinkle.initialize("ray", groups=[{"name": "short", "ranks": 2, "device_type": "cpu"}])
    component = Echo(remote_group="short")
    handle = component.same([1, 2])
    pids = [one["pid"] for one in component.identity()]
    twinkle.shutdown()
    twinkle.shutdown()
    assert gone(pids)
    assert not any(table["state"] == "CREATED" for table in ray.util.placement_group_table().values())
    with pytest.raises(RemoteCallError, match="were shut down"):
        component.identity()
    with pytest.raises(RemoteCallError, match="were shut down"):
        handle.gather()


def gone(pids: list[int]) -> bool:
    """Whether all of these processes end."""
    return becomes(lambda: all(map(ended, pids)), expected=True)
