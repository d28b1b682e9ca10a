"""torch's own meshes on groups that are made already, on eight processes: FSDP2, DTensor, tensor parallelism."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tests.jobs.support import a_torch_without, check, gathered, main, refusal
from twinkle import DeviceMesh
from twinkle.errors import AxisError, MeshError, RankError


def ranks(mesh: DeviceMesh) -> Any:
    """The ranks of a mesh as nested lists."""
    return np.asarray(mesh.mesh).tolist()


def model() -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))


def batch() -> torch.Tensor:
    torch.manual_seed(8)
    return torch.randn(16, 8)


def trained(network: nn.Module, rows: torch.Tensor) -> None:
    """Three steps on the mean of the squares of these rows."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        network(rows).square().mean().backward()
        optimizer.step()


def assert_equal_to_one_process(network: nn.Module) -> None:
    alone = model()
    trained(alone, batch())
    for (name, found), expected in zip(network.named_parameters(), alone.parameters(), strict=True):
        whole = found.full_tensor() if isinstance(found, DTensor) else found
        assert torch.allclose(whole, expected, rtol=1e-5, atol=1e-6), name


@check
def hybrid_sharding_replicates_over_dp_and_shards_over_fsdp() -> None:
    for mesh in (
        DeviceMesh.from_sizes(fsdp_size=4, dp_size=2),
        DeviceMesh.from_axes({"dp": 2, "fsdp": 4}),
        DeviceMesh([[6, 1], [2, 7], [0, 3], [4, 5]], ("fsdp", "dp")),
    ):
        torch_mesh = mesh.fsdp_mesh()
        assert torch_mesh.mesh_dim_names == ("dp", "fsdp")
        assert tuple(torch_mesh.shape) == (2, 4)
        assert torch_mesh.get_group("fsdp") is mesh.get_dim_group("fsdp")
        network = model()
        for layer in (network[0], network[2], network):
            fully_shard(layer, mesh=torch_mesh)
        weight: Any = network[0].weight
        assert tuple(weight.placements) == (Replicate(), Shard(0))
        assert weight.to_local().numel() == 16 * 8 // 4
        assert torch.equal(weight.to_local(), weight.full_tensor().chunk(4)[mesh.fsdp_rank or 0])
        trained(network, batch()[mesh.get_slice(16)])
        assert_equal_to_one_process(network)


@check
def sharding_alone_has_one_dimension() -> None:
    mesh = DeviceMesh.from_sizes(fsdp_size=8)
    torch_mesh = mesh.fsdp_mesh()
    assert torch_mesh.mesh_dim_names == ("fsdp",)
    assert torch_mesh.get_group() is dist.group.WORLD
    network = model()
    fully_shard(network, mesh=torch_mesh)
    weight: Any = network[0].weight
    assert weight.to_local().numel() == 16 * 8 // 8
    trained(network, batch()[mesh.get_slice(16)])
    assert_equal_to_one_process(network)


@check
def replication_alone_shards_over_a_group_of_one() -> None:
    mesh = DeviceMesh.from_sizes(dp_size=8)
    torch_mesh = mesh.fsdp_mesh()
    assert torch_mesh.mesh_dim_names == ("dp", "fsdp")
    assert gathered(torch_mesh.get_group("fsdp")) == [dist.get_rank()]
    network = model()
    fully_shard(network, mesh=torch_mesh)
    trained(network, batch()[mesh.get_slice(16)])
    assert_equal_to_one_process(network)


@check
def sharding_and_tensor_parallelism_share_a_model() -> None:
    for mesh in (DeviceMesh.from_sizes(fsdp_size=2, dp_size=2, tp_size=2), DeviceMesh.from_sizes(dp_size=4, tp_size=2)):
        network = model()
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(network, mesh.to_torch_device_mesh("tp"), plan)
        fully_shard(network, mesh=mesh.fsdp_mesh())
        trained(network, batch()[mesh.get_slice(16)])
        assert_equal_to_one_process(network)


@check
def a_torch_mesh_cuts_into_parts_with_the_groups_of_the_mesh() -> None:
    mesh = DeviceMesh.from_axes({"pp": 2, "dp": 2, "tp": 2})
    groups = mesh.make_groups("pp", "dp", "tp")
    whole = mesh.to_torch_device_mesh()
    assert whole is mesh.to_torch_device_mesh()
    assert whole.mesh.tolist() == ranks(mesh)
    assert tuple(whole.get_coordinate() or ()) == mesh.coord_of(dist.get_rank())
    for name in ("pp", "dp", "tp"):
        assert whole.get_group(name) is whole[name].get_group() is groups[name]
        assert mesh.to_torch_device_mesh(name).get_group() is groups[name]
    turned = mesh.to_torch_device_mesh(("tp", "dp", "pp"))
    assert turned.mesh.tolist() == ranks(mesh.permute(("tp", "dp", "pp")))
    part = mesh.to_torch_device_mesh(("tp", "dp"))
    assert part.mesh_dim_names == ("tp", "dp")
    assert part.mesh.tolist() == ranks(mesh["tp", "dp"])
    assert part.get_group("tp") is groups["tp"]
    assert mesh.to_torch_device_mesh(("cp", "dp")).mesh.tolist() == [ranks(mesh["dp"])]


