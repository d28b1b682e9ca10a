"""How answers reach standard output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from twinkle.show.answers import refuse_long

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["print_csv", "print_json", "print_text", "width"]


def width() -> int:
    """The columns of the terminal; 80 where there is none and COLUMNS does not say."""
    from shutil import get_terminal_size

    return max(get_terminal_size((80, 24)).columns, 40)


def print_text(text: str) -> None:
    """Prints lines of text; a terminal that lacks a character shows its escape."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def print_json(answer: Any) -> None:
    """Prints one line of JSON; ranges and tuples are lists."""
    import json

    print(json.dumps(answer, default=_plain), flush=True)


def _plain(value: Any) -> Any:
    """What JSON has no word for: sequences become lists, up to the longest that is made, mappings objects."""
    refuse_long(len(value), "entries of a list")
    return dict(value) if hasattr(value, "keys") else list(value)


def print_csv(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints lines of comma-separated values under their headings."""
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    sys.stdout.flush()
