"""Tables of plain text that fit a terminal, whatever script the words in them are written in."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unicodedata import category, east_asian_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["display_width", "plain", "table", "wrapped"]

_GAP = 2
_NARROWEST = 8


def plain(text: object) -> str:
    """A text on one line, with characters that would steer the terminal shown as their escapes."""
    return "".join(character if _harmless(character) else ascii(character)[1:-1] for character in str(text))


def _harmless(character: str) -> bool:
    return character.isprintable() or category(character) == "Mn"


def display_width(text: str) -> int:
    """How many columns a terminal gives a text: two to a wide or full-width character, none to a combining one."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def wrapped(text: str, width: int) -> list[str]:
    """A text as lines of at most `width` columns, broken after a space or a comma where there is one."""
    lines = []
    while display_width(text) > width:
        end = _fitting(text, width)
        breaks = [place + 1 for place in range(end) if text[place] in " ,"]
        # A space at the end of a line takes no room.
        if text[end : end + 1] == " ":
            breaks.append(end)
        end = breaks[-1] if breaks and breaks[-1] * 2 > end else end
        lines.append(text[:end].rstrip(" "))
        text = text[end:].lstrip(" ")
    return [*lines, text] if text or not lines else lines


def _fitting(text: str, width: int) -> int:
    """How many characters of a text fit into so many columns, at least one."""
    used = 0
    for count, character in enumerate(text):
        used += _columns(character)
        if used > width:
            return max(count, 1)
    return len(text)


def table(headings: Sequence[str], rows: Iterable[Sequence[object] | str], *, width: int, right: str = "") -> str:
    """Rows below headings in at most `width` columns; long cells are broken into lines.

    A row that is a text is a line of its own. `right` has a letter per column, `r` for those whose cells stand at the
    right, such as numbers.
    """
    lines = [row if isinstance(row, str) else [plain(cell) for cell in row] for row in (headings, *rows)]
    columns = zip(*(row for row in lines if not isinstance(row, str)), strict=True)
    room = width - _GAP * (len(headings) - 1)
    widths = [min(max(map(display_width, column)), max(room, _NARROWEST)) for column in columns]
    while sum(widths) > room and max(widths) > _NARROWEST:
        # The widest column gives way, so that those which must all end equally wide.
        widths[widths.index(max(widths))] -= 1
    sides = right.ljust(len(widths))
    return "\n".join(row if isinstance(row, str) else _broken(row, widths, sides) for row in lines)


def _broken(row: Sequence[str], widths: Sequence[int], sides: str) -> str:
    """One row of a table, as tall as its tallest cell."""
    cells = [wrapped(cell, size) for cell, size in zip(row, widths, strict=True)]
    lines = []
    for number in range(max(map(len, cells))):
        parts = [cell[number] if number < len(cell) else "" for cell in cells]
        lines.append((" " * _GAP).join(map(_placed, parts, widths, sides)).rstrip())
    return "\n".join(lines)


def _placed(text: str, width: int, side: str) -> str:
    space = " " * (width - display_width(text))
    return space + text if side == "r" else text + space
