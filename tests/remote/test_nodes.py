"""Two nodes on the loopback: where workers go, and what a killed node ends."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.support import run


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    lines = run([sys.executable, "-m", "tests.remote.two_nodes"]).stdout.splitlines()
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def test_ranks_fill_one_node_and_then_the_next(seen: dict[str, Any]) -> None:
    assert seen["nodes"] == [True, True, False]
    assert seen["masks"] == ["0", "1", "0", "1"]
    assert seen["placement"].count("127.0.0.1 (") == 3


def test_a_killed_node_ends_the_call_and_leaves_the_rows_of_the_other(seen: dict[str, Any]) -> None:
    assert seen["call"].startswith("RemoteCallError: Echo.fails_on failed on worker ")
    assert any(f"worker {worker} " in seen["call"] for worker in seen["killed"])
    assert seen["done"] == [], "the workers of the other node still wait"
    assert isinstance(seen["row"], int)
    assert seen["left"] == []
