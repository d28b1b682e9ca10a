"""What a mesh does with torch, which loads when asked: process groups, torch's own meshes, this process's device."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from twinkle.this_process import ThisProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta
    from typing import Any

    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh as TorchMesh

    from twinkle.mesh import DeviceMesh
    from twinkle.platform.binding import Binding
    from twinkle.process_groups import GroupPlan

__all__ = ["WithTorch"]


class WithTorch(ThisProcess):
    """The methods of a mesh that need torch, or plan what torch will do.

    A group is always a real ProcessGroup: that of this process alone is a group of one, and torch's default group
    serves where its members are the same in the same order. Group ranks are `index_in_group`. The members of a group
    make it together, in the order of the plan, and nobody else takes part; what they ask for again is the same object.

    Refused before anybody waits: an unknown axis (`AxisError`), no default group, a mesh larger than the job, a device
    type that this host lacks (`DeviceError`), a process outside the mesh (`RankError`), a RANK that contradicts
    torch.distributed (`LauncherError`). Members that do not come or ask for something else end in a `DeviceError`
    within the timeout.
    """

    __slots__ = ()

    def bind(self) -> Binding:
        """Choose this process's device of the mesh's device type, make it torch's current one, and report it."""
        from twinkle.platform.platform import Platform

        return Platform.bind(self._device_type)

    def group_plan(self, *axes: str | Sequence[str]) -> GroupPlan:
        """Which process groups `make_groups` would make: data, equal on every rank, without torch or a job.

        Each entry is an axis or several; none at all means one entry per declared axis.
        """
        from twinkle.process_groups.plan import plan_of

        return plan_of(_whole(self), axes)

    def make_groups(self, *axes: str | Sequence[str]) -> dict[str | tuple[str, ...], ProcessGroup]:
        """This process's group for each entry of `group_plan(*axes)`, by entry; called on every rank of the mesh."""
        from twinkle.process_groups.job import Wanted
        from twinkle.process_groups.making import make

        return make(_whole(self), axes, Wanted())

    def create_process_group(
        self,
        axes: str | Sequence[str],
        *,
        backend: str | None = None,
        timeout: timedelta | None = None,
        options: Any = None,
        share: bool = True,
    ) -> ProcessGroup:
        """This process's group along some axes, with a backend, a timeout or options of its own.

        What is None is as in the default group, except that a group of more than 1,024 members gets no gloo beside
        the accelerator's backend. `share=False` makes a group that nobody else is given.
        """
        from twinkle.process_groups.job import Wanted
        from twinkle.process_groups.making import make_one

        return make_one(_whole(self), axes, Wanted(backend, timeout, options, share))

    def get_dim_group(self, axes: str | Sequence[str]) -> ProcessGroup:
        """This process's group along some axes, as `make_groups` makes it."""
        return self.create_process_group(axes)

    def release_groups(self) -> int:
        """Destroy the groups that only this mesh and its parts use, and tell how many; called on every rank.

        torch's default group stays, and so do groups that an unrelated mesh asked for.
        """
        from twinkle.process_groups.making import release

        return release(_whole(self))

    def to_torch_device_mesh(self, axes: str | Sequence[str] | None = None) -> TorchMesh:
        """The torch mesh with these axes in this order (None: all declared), on the groups of `make_groups`.

        With some axes left out it is the part through this process, and parts may be given to one model together.
        """
        from twinkle.process_groups.torch_mesh import to_torch

        return to_torch(_whole(self), axes)

    @staticmethod
    def from_torch(mesh: TorchMesh, names: Mapping[str, str] | Sequence[str] | None = None) -> DeviceMesh:
        """The mesh with the ranks and the device type of a torch mesh; `names={'dp_shard': 'fsdp'}` renames."""
        from twinkle.process_groups.torch_mesh import from_torch

        return from_torch(mesh, names)

    def fsdp_mesh(self) -> TorchMesh:
        """The torch mesh that `fully_shard` wants: `('dp', 'fsdp')`, replicated over dp and sharded over fsdp.

        `('fsdp',)` where dp is not larger than 1. The order of the axes in the mesh does not matter.
        """
        from twinkle.process_groups.torch_mesh import data_mesh

        return data_mesh(_whole(self))


def _whole(mesh: WithTorch) -> DeviceMesh:
    """The mesh that these methods belong to, which is the only class that has them."""
    return cast("DeviceMesh", mesh)
