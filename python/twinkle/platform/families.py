"""The accelerator families: one table of what differs between them, and how to find this host's.

A family is more than a torch device type: ROCm answers to torch's `cuda` but is masked by its own variable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from twinkle.errors import DeviceError, MeshError, TwinkleError

from .checks import shown

__all__ = ["FAMILIES", "Family", "detect", "detect_family", "device_type_of", "family_of"]


@dataclass(frozen=True)
class Family:
    """One kind of accelerator: how torch, c10d, its runtime and Ray call it."""

    name: str
    aliases: tuple[str, ...]
    #: The device type torch knows: `torch.device(prefix, 0)`, `torch.<prefix>`.
    prefix: str
    #: The c10d backend for tensors on the device.
    backend: str
    #: The variable that lists the devices a process may see; None when there is none.
    mask: str | None
    #: The Ray resource that counts the devices.
    resource: str
    #: Set to "1", these keep Ray from writing the mask itself.
    noset: tuple[str, ...] = ()
    #: What ids other than integers begin with.
    id_prefixes: tuple[str, ...] = ()
    #: Whether the runtime wants the ids of a mask in ascending order.
    ascending: bool = False
    #: The module that gives torch this device, when torch does not have it built in.
    plugin: str | None = None
    #: Names under /dev that show the hardware, with any trailing number left out.
    files: tuple[str, ...] = ()
    #: Variables of which one must be set beside a file, where the file alone shows too little.
    hints: tuple[str, ...] = ()


def _noset(mask: str) -> tuple[str, ...]:
    return (f"RAY_EXPERIMENTAL_NOSET_{mask}",)


#: In the order in which a host is searched for them: an accelerator that needs a plug-in comes before the general ones.
_TABLE = (
    Family("mlu", (), "mlu", "cncl", "MLU_VISIBLE_DEVICES", "MLU", plugin="torch_mlu", files=("cambricon_dev",)),
    Family("musa", (), "musa", "mccl", "MUSA_VISIBLE_DEVICES", "MUSA", plugin="torch_musa", files=("mtgpu.",)),
    Family(
        "npu",
        ("ascend",),
        "npu",
        "hccl",
        "ASCEND_RT_VISIBLE_DEVICES",
        "NPU",
        _noset("ASCEND_RT_VISIBLE_DEVICES"),
        ascending=True,
        plugin="torch_npu",
        files=("davinci",),
    ),
    Family(
        "hpu",
        (),
        "hpu",
        "hccl",
        "HABANA_VISIBLE_MODULES",
        "HPU",
        _noset("HABANA_VISIBLE_MODULES"),
        plugin="habana_frameworks.torch",
        files=("hl", "accel/accel_controlD"),
    ),
    Family(
        "cuda",
        ("gpu", "ppu", "maca"),
        "cuda",
        "nccl",
        "CUDA_VISIBLE_DEVICES",
        "GPU",
        _noset("CUDA_VISIBLE_DEVICES"),
        id_prefixes=("GPU-", "MIG-"),
        files=("nvidia", "dxg"),
    ),
    Family(
        "rocm",
        ("hip",),
        "cuda",
        "nccl",
        "HIP_VISIBLE_DEVICES",
        "GPU",
        _noset("HIP_VISIBLE_DEVICES"),
        id_prefixes=("GPU-", "MIG-"),
        files=("kfd",),
    ),
    Family(
        "xpu",
        (),
        "xpu",
        "xccl",
        "ZE_AFFINITY_MASK",
        "GPU",
        _noset("ZE_AFFINITY_MASK"),
        # An Intel display adapter has the same files, so the oneAPI runtime must show itself too.
        files=("dri/renderD",),
        hints=("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR", "ONEAPI_ROOT"),
    ),
    Family("mps", (), "mps", "gloo", None, "GPU"),
    Family("cpu", (), "cpu", "gloo", None, "CPU"),
)

#: Every family by its name.
FAMILIES: dict[str, Family] = {family.name: family for family in _TABLE}

_BY_WORD: dict[str, Family] = {word: family for family in _TABLE for word in (family.name, *family.aliases)}


def family_of(name: object, *, refuse: type[TwinkleError] = DeviceError) -> Family:
    """The family that a device type names, in any case: `'GPU'`, `'npu'`, `'ascend'`.

    An unknown name is refused with `refuse` and the nearest known one.
    """
    if isinstance(name, Family):
        return name
    if isinstance(name, str):
        family = _BY_WORD.get(name) or _BY_WORD.get(name.strip().lower())
        if family is not None:
            return family
    raise refuse(
        f"unknown device_type {shown(name)}{_nearest(name)}; known are {', '.join(_BY_WORD)}", device_type=name
    )


def device_type_of(name: object, *, refuse: type[TwinkleError] = MeshError) -> str:
    """The torch device type of a family: `'cuda'` for `'GPU'` and for `'rocm'`, `'npu'` for `'ascend'`."""
    return family_of(name, refuse=refuse).prefix


def detect(
    *,
    files: Collection[str] | None = None,
    environ: Mapping[str, str] | None = None,
    modules: Mapping[str, Any] | None = None,
    system: str | None = None,
) -> str:
    """The torch device type of this host's accelerator, `'cuda'` when none shows itself."""
    family = detect_family(files=files, environ=environ, modules=modules, system=system)
    return "cuda" if family is None else family.prefix


