"""Meshes as plain data and as one line of text."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from twinkle._core import Mesh as CoreMesh
from twinkle.errors import MeshError
from twinkle.platform.checks import shown, whole

__all__ = ["core_described", "described", "one_line"]

_LIST_LIMIT = 2**24
#: More than a mesh has axes, merged ones and their parts counted.
_ENTRY_LIMIT = 1024
_LINE_LIMIT = 199
_KEYS = ("axes", "offset", "strides", "ranks", "merged", "device_type")
_SIZES = ("ulysses_size", "ep_size", "etp_size", "ep_fsdp_size", "vpp_size", "sequence_parallel")


def described(core: CoreMesh, device_type: str | None) -> dict[str, Any]:
    """Plain data that survives JSON: `axes`, then `offset` and `strides` or flat `ranks`, then what is set.

    `merged`, where an axis was merged, lists every axis as `[place, name, size, parts]`, each followed by its parts.
    """
    data: dict[str, Any] = {"axes": dict(zip(core.names, core.shape, strict=True))}
    if core.strides is None:
        if core.world_size > _LIST_LIMIT:
            raise MeshError(
                f"{core.world_size} ranks are more than the {_LIST_LIMIT} (2**24) a list may have; pickle the mesh",
                count=core.world_size,
            )
        data["ranks"] = core.ranks().tolist()
    else:
        data |= {"offset": core.offset, "strides": list(core.strides)}
    entries = core.entries
    if len(entries) > len(core.names):
        data["merged"] = [list(entry) for entry in entries]
    data |= {name: value for name, value in core.options.items() if value}
    if device_type is not None:
        data["device_type"] = device_type
    return data


def core_described(data: Mapping[str, Any]) -> tuple[CoreMesh, str | None]:
    """The core mesh and the device type that `described` wrote."""
    try:
        return _core_described(data)
    except MeshError:
        raise
    except Exception as error:
        # Whatever a mapping of somebody else's raises while it is read.
        raise MeshError(f"not a described mesh: {shown(error)}") from None


def _core_described(data: Mapping[str, Any]) -> tuple[CoreMesh, str | None]:
    if not isinstance(data, Mapping):
        raise MeshError(f"a described mesh is a mapping, not a {type(data).__name__}")
    unknown = [key for key in islice(data, _ENTRY_LIMIT) if key not in _KEYS and key not in _SIZES]
    table, equation = "ranks" in data, "strides" in data
    if unknown or "axes" not in data or table == equation or equation != ("offset" in data):
        raise MeshError(
            f"a described mesh has 'axes', either 'ranks' or 'offset' and 'strides', and options {list(_SIZES)}; "
            f"found {', '.join(shown(key) for key in islice(data, len(_KEYS + _SIZES)))}"
        )
    options = {name: data[name] for name in _SIZES if name in data}
    axes = [(name, _number(size, name)) for name, size in islice(dict(data["axes"]).items(), _ENTRY_LIMIT)]
    entries = [
        (_number(place, "place"), name, _number(size, name), _number(parts, "parts"))
        for place, name, size, parts in islice(data.get("merged", ()), _ENTRY_LIMIT)
    ]
    entries = entries or [(0, name, size, 0) for name, size in axes]
    if table:
        from twinkle.rank_arrays import flat_ranks

        core = CoreMesh.from_entries(entries, 0, [], flat_ranks(data["ranks"]), options)
    else:
        strides = [_number(stride, "a stride", least=-(2**63)) for stride in islice(data["strides"], _ENTRY_LIMIT)]
        core = CoreMesh.from_entries(entries, _number(data["offset"], "offset"), strides, None, options)
        if core.strides != tuple(strides):
            raise MeshError(f"'strides' are {strides}, but those of the axes {shown(axes)} are {core.strides}")
    if list(zip(core.names, core.shape, strict=True)) != axes:
        raise MeshError(f"'axes' {shown(axes)} and 'merged' {shown(data.get('merged'))} disagree")
    device_type: str | None = data.get("device_type")
    return core, device_type


def _number(value: Any, what: object, *, least: int = 0) -> int:
    return whole(value, str(what), MeshError, least=least)


def one_line(core: CoreMesh, device_type: str | None) -> str:
    """The axes outermost first with their sizes, and whatever differs from a plain mesh; under 200 characters."""
    words = [f"{name}={size}" for name, size in zip(core.names, core.shape, strict=True)]
    plain, step = [], 1
    for size in reversed(core.shape):
        plain.append(step)
        step *= size
    if core.strides is None:
        words.append("ranks=<table>")
    elif core.strides != tuple(reversed(plain)):
        words.append(f"strides={core.strides}")
    if core.offset:
        words.append(f"offset={core.offset}")
    words += [f"{name}={value}" for name, value in core.options.items() if value]
    if device_type is not None:
        words.append(f"device_type={device_type!r}")
    text = f"DeviceMesh({', '.join(words)})"
    return text if len(text) <= _LINE_LIMIT else f"{text[: _LINE_LIMIT - 4]}...)"
