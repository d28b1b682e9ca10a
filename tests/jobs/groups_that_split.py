"""Groups under a default group that is bound to a device, on a stand-in for a backend that splits communicators.

The stand-in is gloo beneath, and notes each time that torch hands it the communicator to split, as it does for NCCL.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from tests.jobs.support import assert_groups_are_those_of, check, main, refusal
from twinkle import DeviceMesh
from twinkle.errors import DeviceError

splits: list[tuple[int, ...]] = []


def create(given: Any, options: Any) -> Any:
    if given.split_from is not None:
        splits.append(tuple(given.global_ranks_in_group))
    return dist.ProcessGroupGloo(given.store, given.group_rank, given.group_size, given.timeout)


@check
def every_rank_splits_once_for_each_partition() -> None:
    mesh = DeviceMesh([[3, 1], [0, 2]], ("dp", "tp"))
    groups = mesh.make_groups("dp", "tp", "cp", ("dp", "tp"))
    assert splits == [tuple(mesh.group_of(axes)) for axes in ("dp", "tp", "cp", ("dp", "tp"))]
    assert mesh.make_groups("tp", "dp") == {"tp": groups["tp"], "dp": groups["dp"]}
    assert len(splits) == 4
    assert_groups_are_those_of(mesh, "dp", "tp", ("dp", "tp"))
    assert DeviceMesh.from_axes({"dp": 4}).get_dim_group("dp") is dist.group.WORLD


@check
def a_part_of_the_job_cannot_split_it() -> None:
    part = DeviceMesh([1, 0], ("dp",))
    if dist.get_rank() in part:
        words = refusal(DeviceError, lambda: part.get_dim_group("dp"))
        assert "only with all 4 processes of the job" in words, words
        assert "init_process_group without device_id='cpu:0'" in words, words


@check
def another_backend_does_not_split() -> None:
    before = len(splits)
    part = DeviceMesh([2, 0], ("dp",))
    if dist.get_rank() in part:
        group = part.create_process_group("dp", backend="gloo")
        assert dist.get_process_group_ranks(group) == [2, 0]
        assert group.bound_device_id is None
    assert len(splits) == before


if __name__ == "__main__":
    dist.Backend.register_backend("splitting", create, extended_api=True, devices=["cpu"])
    main("cpu:splitting", torch.device("cpu:0"))
