"""Every example runs as a program of its own, outside any job, and says something."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import ROOT, run

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs_and_prints(example: Path) -> None:
    assert run([sys.executable, example]).stdout.strip()
