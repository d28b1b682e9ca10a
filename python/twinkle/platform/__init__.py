"""The device side: which process this is, which accelerator it has, and which devices a group of workers gets.

Everything here is a table or a pure function of a mapping. Nothing reads the environment when it is imported, and
torch is imported only by `Platform.bind`. Names load when they are first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .allocation import Worker as Worker
    from .allocation import allocate as allocate
    from .binding import Binding as Binding
    from .families import FAMILIES as FAMILIES
    from .families import Family as Family
    from .families import detect as detect
    from .families import detect_family as detect_family
    from .families import device_type_of as device_type_of
    from .families import family_of as family_of
    from .ordering import bundle_order as bundle_order
    from .ordering import node_order as node_order
    from .platform import Platform as Platform
    from .reading import LaunchRecord as LaunchRecord
    from .reading import resolve as resolve
    from .visible import logical_index as logical_index
    from .visible import physical_id as physical_id
    from .visible import visible_devices as visible_devices

_HOMES = {
    "Binding": "binding",
    "FAMILIES": "families",
    "Family": "families",
    "LaunchRecord": "reading",
    "Platform": "platform",
    "Worker": "allocation",
    "allocate": "allocation",
    "bundle_order": "ordering",
    "detect": "families",
    "detect_family": "families",
    "device_type_of": "families",
    "family_of": "families",
    "logical_index": "visible",
    "node_order": "ordering",
    "physical_id": "visible",
    "resolve": "reading",
    "visible_devices": "visible",
}

__all__ = [*_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