def detect_family(
    *,
    files: Collection[str] | None = None,
    environ: Mapping[str, str] | None = None,
    modules: Mapping[str, Any] | None = None,
    system: str | None = None,
) -> Family | None:
    """The family of this host's accelerator, or None; imports nothing and starts no process.

    Device files decide; then torch, when it is loaded already, because a plug-in may have given it a device that has
    no file. What is left out is looked up: `files` (names below /dev), `environ`, `modules` (as `sys.modules`) and
    `system` (`'Darwin arm64'`).
    """
    present = _device_files() if files is None else files
    variables = os.environ if environ is None else environ
    stems = {name.rstrip("0123456789") for name in present}
    for family in _TABLE:
        hinted = not family.hints or any(variables.get(hint) for hint in family.hints)
        if hinted and not stems.isdisjoint(family.files):
            return family
    if (_system() if system is None else system) == "Darwin arm64":
        return FAMILIES["mps"]
    return _torch_family(sys.modules if modules is None else modules)


def _device_files() -> list[str]:
    """The names below /dev that `Family.files` may match."""
    names = []
    for folder in ("", "accel/", "dri/"):
        try:
            names += [folder + name for name in os.listdir(f"/dev/{folder}")]
        except OSError:
            continue
    return names


def _system() -> str:
    if sys.platform != "darwin":
        return sys.platform
    return " ".join((os.uname().sysname, os.uname().machine))


def _torch_family(modules: Mapping[str, Any]) -> Family | None:
    torch = modules.get("torch")
    current = getattr(getattr(torch, "accelerator", None), "current_accelerator", None)
    try:
        device = None if current is None else current()
    except Exception:  # noqa: BLE001 - a broken plug-in must not keep anybody from asking for a rank
        return None
    kind = getattr(device, "type", None)
    if kind == "cuda" and getattr(getattr(torch, "version", None), "hip", None):
        kind = "rocm"
    return FAMILIES.get(str(kind))


def _nearest(name: object) -> str:
    if not isinstance(name, str):
        return ""
    word = name.strip().lower()
    stem, colon, _ = word.partition(":")
    if colon and stem in _BY_WORD:
        return f": a device type has no index, did you mean {stem!r}?"
    from difflib import get_close_matches

    close = get_close_matches(word[:40], _BY_WORD, n=1, cutoff=0.5)
    return f": did you mean {close[0]!r}?" if close else ""
