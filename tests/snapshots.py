"""Texts that are compared with files; run with TWINKLE_SNAPSHOTS=write to accept what is printed now."""

from __future__ import annotations

import os

from tests.support import ROOT

FOLDER = ROOT / "tests" / "snapshots"
#: Read once, because tests run without any variable of twinkle's.
WRITE = os.environ.get("TWINKLE_SNAPSHOTS") == "write"


def assert_snapshot(name: str, text: str) -> None:
    """The text is the one in `tests/snapshots/<name>.txt`."""
    path = FOLDER / f"{name}.txt"
    if WRITE:
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"no snapshot {path.name}; TWINKLE_SNAPSHOTS=write makes it"
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; TWINKLE_SNAPSHOTS=write accepts the change"
