"""A stand-in npu for tests on a CPU: torch knows the device type, its count and its current index, and no tensors.

`hccl` is gloo under another name. torch accepts one such registration per process.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any


class StandIn(ModuleType):
    """What torch asks of a device module."""

    def __init__(self, devices: int) -> None:
        super().__init__("torch.npu")
        self.devices = devices
        self.current = 0

    def is_available(self) -> bool:
        return self.devices > 0

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return self.devices

    def current_device(self) -> int:
        return self.current

    def set_device(self, device: int) -> None:
        self.current = int(device)

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """Accept a seed that no kernel will use."""


def register(devices: int = 8) -> StandIn:
    """Give torch an npu with so many devices in this process."""
    import torch.distributed as dist
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as setup

    module = StandIn(devices)
    setup("npu", backend_module=module)

    def gloo(store: Any, rank: int, size: int, timeout: Any) -> Any:
        return dist.ProcessGroupGloo(store, rank, size, timeout)

    dist.Backend.register_backend("hccl", gloo, devices=["npu"])
    return module
