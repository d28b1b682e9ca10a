"""Where every rank of a training job is, who is in its group, and which rows are its own.

Names load when they are first touched, so that importing `twinkle` costs nothing in a launcher of very many ranks.
"""

from __future__ import annotations

# `typing` alone would take several times as long to load as everything here; type checkers know the name.
TYPE_CHECKING = False

_HOMES = {
    "DeviceMesh": "mesh",
    "DeviceGroup": "group",
    "Node": "group",
    "Platform": "platform",
    "allocate": "platform.allocation",
    "initialize": "remote.setup",
    "shutdown": "remote.setup",
    "remote_class": "remote.classes",
    "remote_function": "remote.classes",
    "Rows": "remote.markers",
    "Same": "remote.markers",
    "Global": "remote.markers",
    "Sharded": "remote.handle",
    "get_device_placement": "remote.placement_text",
    "__version__": "_core",
}
_MODULES = ("dataloader", "errors", "plan", "platform")

__all__ = [*_HOMES, *_MODULES]  # noqa: PLE0604

if TYPE_CHECKING:
    from twinkle import dataloader as dataloader
    from twinkle import errors as errors
    from twinkle import plan as plan
    from twinkle import platform as platform
    from twinkle._core import __version__ as __version__
    from twinkle.group import DeviceGroup as DeviceGroup
    from twinkle.group import Node as Node
    from twinkle.mesh import DeviceMesh as DeviceMesh
    from twinkle.platform import Platform as Platform
    from twinkle.platform import allocate as allocate
    from twinkle.remote.classes import remote_class as remote_class
    from twinkle.remote.classes import remote_function as remote_function
    from twinkle.remote.handle import Sharded as Sharded
    from twinkle.remote.markers import Global as Global
    from twinkle.remote.markers import Rows as Rows
    from twinkle.remote.markers import Same as Same
    from twinkle.remote.placement_text import get_device_placement as get_device_placement
    from twinkle.remote.setup import initialize as initialize
    from twinkle.remote.setup import shutdown as shutdown
else:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _HOMES:
            value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
            globals()[name] = value
            return value
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
