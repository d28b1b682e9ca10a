"""The row count of a mapping that is one row, which knows what to say where that is too few."""

from __future__ import annotations

from typing import Any

__all__ = ["OneRow"]


class OneRow(int):
    """How many rows a mapping has that is one: 1, with the words for who meant another number of them.

    `columns` is how many rows it has where its values are columns, which nobody has ruled out; else None.
    """

    columns: int | None
    name: str
    why: str

    def __new__(cls, name: str, why: str, columns: int | None) -> OneRow:
        """The row `name`; `why` says what it is told by."""
        made = super().__new__(cls, 1)
        made.name, made.why, made.columns = name, why, columns
        return made

    def __reduce__(self) -> Any:
        return int, (1,)

    @property
    def ways(self) -> str:
        """What the mapping is taken for, and how to say what it is."""
        what = "is one row" if self.columns is None else f"may be one row, or {self.columns} in columns"
        return (
            f"{self.name} {what}, as its {self.why}: pass Rows(x) where every value is a column, [x] or more of them "
            "where each is a row, and Same(x) where every worker gets it whole"
        )

    def certain(self) -> OneRow:
        """The same where something else in the call says that it is one row."""
        return OneRow(self.name, self.why, None)
