"""Binding: the one device of this process, chosen by its launcher's record and checked against what torch sees."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twinkle.errors import DeviceError
from twinkle.platform.checks import shown, whole
from twinkle.platform.detection import detect_family
from twinkle.platform.families import FAMILIES, Family, family_of
from twinkle.platform.reading import LaunchRecord, integer, resolve
from twinkle.platform.visible import visible_devices

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Binding", "bind", "device_name", "own_index"]


@dataclass(frozen=True)
class Binding:
    """What `Platform.bind` decided: who this process is and which device it uses."""

    record: LaunchRecord
    #: As torch spells it: 'cuda:1', 'npu:0', 'cpu'.
    device: str
    #: The device's index among those that this process sees; 0 on the CPU.
    index: int
    #: The value of the family's mask variable; None when it is unset, or when there is none.
    mask: str | None


def bind(platform: str | None = None, *, index: int | None = None) -> Binding:
    """Choose a device, check it, make it torch's current one; see `Platform.bind`."""
    family = detect_family() or FAMILIES["cpu"] if platform is None else family_of(platform)
    chosen = None if index is None else whole(index, "index", DeviceError)
    record = own_record()
    module = None if family.name == "cpu" else _module(family, required=platform is not None)
    count = 0 if module is None else _device_count(family, module)
    if module is None or (count == 0 and platform is None):
        if chosen:
            raise DeviceError(f"index {chosen} is not there: the CPU is one device", index=chosen)
        return Binding(record, "cpu", 0, None)
    mask = _mask(family)
    seen = f"torch sees {count} {family.prefix} device{'' if count == 1 else 's'}{_with_mask(family, mask)}"
    if count == 0:
        raise DeviceError(
            f"device type {family.prefix!r} cannot be bound: {seen}; is its driver there, and this torch built for it?",
            device_type=family.name,
            count=0,
        )
    place = own_index(record, count) if chosen is None else chosen
    if place >= count:
        subject = "local rank" if chosen is None else "index"
        remedy = "; if this process was given a device of its own, insist with bind(index=0)" if chosen is None else ""
        raise DeviceError(
            f"{subject} {place} has no device: {seen}, indices 0 to {count - 1}{remedy}", index=place, count=count
        )
    _select(family, module, place)
    return Binding(record, f"{family.prefix}:{place}", place, mask)


def device_name(family: Family, idx: int | None) -> str:
    """A device as torch spells it; `idx` None is the one that `bind` would choose."""
    place = None if idx is None else whole(idx, "idx", DeviceError)
    if family.name == "cpu":
        return "cpu"
    if place is None:
        mask = _mask(family)
        place = own_index(own_record(), None if mask is None else len(visible_devices(family, mask)))
    return f"{family.prefix}:{place}"


def own_record() -> LaunchRecord:
    """This process's launch record; a Ray driver's is that of a process which nothing launched."""
    from twinkle.platform.platform import Platform, current_reading

    # The rank is asked for too, since torch.distributed may contradict the variables.
    Platform.get_rank()
    reading = current_reading()
    return resolve({}) if reading is None else reading.record()


def own_index(record: LaunchRecord, count: int | None) -> int:
    """The index of a process's device among the `count` it sees: its local rank, or 0 when they are its own."""
    if record.isolated or (count == 1 and _own_step(record)):
        return 0
    from twinkle.platform.platform import Platform

    return max(Platform.get_local_rank(), 0)


#: How a Slurm step gives every task devices of its own: a variable, and what its value begins with.
_TASK_DEVICES = (("SLURM_GPUS_PER_TASK", ""), ("SLURM_GPU_BIND", "single"), ("SLURM_GPUS_BIND", "single"))


def _own_step(record: LaunchRecord) -> bool:
    """Whether this process is a task of a Slurm step in which every task has its own device."""
    variables = os.environ
    if record.launcher not in ("slurm", "torch") or integer(variables.get("SLURM_PROCID", "")) != record.rank:
        return False
    return any(value.startswith(start) for name, start in _TASK_DEVICES if (value := variables.get(name)))


def _mask(family: Family) -> str | None:
    return None if family.mask is None else os.environ.get(family.mask)


def _with_mask(family: Family, mask: str | None) -> str:
    if family.mask is None:
        return ""
    return f" ({family.mask} is unset)" if mask is None else f" ({family.mask}={shown(mask)})"


def _module(family: Family, *, required: bool) -> Any:
    """The module torch has for a family; None when torch lacks it and it is not required."""
    torch = _load(
        "torch", f"device type {family.prefix!r} needs torch", "install twinkle-mesh[torch]", required=required
    )
    if torch is None:
        return None
    module = getattr(torch, family.prefix, None)
    if module is None and family.plugin is not None:
        version = getattr(torch, "__version__", "?")
        package = family.plugin.partition(".")[0]
        remedy = f"install the {package} that belongs to torch {version}, with the driver it needs"
        reason = f"torch {version} has no device type {family.prefix!r}, which {family.plugin} adds"
        _load(family.plugin, reason, remedy, required=required)
        module = getattr(torch, family.prefix, None)
    if module is None and required:
        raise DeviceError(f"this torch has no device type {family.prefix!r}", device_type=family.name)
    return module


def _load(name: str, reason: str, remedy: str, *, required: bool) -> Any:
    """Import a module; one that is absent is refused where it is required, one that is broken always is."""
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        absent = error.name is not None and (name == error.name or name.startswith(f"{error.name}."))
        if absent and not required:
            return None
        why = "it is not installed" if absent else f"importing it fails: {shown(str(error))}"
        raise DeviceError(f"{reason}; {why}. Remedy: {remedy}", module=name) from error
    except Exception as error:
        # A plug-in without its driver raises what it likes, torch_npu even out of `import torch`.
        if name == "torch":
            remedy = "repair the plug-in that fails, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 to go without"
        cause = f"{type(error).__name__}: {str(error)[:300]}"
        raise DeviceError(f"{reason}; importing {name} fails ({cause}). Remedy: {remedy}", module=name) from error


def _device_count(family: Family, module: Any) -> int:
    try:
        return int(_attempt(family, module, "device_count"))
    except AttributeError:
        # torch.mps counts no devices in older versions: there is one or none.
        return int(_attempt(family, module, "is_available"))


def _select(family: Family, module: Any, index: int) -> None:
    if hasattr(module, "set_device"):
        _attempt(family, module, "set_device", index)


def _attempt(family: Family, module: Any, method: str, *arguments: int) -> Any:
    call: Callable[..., Any] = getattr(module, method)
    try:
        return call(*arguments)
    except Exception as error:
        asked = f"torch.{family.prefix}.{method}({', '.join(map(str, arguments))})"
        raise DeviceError(
            f"{asked} fails: {type(error).__name__}: {str(error)[:300]}", device_type=family.name
        ) from error


def torch_device(platform: str | None) -> str:
    """The torch device type of a named family, which must be there; else of this host's accelerator, or `'cpu'`."""
    family = detect_family() or FAMILIES["cpu"] if platform is None else family_of(platform)
    if family.name == "cpu":
        return "cpu"
    module = _module(family, required=platform is not None)
    if module is not None and _device_count(family, module) > 0:
        return family.prefix
    if platform is None:
        return "cpu"
    raise DeviceError(
        f"device type {family.prefix!r} is not on this host: torch sees none{_with_mask(family, _mask(family))}",
        device_type=family.name,
        count=0,
    )
