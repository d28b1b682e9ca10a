"""What one process asks of torch, in a rehearsed job of many ranks: torch's fake backend, which never communicates."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from twinkle import DeviceMesh
from twinkle.errors import DeviceError, RankError
from twinkle.process_groups import making, registry
from twinkle.process_groups.job import Job, Wanted
from twinkle.runtime import current

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def rehearsal(rank: int, ranks: int) -> Iterator[None]:
    """This process as one rank of a job that only exists on paper."""
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def made() -> int:
    return len(dist.distributed_c10d._world.pg_names)


def test_one_rank_of_65536_makes_its_three_groups_and_no_other() -> None:
    mesh = DeviceMesh.from_axes({"dp": 512, "pp": 16, "tp": 8})
    with rehearsal(12_345, 65_536):
        groups = mesh.make_groups("dp", "pp", "tp")
        assert made() == 1 + 3
        for axis, group in groups.items():
            assert dist.get_process_group_ranks(group) == list(mesh.group_of(axis, 12_345))
            assert dist.get_rank(group) == mesh.index_in_group(axis, 12_345)
        assert mesh.make_groups("tp", ("pp", "cp")) == {"tp": groups["tp"], ("pp", "cp"): groups["pp"]}
        assert mesh.get_dim_group(("dp", "pp", "tp")) is dist.group.WORLD
        assert mesh.release_groups() == 3
        assert made() == 1


def test_a_rehearsal_needs_no_devices() -> None:
    with rehearsal(3, 16):
        mesh = DeviceMesh.from_sizes(fsdp_size=4, dp_size=4, device_type="cuda")
        assert mesh.fsdp_mesh().device_type == "cuda"
        assert mesh.fsdp_mesh().mesh.tolist() == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]


def test_a_worker_whose_position_is_another_rank_of_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = DeviceMesh.from_axes({"dp": 4}, offset=4)
    monkeypatch.setattr(current, "positions_mesh", mesh)
    with rehearsal(1, 8):
        monkeypatch.setattr(current, "positions", (1,))
        with pytest.raises(DeviceError, match=r"this process is rank 5 of .* but rank 1 of torch\.distributed"):
            mesh.make_groups("dp")
        monkeypatch.setattr(current, "positions", (0, 1))
        with pytest.raises(RankError, match=r"group_plan\(\.\.\.\)\.of\(rank\)"):
            mesh.make_groups("dp")


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A job whose default group says it is gloo and nccl."""
    monkeypatch.setattr(registry, "own_backend", lambda default: "cpu:gloo,cuda:nccl")
    monkeypatch.setattr(registry, "default_timeout", lambda default, backend: timedelta(minutes=10))
    with rehearsal(0, 4096):
        assert dist.group.WORLD is not None
        yield Job(dist.group.WORLD, 0, 4096)


def test_above_1024_members_no_gloo_half_is_opened_unasked(job: Job) -> None:
    both = {("cpu", "gloo"), ("cuda", "nccl")}
    assert Wanted().settings(job, 1024).devices == both
    assert Wanted().settings(job, 1024).backend == "cpu:gloo,cuda:nccl"
    assert Wanted().settings(job, 1025).devices == {("cuda", "nccl")}
    assert Wanted().settings(job, 1025).backend == "cuda:nccl"
    assert Wanted(backend="cpu:gloo,cuda:nccl").settings(job, 1025).devices == both
    assert Wanted(backend="gloo").settings(job, 1025).backend == "gloo"


def test_a_job_on_gloo_alone_keeps_it_at_any_size(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "own_backend", lambda default: "gloo")
    assert {backend for _, backend in Wanted().settings(job, 4096).devices} == {"gloo"}


@pytest.mark.parametrize(
    ("wanted", "serves"),
    [
        (Wanted(), True),
        (Wanted(backend="nccl"), True),
        (Wanted(backend="cpu:gloo"), True),
        (Wanted(backend="cuda:gloo"), False),
        (Wanted(timeout=timedelta(minutes=10)), True),
        (Wanted(timeout=timedelta(minutes=9)), False),
        (Wanted(options=object()), False),
    ],
)
def test_the_default_group_serves_what_it_has(job: Job, wanted: Wanted, serves: bool) -> None:
    assert making._default_serves(job, wanted.settings(job, 4096)) == serves


def test_settings_are_equal_by_what_they_do(job: Job) -> None:
    assert Wanted(backend="cuda:nccl,cpu:gloo").settings(job, 8) == Wanted().settings(job, 8)
    first, second = object(), object()
    assert Wanted(options=first).settings(job, 8) == Wanted(options=first).settings(job, 8)
    assert Wanted(options=first).settings(job, 8) != Wanted(options=second).settings(job, 8)
    assert Wanted().settings(job, 8).terms() == "gloo for cpu, nccl for cuda, timeout 600 s"
    assert Wanted(options=first).settings(job, 8).terms().endswith("timeout 600 s, options object")
