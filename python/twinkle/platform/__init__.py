"""The device side: which process this is, which accelerator it has, and which devices a group of workers gets.

Everything here is a table or a pure function of a mapping. Nothing reads the environment when it is imported, and
torch is imported only by `Platform.bind`. Names load when they are first touched.
"""

from __future__ import annotations

# Type checkers know the name; `typing` itself would cost more than everything here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from twinkle.platform.allocation import Worker as Worker
    from twinkle.platform.allocation import allocate as allocate
    from twinkle.platform.binding import Binding as Binding
    from twinkle.platform.detection import detect as detect
    from twinkle.platform.detection import detect_family as detect_family
    from twinkle.platform.families import FAMILIES as FAMILIES
    from twinkle.platform.families import Family as Family
    from twinkle.platform.families import device_type_of as device_type_of
    from twinkle.platform.families import family_of as family_of
    from twinkle.platform.ordering import bundle_order as bundle_order
    from twinkle.platform.ordering import node_order as node_order
    from twinkle.platform.platform import Platform as Platform
    from twinkle.platform.reading import LaunchRecord as LaunchRecord
    from twinkle.platform.reading import resolve as resolve
    from twinkle.platform.visible import logical_index as logical_index
    from twinkle.platform.visible import physical_id as physical_id
    from twinkle.platform.visible import visible_devices as visible_devices

_HOMES = {
    "Binding": "binding",
    "FAMILIES": "families",
    "Family": "families",
    "LaunchRecord": "reading",
    "Platform": "platform",
    "Worker": "allocation",
    "allocate": "allocation",
    "bundle_order": "ordering",
    "detect": "detection",
    "detect_family": "detection",
    "device_type_of": "families",
    "family_of": "families",
    "logical_index": "visible",
    "node_order": "ordering",
    "physical_id": "visible",
    "resolve": "reading",
    "visible_devices": "visible",
}

__all__ = [*_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
