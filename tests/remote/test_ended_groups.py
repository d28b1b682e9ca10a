"""`on_error='kill_group'` on a real local Ray: a failure ends every process of its group, and of no other."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import twinkle
from tests.remote import components
from tests.remote.test_failures import gone
from tests.support import run
from tests.waiting import PATIENCE
from twinkle import DeviceGroup, DeviceMesh, remote_class, remote_function
from twinkle.errors import RemoteCallError
from twinkle.remote import group_ray
from twinkle.remote.waiting import Deadline

# A type checker does not see what the decorator adds.
Echo: Any = components.Echo
Writer: Any = components.Writer

#: Far longer than a test may take: what sleeps as long ends because somebody ends it.
LONG = 3600.0


@remote_class()
class _Together:
    """Workers that meet in a collective, which ends when all of them are in it."""

    device_mesh: DeviceMesh

    def __init__(self, store: str) -> None:
        from datetime import timedelta

        import torch.distributed

        self.rank = int(os.environ["RANK"])
        # Nothing listens beyond the loopback: neither the store, a file, nor the group.
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group(
            "gloo", f"file://{store}", timedelta(seconds=LONG), rank=self.rank, world_size=2
        )

    def _meet(self) -> float:
        import torch

        met = torch.ones(1)
        torch.distributed.all_reduce(met)
        return float(met)

    @remote_function(on_error="kill_group", collect="first")
    def meet(self, fails: int = -1, code: int = 0) -> float:
        if self.rank == fails:
            if code:
                os.kill(os.getpid(), code)
            raise ValueError("cannot come")
        return self._meet()

    @remote_function(on_error="kill_group", timeout=1.0)
    def meet_in_time(self, missing: int) -> float:
        if self.rank == missing:
            time.sleep(LONG)
        return self._meet()

    @remote_function()
    def pid(self) -> int:
        return os.getpid()


@remote_class(on_error="kill_group", timeout=LONG)
class _Meeting:
    """Workers that meet in their constructor, if all of them come."""

    device_mesh: DeviceMesh

    def __init__(self, store: str, *, fails: int = -1, sleeps: int = -1) -> None:
        rank = int(os.environ["RANK"])
        if rank == fails:
            raise ValueError("cannot come")
        if rank == sleeps:
            time.sleep(LONG)
        from datetime import timedelta

        import torch.distributed

        torch.distributed.FileStore(store, 2).wait([str(1 - rank)], timedelta(seconds=LONG))


@remote_class()
class _Strict:
    """Without torch, so that its processes are there in a moment."""

    device_mesh: DeviceMesh

    @remote_function(dispatch="slice_dp", collect="flatten", on_error="kill_group")
    def same(self, rows: Any) -> Any:
        return rows

    @remote_function(on_error="kill_group")
    def sleeps(self, worker: int = -1, code: int = 0, folder: Path | None = None) -> None:
        if os.environ["RANK"] == str(worker):
            os.kill(os.getpid(), code)
        if folder is not None:
            (folder / f"begun {os.environ['RANK']}").touch()
        time.sleep(LONG)

    @remote_function(on_error="kill_group", timeout=0.5)
    def late(self) -> None:
        time.sleep(LONG)

    @remote_function()
    def waits(self) -> None:
        time.sleep(LONG)

    @remote_function(dispatch="slice_dp", collect="flatten", on_error="kill_group")
    def one_too_many(self, rows: Any) -> Any:
        return [*rows, 0]

    @remote_function()
    def pid(self) -> int:
        return os.getpid()


Together: Any = _Together
Strict: Any = _Strict
Meeting: Any = _Meeting


def begun(device: str = "cpu", **colocated: str) -> None:
    groups = [DeviceGroup(name, 2, device) for name in ("pair", "others")]
    groups += [DeviceGroup(name, 2, device, colocate_with=owner) for name, owner in colocated.items()]
    twinkle.initialize("ray", groups=groups)


@pytest.fixture(autouse=True)
def _job(local_ray: None) -> Iterator[None]:
    begun()
    yield
    twinkle.shutdown()


def test_the_deadline_of_a_constructor_begins_when_the_processes_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    begins: list[float | None] = []

    def deadline(seconds: float | None) -> Deadline:
        begins.append(seconds)
        return Deadline(seconds)

    @remote_class(timeout=PATIENCE)
    class Prompt:
        @remote_function()
        def pid(self) -> int:
            return os.getpid()

    monkeypatch.setattr(group_ray, "Deadline", deadline)
    prompt: Any = Prompt
    prompt(remote_group="pair")
    prompt(remote_group="pair")
    assert begins == [300.0, PATIENCE, PATIENCE]


def words(error: pytest.ExceptionInfo[RemoteCallError]) -> str:
    return str(error.value)


def test_an_exception_ends_the_peers_that_wait_in_a_collective(tmp_path: Path) -> None:
    together = Together(str(tmp_path / "store"), remote_group="pair")
    pids = together.pid()
    assert together.meet() == 2.0
    with pytest.raises(RemoteCallError) as caught:
        together.meet(fails=0)
    assert words(caught).startswith("_Together.meet failed on worker 0 (dp=0; node 127.0.0.1): ValueError: cannot come")
    assert words(caught).endswith("; on_error='kill_group' ended group 'pair' with its 2 workers")
    assert (caught.value.worker, caught.value.group) == (0, "pair")
    assert isinstance(caught.value.__cause__, ValueError)
    assert gone(pids)


def test_the_deadline_ends_the_peers_that_wait_in_a_collective(tmp_path: Path) -> None:
    together = Together(str(tmp_path / "store"), remote_group="pair")
    pids = together.pid()
    with pytest.raises(RemoteCallError) as caught:
        together.meet_in_time(missing=1)
    assert words(caught) == (
        "_Together.meet_in_time was not done after 1.0 s: workers 0, 1 were still at it; on_error='kill_group' ended "
        "group 'pair' with its 2 workers"
    )
    assert gone(pids)


def test_a_constructor_that_fails_ends_the_peers_that_wait_for_it(tmp_path: Path) -> None:
    pids = Strict(remote_group="pair").pid()
    with pytest.raises(RemoteCallError) as caught:
        Meeting(str(tmp_path / "store"), fails=1, remote_group="pair")
    assert words(caught) == (
        "_Meeting.__init__ failed on worker 1 (node 127.0.0.1): ValueError: cannot come; on_error='kill_group' ended "
        "group 'pair' with its 2 workers"
    )
    assert gone(pids)
    with pytest.raises(
        RemoteCallError, match=r"_Strict.__init__: group 'pair' was ended when _Meeting.__init__ failed"
    ):
        Strict(remote_group="pair")


def test_the_constructors_of_a_component_have_one_deadline(tmp_path: Path) -> None:
    timed: Any = remote_class(timeout=0.5)(type("Timed", (_Meeting,), {"__init__": _Meeting.__init__.__wrapped__}))  # type: ignore[attr-defined]
    with pytest.raises(
        RemoteCallError, match=r"Timed.__init__ was not done after 0.5 s: workers 0, 1 were still at it"
    ):
        timed(str(tmp_path / "store"), sleeps=0, remote_group="pair")


def test_a_killed_worker_ends_its_peers_that_wait_in_a_collective(tmp_path: Path) -> None:
    together = Together(str(tmp_path / "store"), remote_group="pair")
    pids = together.pid()
    # Gloo may tell the peer before Ray tells the driver: either is the first failure.
    with pytest.raises(RemoteCallError, match=r"_Together.meet failed on worker [01] .*ended group 'pair'"):
        together.meet(fails=1, code=signal.SIGKILL)
    assert gone(pids)


def test_a_killed_worker_ends_its_peers_whatever_they_do() -> None:
    strict = Strict(remote_group="pair")
    pids = strict.pid()
    with pytest.raises(RemoteCallError, match=r"_Strict.sleeps failed on worker 1 .*ended group 'pair'"):
        strict.sleeps(worker=1, code=signal.SIGKILL)
    assert gone(pids)


@pytest.mark.parametrize("size", [1, 100_000])
def test_rows_of_a_dead_worker_are_its_failure_and_end_no_innocent_group(size: int) -> None:
    twinkle.shutdown()
    twinkle.initialize("ray", groups=[DeviceGroup("maker", 2, "CPU"), DeviceGroup("reader", 2, "CPU")])
    maker, reader = (Writer(remote_group=name) for name in ("maker", "reader"))
    handle = maker.same([["a" * size], ["b"], ["c"], ["d"]])
    pids = maker.pid()
    os.kill(pids[1], signal.SIGKILL)
    assert gone(pids[1:])

    def until_ray_knows() -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            reader.strict(handle)

    with pytest.raises(RemoteCallError, match="is lost"):
        until_ray_knows()
    for given in (handle, [handle[:2], handle[2:]]):
        with pytest.raises(RemoteCallError) as caught:
            reader.strict(given)
        assert words(caught) == (
            "Writer.strict: shard 1 of the rows that worker 1 was to be given is lost: worker 1 of group 'maker' "
            "(node 127.0.0.1), which made it, has died"
        )
        error = caught.value
        assert (error.group, error.worker, error.shard) == ("maker", 1, 1)
    assert reader.strict(handle[:2])[1] == [["b"]]
    pids = reader.pid()
    with pytest.raises(RemoteCallError, match=r"worker 1 of group 'maker'.*on_error='kill_group' ended group 'reader'"):
        # Worker 0 has its rows, and would wait in a collective for worker 1.
        reader.strict(handle, seconds=LONG)
    assert gone(pids)


def test_an_interrupted_driver_ends_the_group(interrupted_at: Callable[..., None], tmp_path: Path) -> None:
    strict = Strict(remote_group="pair")
    pids = strict.pid()
    interrupted_at(tmp_path / "begun 0", tmp_path / "begun 1")
    with pytest.raises(KeyboardInterrupt):
        strict.sleeps(folder=tmp_path)
    assert gone(pids)
    words = r"_Strict.pid: group 'pair' was ended when _Strict.sleeps was interrupted by KeyboardInterrupt; shutdown"
    with pytest.raises(RemoteCallError, match=words):
        strict.pid()


def test_whatever_an_ended_group_is_asked_is_refused_with_the_failure_that_ended_it() -> None:
    strict, other = Strict(remote_group="pair"), Echo(remote_group="others")
    ours, theirs = strict.same([1, 2]), other.same([3, 4])
    with pytest.raises(RemoteCallError):
        strict.sleeps(worker=1, code=signal.SIGKILL)
    for method, asked in {
        "_Strict.same": lambda: strict.same([1, 2]),
        "Echo.__init__": lambda: Echo(remote_group="pair"),
        "reading rows": ours.gather,
        "map": lambda: ours.map(str),
        "Echo.same": lambda: other.same(ours),
    }.items():
        with pytest.raises(RemoteCallError) as caught:
            asked()
        assert words(caught).startswith(f"{method}: group 'pair' was ended when _Strict.sleeps failed on worker 1 (")
        assert words(caught).endswith("; shutdown() and initialize() start it anew")
        assert (caught.value.method, caught.value.failed, caught.value.worker) == (method, "_Strict.sleeps", 1)
    assert other.pulled(theirs) == [3, 4]
    assert theirs.gather() == [3, 4]


def test_a_job_begins_anew_after_one_of_which_a_group_was_ended() -> None:
    import ray

    strict = Strict(remote_group="pair")
    with pytest.raises(RemoteCallError):
        strict.sleeps(worker=0, code=signal.SIGKILL)
    twinkle.shutdown()
    assert not any(table["state"] == "CREATED" for table in ray.util.placement_group_table().values())
    begun()
    assert Strict(remote_group="pair").same([1, 2]).gather() == [1, 2]
    with pytest.raises(RemoteCallError, match="were shut down"):
        strict.pid()


def test_the_devices_of_an_ended_group_are_free_unless_a_living_one_shares_them() -> None:
    from tests.remote.test_resources import free

    twinkle.shutdown()
    begun("GPU", guest="others")
    assert free("GPU", 4) == 4
    for group, left in (("others", 4), ("pair", 6), ("guest", 8)):
        component = Strict(remote_group=group)
        guest = Echo(remote_group="guest") if group == "others" else None
        with pytest.raises(RemoteCallError):
            component.sleeps(worker=0, code=signal.SIGKILL)
        assert free("GPU", left) == left
        if guest is not None:
            assert guest.pulled([1, 2]) == [1, 2]


def test_what_is_asked_when_the_user_has_ended_ray_is_refused_and_shutdown_is_clean() -> None:
    told = json.loads(run([sys.executable, "-m", "tests.remote.ray_gone"]).stdout.splitlines()[-1])
    for begun_anew, part in ((False, told[:8]), (True, told[8:])):
        refusals, (alive, alive_after, mode, after) = part[:4], part[4:]
        for words, method in zip(refusals, ("Kind.same", "Kind.__init__", "reading rows", "map"), strict=True):
            assert words.startswith(f"RemoteCallError: {method}: the Ray that group 'two' was on was shut down")
        assert (alive, alive_after, mode) == (begun_anew, begun_anew, None)
        assert after == "RemoteCallError: Kind.same: the workers of group 'two' were shut down"


def test_results_that_do_not_fit_end_no_process_since_none_is_left_waiting() -> None:
    strict = Strict(remote_group="pair")
    with pytest.raises(ValueError, match="worker 0 returned 2 rows at 'rows', expected 1"):
        strict.one_too_many([1, 2])
    assert strict.same([1, 2]).gather() == [1, 2]


def test_calls_of_other_threads_end_with_the_group_and_say_why() -> None:
    strict = Strict(remote_group="pair")
    strict.pid()
    seen: list[str] = []

    def call() -> None:
        try:
            strict.waits()
        except RemoteCallError as error:
            seen.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    with pytest.raises(RemoteCallError):
        strict.late()
    thread.join()
    assert len(seen) == 1
    assert seen[0].startswith("_Strict.waits: group 'pair' was ended when _Strict.late was not done after 0.5 s")
