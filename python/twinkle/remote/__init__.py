"""Remote components: classes whose objects live in the workers of device groups, and the rows that pass between them.

Ray is the engine; in local mode the same classes run in this process, or in the processes of a launcher. Nothing of
twinkle imports this package but its users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinkle.remote.classes import remote_class as remote_class
    from twinkle.remote.classes import remote_function as remote_function
    from twinkle.remote.collectors import collect_tensor_dict as collect_tensor_dict
    from twinkle.remote.counting import traffic as traffic
    from twinkle.remote.handle import Sharded as Sharded
    from twinkle.remote.handle import Zipped as Zipped
    from twinkle.remote.loading import RemoteDataLoader as RemoteDataLoader
    from twinkle.remote.markers import Global as Global
    from twinkle.remote.markers import Rows as Rows
    from twinkle.remote.markers import Same as Same
    from twinkle.remote.placement_text import get_device_placement as get_device_placement
    from twinkle.remote.setup import initialize as initialize
    from twinkle.remote.setup import shutdown as shutdown
    from twinkle.remote.shares import share as share

_HOMES = {
    "Global": "markers",
    "RemoteDataLoader": "loading",
    "Rows": "markers",
    "Same": "markers",
    "Sharded": "handle",
    "Zipped": "handle",
    "collect_tensor_dict": "collectors",
    "get_device_placement": "placement_text",
    "initialize": "setup",
    "remote_class": "classes",
    "remote_function": "classes",
    "share": "shares",
    "shutdown": "setup",
    "traffic": "counting",
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
