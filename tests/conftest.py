"""How every test runs: outside any job, with a fixed number of random examples, the same each time."""

from __future__ import annotations

import os

import hypothesis
import pytest

from tests.support import LAUNCHER_VARIABLE

# A test asserts no time, so an example has no deadline and may be drawn slowly; pytest's timeout ends what hangs.
TIMELESS = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
# What must pass passes or fails alike each time; `long` looks for examples that nobody has seen.
hypothesis.settings.register_profile("short", TIMELESS, max_examples=100, derandomize=True)
hypothesis.settings.register_profile("long", TIMELESS, max_examples=5000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))


@pytest.fixture(autouse=True)
def _outside_any_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher's variable reaches a test, whatever started the tests."""
    for name in [name for name in os.environ if LAUNCHER_VARIABLE.fullmatch(name)]:
        monkeypatch.delenv(name)
