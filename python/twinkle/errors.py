"""Refusals: what twinkle will not do, with the numbers that say why.

Every class also derives from the built-in that a caller would catch for it. The message is plain text (`str(error)`),
and the numbers it names are attributes: `error.rank`, `error.world_size`. Both survive pickling and copying.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AxisError",
    "DeviceError",
    "LauncherError",
    "MeshError",
    "PlacementError",
    "PlanError",
    "RankError",
    "RemoteCallError",
    "TwinkleError",
]


class TwinkleError(Exception):
    """The base of every refusal: a message, and the numbers it names as attributes and in `fields`."""

    fields: dict[str, Any]

    # The message is positional only, so that a field may have any name.
    def __init__(self, message: str = "", /, **fields: Any) -> None:
        super().__init__(message)
        # Part of `__dict__`, which is what the exception's own pickling carries beside its message.
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        # While it is being rebuilt, an error has no fields yet.
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.fields})

    def __str__(self) -> str:
        # KeyError would show the repr of the message.
        return str(self.args[0]) if self.args else ""


class MeshError(TwinkleError, ValueError):
    """Sizes, options or a rank table that make no mesh."""


class RankError(MeshError, IndexError):
    """A rank, position, data rank or pipeline stage that is not there."""


class AxisError(MeshError, KeyError):
    """An axis name that is unknown, repeated, missing, or not answerable on this mesh."""


class PlanError(TwinkleError, ValueError):
    """Rows that do not fit a layout, or a worker that spans two shards."""


class PlacementError(TwinkleError, ValueError):
    """Workers, devices or nodes that do not fit together."""


class DeviceError(TwinkleError, RuntimeError):
    """A device, device module or process group that is not there or does not agree."""


class LauncherError(TwinkleError, ValueError):
    """Launcher variables that are missing, malformed or contradict each other."""


class RemoteCallError(TwinkleError, RuntimeError):
    """A call on a remote component that failed: method, worker, coordinate, node, rows and cause."""
