"""Sources in shards: in how many lanes they are read, and by whom."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loading import flat, leads, loader_of, mesh_of, rank_of
from tests.sources import Forgetful, InShards
from twinkle.dataloader.course import course_of
from twinkle.dataloader.place import Place

pytestmark = pytest.mark.filterwarnings("ignore:the .* shards of this")


@pytest.mark.parametrize(
    ("shards", "batch", "ranks", "lanes"),
    [(8, 8, 4, 8), (16, 64, 4, 16), (10, 8, 4, 4), (7, 8, 4, 4), (9, 8, 4, 4), (100, 64, 4, 4), (63, 64, 4, 32)],
)
def test_a_rank_reads_only_its_own_whatever_the_number_of_shards(
    shards: int, batch: int, ranks: int, lanes: int
) -> None:
    mesh = mesh_of(dp=ranks)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert course_of(InShards([1] * shards), batch, Place(mesh, ranks, 0), 1).lanes == lanes


@pytest.mark.parametrize(
    ("source", "batch", "words"),
    [
        (InShards([1] * 4), 10, "are read in 2 lanes by 4 data ranks, .* each row 2.5 times; batch_size=12 would"),
        (InShards([1] * 2), 8, "are read in 2 lanes by 4 data ranks, .* each row 2 times; with a multiple of 4"),
        (Forgetful([1] * 6), 8, "are read in 2 lanes by 4 data ranks, .* each row 2 times; with a multiple of 4"),
    ],
)
def test_ranks_that_read_what_is_not_theirs_are_told(source: Any, batch: int, words: str) -> None:
    with pytest.warns(UserWarning, match=f"the . shards of this {type(source).__name__} {words}"):
        loader_of(mesh_of(dp=4), 0, source, batch_size=batch)


@given(st.integers(1, 24), st.integers(1, 8), st.integers(1, 4), st.integers(1, 3))
def test_no_number_of_lanes_is_read_by_fewer_ranks(shards: int, ranks: int, more: int, group: int) -> None:
    batch = (ranks + more) * group
    place = Place(mesh_of(dp=ranks), ranks, 0)
    lanes, each, *_ = course_of(InShards([1] * shards), batch, place, group)
    assert lanes * each == batch
    assert lanes <= shards
    assert each % group == 0

    def read(lanes: int) -> float:
        from twinkle.plan import Layout

        layout = Layout.even(batch, ranks, group=group)
        return sum(len({row * lanes // batch for row in layout.rows(rank).tolist()}) for rank in range(ranks)) / lanes

    others = [lanes for lanes in range(1, shards + 1) if batch // group % lanes == 0]
    assert ranks == 1 or read(lanes) == min(map(read, others))


def test_the_rows_of_all_ranks_are_those_of_the_source() -> None:
    for shards, batch in ((7, 8), (9, 8), (10, 12), (6, 16)):
        mesh, sizes = mesh_of(dp=4), [(5 * shard) % 7 for shard in range(shards)]
        got = []
        for rank in leads(mesh):
            loader = loader_of(mesh, rank, InShards(sizes), batch_size=batch, tail="pad")
            with rank_of(mesh, rank):
                got += flat(loader)
        assert set(got) == set(range(sum(sizes)))
