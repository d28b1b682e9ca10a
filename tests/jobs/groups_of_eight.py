"""Process groups in eight processes on gloo."""

from __future__ import annotations

import os
import pickle
from datetime import timedelta
from functools import partial
from typing import Any

import torch.distributed as dist

from tests.jobs.support import SHORT, TIMEOUT, assert_groups_are_those_of, check, gathered, main, refusal, summed
from twinkle import DeviceMesh
from twinkle.errors import AxisError, DeviceError, LauncherError, RankError


def rank() -> int:
    return dist.get_rank()


def group_count() -> int:
    return len(dist.distributed_c10d._world.pg_names)


@check
def processes_that_made_different_numbers_of_groups_meet() -> None:
    if rank() < 4:
        # By torch itself, first of all: it cannot do so once the numbers differ.
        dist.new_group([rank() - rank() % 2, rank() - rank() % 2 + 1], use_local_synchronization=True)
    alone = DeviceMesh([rank()], ("dp",))
    for _ in range(rank()):
        alone.create_process_group("dp", share=False)
    for mesh in (DeviceMesh.from_axes({"tp": 2, "dp": 4}), DeviceMesh.from_axes({"pp": 4, "dp": 2})):
        assert_groups_are_those_of(mesh, *(mesh.mesh_dim_names or ()))
        assert mesh.release_groups() == 2
    assert alone.release_groups() == rank()


@check
def each_rank_makes_exactly_the_groups_it_is_in() -> None:
    mesh = DeviceMesh.from_axes({"pp": 2, "dp": 2, "tp": 2})
    before = group_count()
    groups = mesh.make_groups("pp", "dp", "tp", ("dp", "tp"), "cp", ("pp", "dp", "tp"))
    # pp, dp, tp, dp+tp and the group of one; the default group serves the whole.
    assert group_count() == before + 5
    assert groups["pp", "dp", "tp"] is dist.group.WORLD
    assert len(mesh.group_plan("pp", "dp", "tp", ("dp", "tp"), "cp").of(rank())) == 5
    assert mesh.release_groups() == 5
    assert group_count() == before


@check
def members_meet_in_the_order_of_the_mesh() -> None:
    assert_groups_are_those_of(DeviceMesh.from_axes({"pp": 2, "dp": 2, "tp": 2}), "pp", "dp", "tp", ("tp", "pp"), "cp")
    assert_groups_are_those_of(DeviceMesh.from_sizes(fsdp_size=4, dp_size=2, ulysses_size=2), "data", "fsdp", "ulysses")
    assert_groups_are_those_of(DeviceMesh([[7, 2, 5, 0], [3, 6, 1, 4]], ("dp", "tp")), "dp", "tp", ("dp", "tp"))
    assert_groups_are_those_of(DeviceMesh(range(7, -1, -1), ("dp",)), "dp")
    assert_groups_are_those_of(DeviceMesh.from_sizes(tp_size=2, dp_size=4, ep_size=2).expert_mesh(), "ep", "dp")


@check
def a_mesh_of_a_part_of_the_job_does_not_need_the_others() -> None:
    upper = DeviceMesh.from_axes({"dp": 2, "tp": 2}, offset=4)
    lower = DeviceMesh([[2, 0], [3, 1]], ("fsdp", "dp"))
    if rank() in upper:
        assert_groups_are_those_of(upper, "dp", "tp", ("dp", "tp"))
    else:
        assert "rank" in refusal(RankError, lambda: upper.make_groups("dp"))
        assert_groups_are_those_of(lower, "fsdp", "dp", "data")


@check
def groups_of_other_pairs_at_the_same_time_do_not_mix() -> None:
    outer = DeviceMesh([[0, 3], [1, 2], [4, 7], [5, 6]], ("dp", "tp"))
    assert gathered(outer.get_dim_group("tp")) == list(outer.group_of("tp"))


@check
def the_same_members_are_the_same_group() -> None:
    mesh = DeviceMesh.from_axes({"pp": 2, "dp": 2, "tp": 2})
    groups = mesh.make_groups("dp", ("dp", "cp"), "tp", "data")
    assert groups["dp"] is groups["dp", "cp"] is groups["data"] is mesh.get_dim_group("dp")
    assert mesh["dp"].get_dim_group("dp") is groups["dp"]
    assert mesh.permute(("tp", "dp", "pp")).get_dim_group("tp") is groups["tp"]
    assert mesh.flatten(("pp", "dp", "tp"), "all").get_dim_group("all") is dist.group.WORLD
    assert mesh.create_process_group(("pp", "dp", "tp"), backend="gloo") is dist.group.WORLD
    assert mesh.create_process_group("dp", timeout=TIMEOUT) is groups["dp"]
    assert mesh.create_process_group("dp", timeout=TIMEOUT / 2) is not groups["dp"]
    assert mesh.create_process_group(("pp", "dp", "tp"), share=False) is not dist.group.WORLD
    first, second = (mesh.create_process_group("tp", share=False) for _ in range(2))
    assert first is not second
    assert first is not groups["tp"]
    assert gathered(first) == gathered(second) == list(mesh.group_of("tp"))
    backwards = DeviceMesh(range(7, -1, -1), ("dp",)).get_dim_group("dp")
    assert backwards is not dist.group.WORLD


