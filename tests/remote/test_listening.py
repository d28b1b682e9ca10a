"""A job on a Ray that `initialize` has started is reached from this machine alone."""

from __future__ import annotations

import ipaddress
import json
import sys

import pytest

from tests.support import run


@pytest.mark.parametrize("before", [(), ("ray",)], ids=["in a fresh process", "where Ray was imported before"])
def test_nothing_of_a_local_ray_listens_beyond_the_loopback(before: tuple[str, ...]) -> None:
    # Its environment says nothing of Ray.
    lines = run([sys.executable, "-m", "tests.remote.listening", *before]).stdout.splitlines()
    seen: dict[str, list[str]] = json.loads(lines[-1])
    bound = {name.split()[0]: addresses for name, addresses in seen.items() if addresses}
    assert {"gcs_server", "raylet"} <= set(bound)
    assert any(name.startswith("ray::") for name in bound)
    for addresses in bound.values():
        for address in addresses:
            found = ipaddress.ip_address(address)
            mapped = getattr(found, "ipv4_mapped", None)
            assert (mapped or found).is_loopback, seen
