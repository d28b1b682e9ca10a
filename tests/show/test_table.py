"""Tables of plain text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinkle.show.table import display_width, plain, table, wrapped

WORDS = st.text(alphabet="ab ,中文あ한é́", max_size=40)


@pytest.mark.parametrize(
    ("text", "columns"),
    [("rank", 4), ("训练", 4), ("\uff54\uff50", 4), ("한글", 4), ("é", 1), ("e\u0301", 1), ("a中", 3)],
)
def test_a_wide_character_takes_two_columns_and_a_combining_one_none(text: str, columns: int) -> None:
    assert display_width(text) == columns


@given(WORDS, st.integers(2, 20))
def test_wrapped_lines_fit_and_lose_nothing_but_spaces(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(display_width(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@given(st.lists(st.tuples(WORDS, WORDS, st.integers(0, 10**6)), min_size=1, max_size=4), st.integers(40, 120))
def test_a_table_fits_its_width_and_keeps_every_character(rows: list[tuple[str, str, int]], width: int) -> None:
    text = table(["name", "what", "count"], rows, width=width, right="  r")
    assert all(display_width(line) <= width for line in text.splitlines())
    shown = sorted(text.replace(" ", "").replace("\n", ""))
    assert shown == sorted("namewhatcount" + "".join(f"{a}{b}{n}" for a, b, n in rows).replace(" ", ""))


def test_columns_line_up_below_chinese_names() -> None:
    text = table(["group", "node"], [["训练组", "节点一"], ["infer", "n1"]], width=80)
    assert text == "group   node\n训练组  节点一\ninfer   n1"


def test_a_row_that_is_a_text_is_a_line_of_its_own() -> None:
    assert table(["a", "b"], [["1", "2"], "... 3 more ...", ["4", "5"]], width=20).splitlines()[2] == "... 3 more ..."


def test_nothing_in_a_cell_steers_the_terminal() -> None:
    assert plain("n\x1b[31m1\n\t") == r"n\x1b[31m1\n\t"
