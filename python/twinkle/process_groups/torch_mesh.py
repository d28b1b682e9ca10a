"""torch's own device meshes from a mesh, with the groups that are already made, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twinkle.errors import AxisError, MeshError
from twinkle.process_groups import registry
from twinkle.process_groups.job import Wanted, job_of
from twinkle.process_groups.known import known
from twinkle.process_groups.making import device_type_in, make
from twinkle.process_groups.plan import entry_of

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh as TorchMesh

    from twinkle.mesh import DeviceMesh

__all__ = ["data_mesh", "from_torch", "to_torch"]


def to_torch(mesh: DeviceMesh, axes: str | Sequence[str] | None) -> TorchMesh:
    """The torch mesh of these axes in this order; the part through this process where some axes are left out."""
    asked = entry_of(mesh._core.names if axes is None else axes)
    # Through the core, which refuses what is no axis, and knows the axis behind an alias.
    names = mesh._core.submesh(asked, mesh.offset).names
    declared = mesh._core.names
    if sorted(names) == sorted(declared):
        return _whole(mesh, names)
    order = tuple(dict.fromkeys(declared + names))
    if not registry.joins():
        # This torch knows parts of one model by their whole, so that all of them come from the same one.
        rest = [name for name in order if name not in ("dp", "fsdp")]
        order = ("dp", "fsdp", *rest)
    whole = _whole(mesh, order)
    if names == tuple(name for name in order if name in names):
        return _part(whole, names)
    # torch cuts axes only in the order of the whole; where it joins, parts of one whole may have any order.
    if registry.joins():
        return registry.joined([_part(whole, (name,)) for name in names])
    return _part(_whole(mesh, tuple(dict.fromkeys(names + order))), names)


def data_mesh(mesh: DeviceMesh) -> TorchMesh:
    """The torch mesh for `fully_shard`: replicate over dp, shard over fsdp."""
    return to_torch(mesh, ("dp", "fsdp") if mesh.get_dim_size("dp") > 1 else ("fsdp",))


def from_torch(torch_mesh: TorchMesh, names: Mapping[str, str] | Sequence[str] | None) -> DeviceMesh:
    """A mesh with the ranks of a torch mesh; `names` renames its dimensions, or names them all."""
    from twinkle.mesh import DeviceMesh

    own = torch_mesh.mesh_dim_names
    if names is None:
        chosen = own
    elif isinstance(names, Mapping):
        unknown = [name for name in names if name not in (own or ())]
        if unknown:
            raise AxisError(f"the torch mesh has no dimensions {unknown}; it has {list(own or ())}", names=unknown)
        chosen = tuple(names.get(name, name) for name in own or ())
    else:
        chosen = entry_of(names)
    ranks = torch_mesh.mesh
    if chosen is None and ranks.ndim > 1:
        raise MeshError(f"the torch mesh names none of its {ranks.ndim} dimensions; give names=('dp', ...)")
    return DeviceMesh(ranks.cpu().numpy(), chosen, device_type=torch_mesh.device_type)


def _whole(mesh: DeviceMesh, names: tuple[str, ...]) -> TorchMesh:
    """The torch mesh of all ranks, with these axes in this order; undeclared ones have size 1."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh as TorchMesh

    groups = make(mesh, names, Wanted())
    job = job_of(mesh)
    device_type = device_type_in(job, mesh)
    made = known(job.default).torch_meshes
    key = (mesh._home, mesh._core, device_type, names)
    if key not in made:
        declared = [name for name in names if mesh.has_dim(name)]
        shape = [mesh.get_dim_size(name) if name in declared else 1 for name in names]
        ranks = torch.tensor(mesh.permute(declared).mesh).reshape(shape)
        made[key] = TorchMesh.from_group([groups[name] for name in names], device_type, ranks, mesh_dim_names=names)
    whole: TorchMesh = made[key]
    return whole


def _part(root: Any, names: tuple[str, ...]) -> TorchMesh:
    part: TorchMesh = root[names]
    return part
