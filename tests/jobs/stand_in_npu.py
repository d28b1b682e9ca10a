"""Groups of a mesh of npus in two processes, on the stand-in npu: `hccl` is gloo under another name."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests import stand_in_npu
from tests.jobs.support import check, gathered, main, refusal
from twinkle import DeviceMesh
from twinkle.errors import DeviceError

module = stand_in_npu.register(2)


@check
def each_process_binds_its_own_stand_in_npu() -> None:
    binding = DeviceMesh.from_sizes(dp_size=2, device_type="npu").bind()
    assert binding.device == f"npu:{dist.get_rank()}"
    assert module.current_device() == dist.get_rank()
    assert DeviceMesh.from_sizes(dp_size=2).bind().device == binding.device


@check
def groups_of_stand_in_npus_have_hccl() -> None:
    mesh = DeviceMesh([[1, 0]], ("tp", "dp"), device_type="npu")
    groups = mesh.make_groups("dp", "tp")
    for group in groups.values():
        assert group._get_backend(torch.device("npu")).size() == group.size()
        # The gloo half came with the default group, and takes the tensors that the stand-in has none of.
        assert group._get_backend(torch.device("cpu")).size() == group.size()
    assert gathered(groups["dp"]) == [1, 0]
    alone = mesh.create_process_group("dp", backend="hccl")
    assert dist.get_process_group_ranks(alone) == [1, 0]
    words = refusal(DeviceError, lambda: mesh.create_process_group("dp", backend="npu:smoke"))
    assert "torch has no backend 'npu:smoke'" in words, words


@check
def the_torch_mesh_is_of_stand_in_npus() -> None:
    mesh = DeviceMesh.from_sizes(dp_size=2, device_type="npu")
    assert mesh.fsdp_mesh().device_type == "npu"
    assert DeviceMesh.from_sizes(dp_size=2).to_torch_device_mesh().device_type == "npu"
    assert DeviceMesh.from_torch(mesh.to_torch_device_mesh()) == mesh
    assert "'cuda'" in refusal(DeviceError, mesh.replace(device_type="cuda").fsdp_mesh)


if __name__ == "__main__":
    main("cpu:gloo,npu:hccl")
