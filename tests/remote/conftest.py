"""One local Ray for all tests here, with logical devices in the place of hardware; nothing of it stays behind."""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_for

# Read when Ray is imported, which a test that comes first would do without the variable.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
import ray


@pytest.fixture
def interrupted_at() -> Iterator[Callable[..., None]]:
    """Has this thread interrupted, as by a person, when there are these files.

    SIGINT interrupts, even where whoever started the tests has them ignore it, as a shell does in the background.
    """

    def interrupt(*paths: Path) -> None:
        for path in paths:
            wait_for(path)
        _thread.interrupt_main(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda *paths: threading.Thread(target=interrupt, args=paths, daemon=True).start()
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="package")
def local_ray() -> Iterator[None]:
    ray.init(
        address="local",
        num_cpus=4,
        num_gpus=8,
        resources={"NPU": 8},
        object_store_memory=512 * 1024 * 1024,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=40,
        # No worker is ended because of the memory that others use on this machine.
        _system_config={"memory_monitor_refresh_ms": 0},
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def job(local_ray: None) -> Iterator[None]:
    """Groups of 2, 4 and 8 CPU workers; their processes start with the first component."""
    import twinkle

    groups = [{"name": f"cpu{size}", "ranks": size, "device_type": "cpu"} for size in (2, 4, 8)]
    twinkle.initialize("ray", ncpu_proc_per_node=14, groups=groups)
    yield
    twinkle.shutdown()
