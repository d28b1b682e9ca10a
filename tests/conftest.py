"""How every test runs: outside any job, with a fixed number of random examples, reproducible in CI."""

from __future__ import annotations

import os

import hypothesis
import pytest

from tests.support import LAUNCHER_VARIABLE

# A test asserts no time, so an example has no deadline; pytest's timeout ends what hangs.
hypothesis.settings.register_profile("short", max_examples=100, deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.register_profile("long", max_examples=5000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))


@pytest.fixture(autouse=True)
def _outside_any_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher's variable reaches a test, whatever started the tests."""
    for name in [name for name in os.environ if LAUNCHER_VARIABLE.fullmatch(name)]:
        monkeypatch.delenv(name)
