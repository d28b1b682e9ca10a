"""Meshes as plain data and as one line of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinkle._core import Mesh as CoreMesh
from twinkle.errors import MeshError

__all__ = ["core_described", "described", "one_line"]

_LIST_LIMIT = 2**24
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
    if not isinstance(data, Mapping):
        raise MeshError(f"a described mesh is a mapping, not a {type(data).__name__}")
    unknown = [key for key in data if key not in _KEYS and key not in _SIZES]
    if unknown or "axes" not in data or ("ranks" in data) == ("strides" in data):
        raise MeshError(
            f"a described mesh has 'axes', either 'ranks' or 'offset' and 'strides', and options {list(_SIZES)}; "
            f"found {[str(key) for key in data]}"
        )
    options = {name: data[name] for name in _SIZES if name in data}
    try:
        axes = dict(data["axes"])
        names, sizes = list(axes), [int(size) for size in axes.values()]
        merged = data.get("merged", ())
        entries = [(int(place), str(name), int(size), int(parts)) for place, name, size, parts in merged]
        strides = [int(stride) for stride in data.get("strides", ())]
        offset = int(data.get("offset", 0))
        strides = [stride if size > 1 else 1 for stride, size in zip(strides, sizes, strict=False)]
        entries = entries or [(0, str(name), size, 0) for name, size in zip(names, sizes, strict=True)]
        ranks = None
        if "ranks" in data:
            from twinkle.rank_arrays import flat_ranks

            ranks = flat_ranks(data["ranks"])
        core = CoreMesh.from_entries(entries, offset, strides, ranks, options)
    except MeshError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise MeshError(f"not a described mesh: {error}") from None
    if dict(zip(core.names, core.shape, strict=True)) != axes:
        raise MeshError(f"'axes' {axes} and 'merged' {data.get('merged')} disagree")
    device_type: str | None = data.get("device_type")
    return core, device_type


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
