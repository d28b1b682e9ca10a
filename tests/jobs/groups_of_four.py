"""Process groups in four processes on gloo: a new default group, other stores, a torch without the private names."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch.distributed as dist

from tests.jobs.support import (
    SHORT,
    TIMEOUT,
    a_torch_without,
    assert_groups_are_those_of,
    check,
    gathered,
    main,
    refusal,
    when_these_have_come,
)
from twinkle import DeviceMesh
from twinkle.errors import DeviceError
from twinkle.process_groups import registry


def again(name: str) -> None:
    """Another default group through the launcher's store, beside what the first one wrote there."""
    store, rank, size = next(dist.rendezvous("env://"))
    store = dist.PrefixStore(name, store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TIMEOUT)


@check
def rows_and_groups_of_the_default_axes_agree() -> None:
    mesh = DeviceMesh.from_sizes(fsdp_size=2, dp_size=2)
    assert_groups_are_those_of(mesh, "fsdp", "dp", "data")
    # In data order: 0, 2, 1, 3. The default group has them in another order.
    peers = DeviceMesh.from_sizes(fsdp_size=2, dp_size=2, ulysses_size=4)
    assert_groups_are_those_of(peers, "ulysses")
    assert peers.get_dim_group("ulysses") is not dist.group.WORLD
    assert peers.get_dim_group("data") is dist.group.WORLD


@check
def groups_are_made_again_under_a_new_default_group() -> None:
    mesh = DeviceMesh.from_axes({"dp": 2, "tp": 2})
    old = mesh.get_dim_group("dp")
    dist.barrier()
    dist.destroy_process_group()
    assert "there is none" in refusal(DeviceError, lambda: mesh.get_dim_group("dp"))
    assert mesh.release_groups() == 0
    again("second")
    assert mesh.get_dim_group("dp") is not old
    assert_groups_are_those_of(mesh, "dp", "tp")


@check
def groups_meet_in_a_file() -> None:
    dist.barrier()
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    path = Path(tempfile.gettempdir()) / f"twinkle-{os.environ['TORCHELASTIC_RUN_ID']}-{os.environ['MASTER_PORT']}"
    store = dist.FileStore(str(path), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    mesh = DeviceMesh.from_axes({"dp": 2, "tp": 2})
    for _ in range(2):
        assert_groups_are_those_of(mesh, "dp", "tp")
        assert mesh.release_groups() == 2
    if rank == 0:
        assert "for rank 2" in refusal(DeviceError, lambda: mesh.create_process_group("dp", timeout=SHORT))
    dist.barrier()
    dist.destroy_process_group()
    again("third")
    path.unlink(missing_ok=True)


@check
def without_the_private_names_all_ranks_make_all_groups() -> None:
    with a_torch_without("by_name"):
        mesh = DeviceMesh([[3, 1], [0, 2]] if registry.keeps_order() else [[0, 1], [2, 3]], ("dp", "tp"))
        assert_groups_are_those_of(mesh, "dp", "tp", "cp", ("dp", "tp"))
        part = DeviceMesh([1, 0], ("dp",))
        if dist.get_rank() in part:
            words = refusal(DeviceError, lambda: part.get_dim_group("dp"))
            assert "only with all 4 processes of the job" in words, words
            assert "has 2 ranks" in words, words
        # A part finds what the whole has made.
        assert mesh["tp"].get_dim_group("tp") is mesh.get_dim_group("tp")


@check
def without_the_order_of_members_only_ascending_ones_are_made() -> None:
    with a_torch_without("by_name", "keeps_order"):
        assert_groups_are_those_of(DeviceMesh.from_axes({"tp": 2, "cp": 2}), "tp", "cp")
        # Rank 1 is in an ascending group, and is refused as rank 3 is: nobody is left waiting.
        mesh = DeviceMesh([[0, 2], [1, 3]], ("fsdp", "dp")).permute(("dp", "fsdp"))
        assert_groups_are_those_of(mesh, "fsdp", "dp")
        words = refusal(DeviceError, lambda: DeviceMesh([[0, 3], [1, 2]], ("fsdp", "dp")).get_dim_group("fsdp"))
        assert "only with ascending members, not [3, 2]" in words, words


@check
def a_process_that_never_comes_ends_a_meeting_for_all_others() -> None:
    mesh = DeviceMesh.from_axes({"dp": 4})
    if dist.get_rank() < 3:
        with when_these_have_come(3):
            words = refusal(DeviceError, lambda: mesh.create_process_group("dp", timeout=SHORT, share=False))
        assert "s for rank 3" in words, words
    dist.barrier()
    assert gathered(mesh.create_process_group("dp", share=False)) == [0, 1, 2, 3]


if __name__ == "__main__":
    main()
