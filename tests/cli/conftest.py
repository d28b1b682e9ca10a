"""The command in this process: fast, and with what it prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from twinkle.cli.app import run


@dataclass(frozen=True)
class Answer:
    """How the command ended and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def twinkle(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """Runs the command with these words; a number of columns may be given."""

    def command(*words: object, columns: int = 80) -> Answer:
        monkeypatch.setenv("COLUMNS", str(columns))
        code = run([str(word) for word in words])
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return command