@check
def a_group_of_one_is_a_group_and_never_the_world() -> None:
    mesh = DeviceMesh.from_axes({"dp": 8, "tp": 1})
    groups = mesh.make_groups("tp", "pp", ())
    assert groups["tp"] is groups["pp"] is groups[()]
    assert isinstance(groups["tp"], dist.ProcessGroup)
    assert gathered(groups["tp"]) == [rank()]
    assert summed(groups["tp"]) == 1
    assert dist.get_rank(groups["tp"]) == 0


@check
def a_member_that_does_not_come_is_named_in_time_and_may_come_later() -> None:
    mesh = DeviceMesh.from_axes({"dp": 4, "tp": 2})
    if rank() % 2 == 0:
        words = refusal(DeviceError, lambda: mesh.create_process_group("tp", timeout=SHORT))
        assert f"rank {rank()} has waited 3 s for rank {rank() + 1}" in words, words
    dist.barrier()
    assert gathered(mesh.create_process_group("tp", share=False)) == list(mesh.group_of("tp"))


@check
def members_that_ask_for_other_axes_end_in_a_refusal() -> None:
    mesh = DeviceMesh.from_axes({"dp": 4, "tp": 2})
    axes = "dp" if rank() == 5 else "tp"
    if rank() in (4, 5):
        words = refusal(DeviceError, lambda: mesh.create_process_group(axes, timeout=SHORT))
        assert "has waited 3 s for" in words, words
    else:
        assert summed(mesh.create_process_group(axes, share=False)) == 2


@check
def members_that_ask_for_other_settings_are_told_both_at_once() -> None:
    mesh = DeviceMesh.from_axes({"dp": 2, "tp": 4})
    seconds = 310 if rank() == 2 else 300
    words = (
        refusal(DeviceError, lambda: mesh.create_process_group("dp", timeout=timedelta(seconds=seconds)))
        if (rank() in (2, 6))
        else ""
    )
    if words:
        assert "timeout 310 s" in words, words
        assert "timeout 300 s" in words, words
    else:
        assert summed(mesh.create_process_group("dp", timeout=timedelta(seconds=300))) == 2


@check
def release_keeps_the_default_group_and_what_others_use() -> None:
    mesh = DeviceMesh([[0, 5], [2, 4], [1, 7], [3, 6]], ("pp", "dp"))
    other = DeviceMesh([[0, 2, 1, 3], [5, 4, 7, 6]], ("tp", "cp"))
    for _ in range(3):
        groups = mesh.make_groups("pp", "dp", "data")
        assert mesh["dp"].get_dim_group("dp") is groups["dp"]
        assert other.get_dim_group("tp") is groups["dp"]
        # The pairs are the other mesh's too, so that they stay.
        assert mesh.release_groups() == 1
        assert summed(other.get_dim_group("tp")) == 2
        assert other.release_groups() == 1
        assert mesh.release_groups() == 0
    assert summed() == 8
    assert_groups_are_those_of(mesh, "pp", "dp")


@check
def a_group_that_somebody_destroyed_is_made_again() -> None:
    mesh = DeviceMesh.from_axes({"cp": 2, "tp": 4})
    group = mesh.get_dim_group("tp")
    dist.destroy_process_group(group)
    del group
    assert gathered(mesh.get_dim_group("tp")) == list(mesh.group_of("tp"))


@check
def handles_never_travel_in_a_pickle() -> None:
    mesh = DeviceMesh.from_axes({"pp": 2, "dp": 2, "tp": 2})
    fresh = pickle.dumps(mesh)
    group = mesh.get_dim_group("dp")
    assert pickle.dumps(mesh) == fresh
    copy = pickle.loads(fresh)
    assert copy == mesh
    assert hash(copy) == hash(mesh)
    assert copy.get_dim_group("dp") is group


@check
def what_cannot_work_is_refused_before_anybody_waits() -> None:
    # Rank 0 alone asks: nothing here may need another process.
    if rank() != 0:
        return
    mesh = DeviceMesh.from_axes({"dp": 4, "tp": 2})
    words = refusal(DeviceError, lambda: DeviceMesh.from_sizes(dp_size=16).make_groups("dp"))
    assert "has 16 ranks, but the job has only 8 processes" in words, words
    words = refusal(DeviceError, lambda: DeviceMesh([[0, 8], [1, 3]], ("dp", "tp")).make_groups("dp"))
    assert "has the rank 8, but the ranks of this job are 0 to 7" in words, words
    words = refusal(DeviceError, lambda: DeviceMesh.from_axes({"dp": 4}, offset=6).make_groups("dp"))
    assert "has the rank 9" in words, words
    assert "unknown axis" in refusal(AxisError, lambda: mesh.make_groups("dp", "width"))
    assert "expert_mesh" in refusal(AxisError, lambda: mesh.replace(ep_size=2).make_groups("ep"))
    for device_type in ("npu", "cuda"):
        words = refusal(DeviceError, mesh.replace(device_type=device_type).make_groups)
        assert repr(device_type) in words, words
    words = refusal(DeviceError, lambda: mesh.create_process_group("dp", backend="smoke"))
    assert "torch has no backend 'smoke'" in words, words
    wrong: tuple[Any, ...] = (timedelta(), 5)
    for timeout in wrong:
        make: Any = partial(mesh.create_process_group, "dp", timeout=timeout)
        words = refusal(DeviceError, make)
        assert "must be a datetime.timedelta above zero" in words, words
    os.environ["RANK"] = "3"
    try:
        words = refusal(LauncherError, lambda: mesh.make_groups("dp"))
    finally:
        os.environ["RANK"] = "0"
    assert "RANK=3" in words, words


if __name__ == "__main__":
    main()
