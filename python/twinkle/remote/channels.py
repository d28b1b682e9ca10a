"""Channels: over which process group the bytes of tensors on an accelerator travel, decided alike on all ranks.

Where every rank has a device of its own of that kind, they travel over a group of the device's own backend; else they
are copied to the CPU and travel there.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Able", "able", "backend_for", "kind_of", "landing", "written_kind"]

#: A device type is told as two numbers of this many bytes each.
_BYTES = 7


class Able(NamedTuple):
    """What a rank says of itself: the backend for its device of a kind, and which device that is."""

    backend: str
    device: str


def able(kind: str) -> Able | None:
    """What this rank could do for tensors of a device type; None where it has no such device or no backend for it."""
    import torch
    from torch import distributed

    device = landing(kind)
    if device.type == "cpu":
        return None
    try:
        backend = distributed.get_default_backend_for_device(kind)
    except ValueError:
        return None
    if not distributed.is_backend_available(backend):
        return None
    facts = getattr(torch.get_device_module(kind), "get_device_properties", None)
    identity = None if facts is None else getattr(facts(device.index), "uuid", None)
    return Able(backend, f"{platform.node()}/{kind}:{device.index if identity is None else identity}")


def backend_for(told: Sequence[Able | None]) -> str | None:
    """The backend that all ranks use, by what each said of itself; None for the CPU.

    The collectives of an accelerator need a device of its own in every rank.
    """
    first = told[0]
    if first is None or any(one is None or one.backend != first.backend for one in told):
        return None
    devices = {one.device for one in told if one is not None}
    return first.backend if len(devices) == len(told) else None


def landing(kind: str) -> Any:
    """Where tensors of a device type arrive in this process: its current device of that type, else the CPU."""
    import torch

    here = torch.accelerator.current_accelerator(check_available=True)
    if here is None or here.type != kind:
        return torch.device("cpu")
    return torch.device(kind, torch.accelerator.current_device_index())


def written_kind(kind: str) -> tuple[int, int]:
    """A device type as two numbers, for a tensor of sizes; 0, 0 for none."""
    data = kind.encode()
    return int.from_bytes(data[:_BYTES], "little"), int.from_bytes(data[_BYTES : 2 * _BYTES], "little")


def kind_of(numbers: tuple[int, int]) -> str:
    """The device type that two numbers say; the inverse of `written_kind`."""
    return b"".join(number.to_bytes(_BYTES, "little") for number in numbers).rstrip(b"\0").decode()