@check
def parts_of_one_whole_need_no_joining() -> None:
    mesh = DeviceMesh.from_sizes(fsdp_size=2, dp_size=2, tp_size=2)
    with a_torch_without("joins"):
        data, tensor = mesh.fsdp_mesh(), mesh.to_torch_device_mesh("tp")
        assert data.mesh.tolist() == ranks(mesh["dp", "fsdp"])
        assert data._get_root_mesh() is tensor._get_root_mesh()
        turned = mesh.to_torch_device_mesh(("tp", "dp"))
        assert turned.mesh.tolist() == ranks(mesh["tp", "dp"])
        assert turned.get_group("tp") is mesh.get_dim_group("tp")


@check
def a_sharded_tensor_follows_the_coordinates_of_a_permuted_mesh() -> None:
    mesh = DeviceMesh([[7, 2, 5, 0], [3, 6, 1, 4]], ("dp", "tp"))
    torch_mesh = mesh.to_torch_device_mesh()
    whole = torch.arange(16.0).reshape(2, 8)
    tensor = distribute_tensor(whole, torch_mesh, (Shard(0), Shard(1)), src_data_rank=None)
    row, column = mesh.coord_of(dist.get_rank()) or ()
    assert torch.equal(tensor.to_local(), whole[row : row + 1, 2 * column : 2 * column + 2])
    assert torch.equal(tensor.full_tensor(), whole)


@check
def only_the_ranks_of_a_part_of_the_job_have_its_torch_mesh() -> None:
    mesh = DeviceMesh.from_axes({"fsdp": 4}, offset=4)
    if dist.get_rank() in mesh:
        assert mesh.fsdp_mesh().mesh.tolist() == [4, 5, 6, 7]
        layer: Any = model()[0]
        before = layer.weight.detach().clone()
        fully_shard(layer, mesh=mesh.fsdp_mesh())
        weight: Any = layer.weight
        assert weight.to_local().numel() == 16 * 8 // 4
        assert torch.equal(weight.full_tensor(), before)
    else:
        assert "is not one rank of" in refusal(RankError, mesh.fsdp_mesh)


@check
def a_torch_mesh_comes_back_as_the_mesh_it_was() -> None:
    for mesh in (
        DeviceMesh.from_axes({"pp": 2, "dp": 2, "tp": 2}, device_type="cpu"),
        DeviceMesh([[7, 2, 5, 0], [3, 6, 1, 4]], ("dp", "tp"), device_type="cpu"),
    ):
        assert DeviceMesh.from_torch(mesh.to_torch_device_mesh()) == mesh
    theirs = dist.init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp_replicate", "shards"))
    ours = DeviceMesh.from_torch(theirs, names={"shards": "fsdp"})
    assert ours == DeviceMesh.from_axes({"dp": 2, "fsdp": 4}, device_type="cpu")
    unnamed = dist.init_device_mesh("cpu", (2, 4))
    assert DeviceMesh.from_torch(unnamed, names=("pp", "tp")).mesh_dim_names == ("pp", "tp")
    assert "names none of its 2 dimensions" in refusal(MeshError, lambda: DeviceMesh.from_torch(unnamed))
    assert "no dimensions ['width']" in refusal(AxisError, lambda: DeviceMesh.from_torch(theirs, {"width": "tp"}))
    assert "shards" in refusal(AxisError, lambda: DeviceMesh.from_torch(theirs))
    assert "unknown axis" in refusal(AxisError, lambda: ours.to_torch_device_mesh("width"))


@check
def released_groups_take_their_torch_meshes_with_them() -> None:
    mesh = DeviceMesh([[1, 3, 7, 5], [0, 2, 6, 4]], ("dp", "fsdp"))
    first = mesh.fsdp_mesh()
    assert mesh.release_groups() == 2
    second = copy.copy(mesh).fsdp_mesh()
    assert second is not first
    assert gathered(second.get_group("fsdp")) == list(mesh.group_of("fsdp"))


if __name__ == "__main__":
    main()
