"""Every bench says which question it answers and whose answer it is; `ratios.py` makes the table from that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_benchmark.fixture import BenchmarkFixture


@pytest.fixture(autouse=True)
def _names_its_question_and_its_side(benchmark: BenchmarkFixture) -> Iterator[None]:
    yield
    assert benchmark.group, 'a bench sets benchmark.group = "<question>, <size>"'
    assert benchmark.extra_info.get("side"), 'a bench sets benchmark.extra_info["side"] = "twinkle" or a peer\'s name'
