"""`Platform`: what a process answers about itself, by its variables, by torch.distributed, and on a Ray driver."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from twinkle.errors import DeviceError, LauncherError, RankError
from twinkle.platform import Platform
from twinkle.platform.launchers import LAUNCHERS
from twinkle.runtime import current

Setter = Callable[..., None]


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> Setter:
    """An environment without launchers, and a way to put variables there."""
    for row in LAUNCHERS:
        groups = (
            *row.shown_by,
            row.rank,
            row.world_size,
            row.local_rank,
            row.local_world_size,
            row.node_rank,
            row.nnodes,
        )
        for name in (name for names in groups for name in names):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(current, "positions", None)
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)

    def put(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return put


def put_group(monkeypatch: pytest.MonkeyPatch, rank: int, world: int, *, initialised: bool = True) -> None:
    group = SimpleNamespace(is_initialized=lambda: initialised, get_rank=lambda: rank, get_world_size=lambda: world)
    monkeypatch.setitem(sys.modules, "torch.distributed", group)


def test_a_process_that_nothing_launched_is_nobody_and_alone() -> None:
    assert Platform.get_rank() == -1
    assert Platform.get_local_rank() == -1
    assert (Platform.get_world_size(), Platform.get_local_world_size()) == (1, 1)
    assert (Platform.get_node_rank(), Platform.get_nnodes()) == (0, 1)
    assert Platform.is_master()
    assert Platform.is_local_master()
    assert Platform.is_last_rank()


def test_torchrun_variables_answer_everything(environ: Setter) -> None:
    environ(RANK="7", WORLD_SIZE="8", LOCAL_RANK="3", LOCAL_WORLD_SIZE="4", TORCHELASTIC_RUN_ID="x")
    environ(GROUP_RANK="1", GROUP_WORLD_SIZE="2")
    assert (Platform.get_rank(), Platform.get_world_size()) == (7, 8)
    assert (Platform.get_local_rank(), Platform.get_local_world_size()) == (3, 4)
    assert (Platform.get_node_rank(), Platform.get_nnodes()) == (1, 2)
    assert not Platform.is_master()
    assert not Platform.is_local_master()
    assert Platform.is_last_rank()


def test_the_rank_follows_the_variables_when_they_change(environ: Setter, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (0, 3, 1):
        environ(RANK=str(rank), WORLD_SIZE="4")
        assert Platform.get_rank() == rank
        assert Platform.get_rank() == rank
    environ(WORLD_SIZE="1")
    with pytest.raises(LauncherError, match=r"RANK=1 .*WORLD_SIZE=1"):
        Platform.get_rank()
    monkeypatch.delenv("RANK")
    assert Platform.get_rank() == -1
    environ(OMPI_COMM_WORLD_RANK="2", OMPI_COMM_WORLD_SIZE="4")
    monkeypatch.delenv("WORLD_SIZE")
    assert Platform.get_rank() == 2


def test_rank_alone_answers_the_rank_and_nothing_else(environ: Setter) -> None:
    environ(RANK="3")
    assert Platform.get_rank() == 3
    for ask in (Platform.get_world_size, Platform.get_local_rank, Platform.get_node_rank, Platform.is_last_rank):
        with pytest.raises(LauncherError):
            ask()


def test_pod_level_variables_answer_the_rank_and_refuse_the_local_one(environ: Setter) -> None:
    environ(RANK="1", WORLD_SIZE="4")
    assert Platform.get_rank() == 1
    with pytest.raises(LauncherError, match="pod-level variables"):
        Platform.get_local_rank()


def test_a_malformed_local_rank_does_not_disturb_the_rank(environ: Setter) -> None:
    environ(RANK="1", WORLD_SIZE="4", LOCAL_RANK="one")
    assert Platform.get_rank() == 1
    with pytest.raises(LauncherError, match="LOCAL_RANK='one'"):
        Platform.get_local_rank()


def test_an_initialised_process_group_outranks_the_variables(environ: Setter, monkeypatch: pytest.MonkeyPatch) -> None:
    put_group(monkeypatch, 2, 4)
    assert (Platform.get_rank(), Platform.get_world_size()) == (2, 4)
    environ(RANK="2", WORLD_SIZE="4")
    assert Platform.get_rank() == 2
    # The variables of another world belong to an outer layer.
    environ(RANK="1", WORLD_SIZE="2")
    assert Platform.get_rank() == 2


def test_a_rank_that_contradicts_the_process_group_is_refused(environ: Setter, monkeypatch: pytest.MonkeyPatch) -> None:
    put_group(monkeypatch, 2, 4)
    environ(RANK="1", WORLD_SIZE="4")
    with pytest.raises(LauncherError, match=r"RANK=1 .*WORLD_SIZE=4.* rank 2 of 4"):
        Platform.get_rank()


def test_torch_that_is_loaded_but_not_initialised_says_nothing(
    environ: Setter, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_group(monkeypatch, 2, 4, initialised=False)
    assert Platform.get_rank() == -1
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace())
    environ(RANK="1", WORLD_SIZE="4")
    assert Platform.get_rank() == 1


def test_a_ray_driver_is_nobody_whatever_launched_it(environ: Setter, monkeypatch: pytest.MonkeyPatch) -> None:
    environ(RANK="1", WORLD_SIZE="4", LOCAL_RANK="1", LOCAL_WORLD_SIZE="4")
    monkeypatch.setattr(current, "positions", ())
    assert (Platform.get_rank(), Platform.get_world_size(), Platform.get_local_rank()) == (-1, 1, -1)
    assert Platform.is_local_master()
    put_group(monkeypatch, 2, 4)
    assert Platform.get_rank() == -1


def test_the_first_worker_on_a_node_is_its_local_master_though_all_have_local_rank_zero(environ: Setter) -> None:
    environ(RANK="5", WORLD_SIZE="8", LOCAL_RANK="0", LOCAL_WORLD_SIZE="4", NODE_RANK="1", NNODES="2")
    for index, first in (("0", True), ("1", False)):
        environ(TWINKLE_LOCAL_INDEX=index)
        assert Platform.get_local_rank() == 0
        assert Platform.is_local_master() is first


def test_questions_are_looked_up_on_the_class_so_that_they_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Platform, "get_rank", staticmethod(lambda: 3))
    monkeypatch.setattr(Platform, "get_world_size", staticmethod(lambda: 4))
    monkeypatch.setattr(Platform, "get_local_rank", staticmethod(lambda: 2))
    assert Platform.is_last_rank()
    assert not Platform.is_master()
    assert Platform.get_peer_index(8) == slice(6, 8)
    assert Platform.get_local_device(platform="npu") == "npu:2"


@pytest.mark.parametrize(
    ("platform", "prefix", "backend", "mask"),
    [
        ("GPU", "cuda", "nccl", "CUDA_VISIBLE_DEVICES"),
        ("rocm", "cuda", "nccl", "HIP_VISIBLE_DEVICES"),
        ("NPU", "npu", "hccl", "ASCEND_RT_VISIBLE_DEVICES"),
        ("mps", "mps", "gloo", None),
        ("cpu", "cpu", "gloo", None),
    ],
)
def test_a_named_platform_is_answered_by_the_table(platform: str, prefix: str, backend: str, mask: str | None) -> None:
    assert Platform.device_prefix(platform) == prefix
    assert Platform.device_backend(platform) == backend
    assert Platform.visible_device_env(platform) == mask


def test_an_unknown_platform_is_refused() -> None:
    asks: tuple[Callable[[Any], object], ...] = (Platform.device_prefix, Platform.device_backend, Platform.bind)
    for ask in asks:
        with pytest.raises(DeviceError, match=r"'npux'.*did you mean 'npu'"):
            ask("npux")


def test_the_local_device_is_the_local_rank_unless_it_is_given(environ: Setter) -> None:
    assert Platform.get_local_device(platform="npu") == "npu:0"
    assert Platform.get_local_device(5, platform="GPU") == "cuda:5"
    assert Platform.get_local_device(5, platform="cpu") == "cpu"
    environ(RANK="5", WORLD_SIZE="8", LOCAL_RANK="3", LOCAL_WORLD_SIZE="4")
    assert Platform.get_local_device(platform="npu") == "npu:3"
    environ(TWINKLE_LOCAL_INDEX="3", LOCAL_RANK="0", NODE_RANK="1", NNODES="2")
    assert Platform.get_local_device(platform="npu") == "npu:0"
    for wrong in (-1, True, 1.5, "0"):
        with pytest.raises(DeviceError, match="idx"):
            Platform.get_local_device(wrong, platform="npu")  # type: ignore[arg-type]


def test_a_slurm_task_with_a_device_of_its_own_has_index_zero(environ: Setter, monkeypatch: pytest.MonkeyPatch) -> None:
    environ(SLURM_JOB_ID="1", SLURM_STEP_NODELIST="n1", SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="2", SLURM_LOCALID="2")
    environ(SLURM_NODEID="0", SLURM_STEP_NUM_NODES="1", CUDA_VISIBLE_DEVICES="0")
    assert Platform.get_local_device(platform="cuda") == "cuda:2"
    environ(SLURM_GPUS_PER_TASK="1")
    assert Platform.get_local_device(platform="cuda") == "cuda:0"
    environ(CUDA_VISIBLE_DEVICES="0,1,2,3")
    assert Platform.get_local_device(platform="cuda") == "cuda:2"
    monkeypatch.delenv("SLURM_GPUS_PER_TASK")
    environ(SLURM_GPU_BIND="single:1", CUDA_VISIBLE_DEVICES="3")
    assert Platform.get_local_device(platform="cuda") == "cuda:0"


@pytest.mark.parametrize(("peers", "processes"), [(8, 2), (8, 3), (7, 4), (2, 8), (3, 7), (1, 1), (5, 5)])
def test_every_peer_has_a_process_and_every_process_a_peer(peers: int, processes: int) -> None:
    shares = [range(peers)[Platform.get_peer_index(peers, rank, processes)] for rank in range(processes)]
    assert {peer for share in shares for peer in share} == set(range(peers))
    assert all(shares)
    if peers >= processes:
        assert [peer for share in shares for peer in share] == list(range(peers))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    else:
        assert [share[0] for share in shares] == [rank % peers for rank in range(processes)]


def test_a_process_alone_has_all_peers(environ: Setter) -> None:
    assert Platform.get_peer_index(6) == slice(0, 6)
    environ(RANK="1", WORLD_SIZE="2")
    assert Platform.get_peer_index(6) == slice(3, 6)


@pytest.mark.parametrize("arguments", [(0,), (-1,), (True,), ("3",), (4, 2, 2), (4, -1, 2), (4, 0, 0)])
def test_peers_that_are_none_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(RankError):
        Platform.get_peer_index(*arguments)


def test_nothing_is_written_to_the_environment(environ: Setter) -> None:
    environ(RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")
    before = dict(os.environ)
    Platform.get_rank()
    Platform.bind("cpu")
    assert dict(os.environ) == before
