"""The state of a mesh, and its dataclass fields as views of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinkle.errors import MeshError
from twinkle.platform.detection import detect
from twinkle.platform.families import device_type_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from twinkle._core import Mesh as CoreMesh

__all__ = ["AxisSize", "DeviceTypeField", "MeshState", "NamesField", "OptionField", "RanksField"]


class MeshState:
    """What a mesh holds: the core's value, the device type as given, and answers that were built once."""

    __slots__ = ("__weakref__", "_array", "_collect", "_core", "_device_type", "_home")

    _core: CoreMesh
    _device_type: str | None
    _array: NDArray[np.int64] | None
    _collect: list[int] | None
    #: The layout that this one was derived from: in a remote worker both speak of the same ranks.
    _home: CoreMesh


class _Field:
    """A dataclass field that is computed from the core, and settable where it is an option."""

    __slots__ = ("default", "name")

    def __init__(self, *default: Any) -> None:
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, mesh: MeshState | None, owner: type | None = None) -> Any:
        if mesh is None:
            if self.default:
                return self.default[0]
            raise AttributeError(self.name)
        return self.read(mesh)

    def __set__(self, mesh: MeshState, value: Any) -> None:
        raise MeshError(f"{self.name} is part of the layout, which is read-only; make another mesh instead")

    def read(self, mesh: MeshState) -> Any:
        """The value of the field."""
        raise NotImplementedError


class RanksField(_Field):
    """The ranks as a read-only array, built on first read."""

    __slots__ = ()

    def read(self, mesh: MeshState) -> NDArray[np.int64]:
        """The value of the field."""
        array = mesh._array
        if array is None:
            array = mesh._core.ranks()
            # Before it is shaped: nobody can make a view of a read-only array writable.
            array.flags.writeable = False
            mesh._array = array = array.reshape(mesh._core.shape)
        return array


class NamesField(_Field):
    """The axis names."""

    __slots__ = ()

    def read(self, mesh: MeshState) -> tuple[str, ...]:
        """The value of the field."""
        return mesh._core.names


class OptionField(_Field):
    """An option: checked against the layout when it is set."""

    __slots__ = ()

    def read(self, mesh: MeshState) -> Any:
        """The value of the field."""
        return mesh._core.ep_fsdp_size if self.name == "ep_fsdp_size" else mesh._core.options[self.name]

    def __set__(self, mesh: MeshState, value: Any) -> None:
        mesh._core = mesh._core.with_options({self.name: value})
        mesh._collect = None


class DeviceTypeField(_Field):
    """The device type: found on this host while none is given."""

    __slots__ = ()

    def read(self, mesh: MeshState) -> str:
        """The value of the field."""
        return mesh._device_type or detect()

    def __set__(self, mesh: MeshState, value: Any) -> None:
        mesh._device_type = None if value is None else device_type_of(value)


class AxisSize:  # noqa: D101 - `__doc__` is a slot, so that each instance has its own
    # The size of one axis; the docstring of each instance names it.
    __slots__ = ("__doc__", "axis")

    def __init__(self, axis: str) -> None:
        self.axis = axis
        self.__doc__ = f"The size of the {axis} axis, 1 where it is not declared."

    def __get__(self, mesh: MeshState | None, owner: type | None = None) -> int:
        return self if mesh is None else mesh._core.get_dim_size(self.axis)  # type: ignore[return-value]

    def __set__(self, mesh: MeshState, value: Any) -> None:
        raise MeshError(f"the size of {self.axis} is part of the layout, which is read-only; make another mesh instead")
