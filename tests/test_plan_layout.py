"""Layouts: every split, the algebra and reshard against the oracle, and the handed cases."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import plan_oracle as oracle
from tests.support import cases
from twinkle.errors import PlanError
from twinkle.plan import Layout, Method

CASES = cases("plan")

small = st.integers(0, 40)
few = st.integers(1, 9)
group_size = st.integers(1, 3)


def rows_of(layout: Layout) -> list[list[int]]:
    return [layout.rows(shard).tolist() for shard in range(layout.shards)]


def pads_of(layout: Layout) -> list[list[int]]:
    return [layout.pads(shard).tolist() for shard in range(layout.shards)]


def split(case: dict[str, Any]) -> Layout:
    n, shards = case["n"], case["shards"]
    if case["split"] == "even":
        return Layout.even(n, shards)
    if case["split"] == "pad":
        return Layout.padded(n, shards, multiple=case["multiple"])
    if case["split"] == "balanced":
        return Layout.balanced(case["weights"], shards, equal=case["equal"], group=case["group"])
    return Layout.minibatched(n, shards, case["minibatches"], rotate=case["rotate"])


@st.composite
def layouts(draw: st.DrawFn, n: int | None = None) -> Layout:
    """A layout of any split, over n rows where n is given."""
    shards = draw(few)
    n = draw(st.integers(0, 30)) if n is None else n
    kind = draw(st.sampled_from(["even", "padded", "balanced", "minibatched", "chunked", "explicit"]))
    if kind == "padded" and n:
        return Layout.padded(n, shards, multiple=draw(few))
    if kind == "balanced":
        weights = draw(st.lists(st.integers(0, 20), min_size=n, max_size=n))
        method: Method = draw(st.sampled_from(["greedy", "refined"]))
        return Layout.balanced(weights, shards, equal=draw(st.booleans()), method=method)
    if kind == "minibatched" and n:
        return Layout.minibatched(n, shards, draw(few), pad=True)
    if kind == "chunked":
        return Layout.chunked(n, draw(few))
    if kind == "explicit":
        order = draw(st.permutations(range(n)))
        borders = sorted(draw(st.lists(st.integers(0, n), min_size=shards - 1, max_size=shards - 1)))
        pads = (
            draw(st.lists(st.lists(st.integers(0, n - 1), max_size=3), min_size=shards, max_size=shards)) if n else None
        )
        return Layout.explicit([order[a:b] for a, b in zip([0, *borders], [*borders, n], strict=True)], pads)
    return Layout.even(n, shards)


@pytest.mark.parametrize("case", CASES["layout"], ids=lambda case: f"{case['split']}-{case['n']}-{case['shards']}")
def test_layouts_are_those_of_the_cases(case: dict[str, Any]) -> None:
    layout = split(case)
    assert rows_of(layout) == case["expect"]["rows"]
    assert pads_of(layout) == case["expect"]["pads"]
    if "loads" in case:
        assert layout.loads.tolist() == case["loads"]
    if "cuts" in case:
        cuts = [layout.cuts(shard) for shard in range(layout.shards)]
        assert [pairs.tolist() for pairs in cuts if pairs is not None] == case["cuts"]


@pytest.mark.parametrize(
    "case", CASES["reshard"], ids=lambda case: f"{case['n']}-{case['from_shards']}-{case['to_shards']}"
)
def test_reshards_are_those_of_the_cases(case: dict[str, Any]) -> None:
    moves = Layout.even(case["n"], case["from_shards"]).reshard(Layout.even(case["n"], case["to_shards"]))
    assert moves.tolist() == case["moves"]
    assert moves.dtype == np.int64


@given(small, few, group_size)
def test_even_deals_out_groups_in_order(groups: int, shards: int, group: int) -> None:
    layout = Layout.even(groups * group, shards, group=group)
    assert rows_of(layout) == oracle.even(groups * group, shards, group)
    sizes = layout.sizes.tolist()
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) in (0, group)


@given(st.integers(1, 40), few, few, group_size)
def test_padded_fills_every_shard_to_one_size(groups: int, shards: int, multiple: int, group: int) -> None:
    layout = Layout.padded(groups * group, shards, multiple=multiple, group=group)
    rows, pads = oracle.padded(groups * group, shards, multiple, group)
    assert (rows_of(layout), pads_of(layout)) == (rows, pads)
    assert len(set(layout.sizes.tolist())) == 1
    assert layout.sizes[0] % multiple == 0
    if group == 1:
        assert sum(map(len, pads)) < shards * multiple or groups < shards
    if groups >= shards:
        assert layout.real_sizes.min() >= 1


@given(st.lists(st.integers(0, 50), max_size=40), few, st.booleans(), group_size)
def test_balanced_gives_the_heaviest_group_to_the_lightest_shard(
    weights: list[int], shards: int, equal: bool, group: int
) -> None:
    weights = weights[: len(weights) // group * group]
    layout = Layout.balanced(weights, shards, equal=equal, group=group)
    rows = oracle.balanced(weights, shards, equal, group)
    assert rows_of(layout) == rows
    assert layout.loads.tolist() == [sum(weights[row] for row in held) for held in rows]


@given(st.lists(st.integers(0, 50), max_size=40), few, st.booleans(), group_size)
def test_refined_is_never_worse_than_greedy(weights: list[int], shards: int, equal: bool, group: int) -> None:
    weights = weights[: len(weights) // group * group]
    greedy = Layout.balanced(weights, shards, equal=equal, group=group)
    refined = Layout.balanced(weights, shards, equal=equal, group=group, method="refined")
    assert refined.loads.max() <= greedy.loads.max()
    assert refined.loads.tolist() == [int(sum(weights[row] for row in refined.rows(s))) for s in range(shards)]
    assert sorted(row for held in rows_of(refined) for row in held) == list(range(len(weights)))
    if equal:
        assert refined.sizes.tolist() == greedy.sizes.tolist()
    for held in rows_of(refined):
        assert held == sorted(held)
        assert all(held[at] % group == at % group for at in range(len(held)))


def test_refined_finds_the_swap_that_greedy_misses() -> None:
    weights = [8, 7, 6, 5, 4]
    assert Layout.balanced(weights, 2, equal=False).loads.tolist() == [17, 13]
    assert Layout.balanced(weights, 2, equal=False, method="refined").loads.tolist() == [15, 15]


@given(st.integers(1, 40), few, few, st.booleans())
def test_minibatched_cells_are_even_inside_even_mini_batches(
    n: int, shards: int, minibatches: int, rotate: bool
) -> None:
    cells = oracle.minibatched(n, shards, minibatches, rotate)
    if any(not rows for cell in cells for rows in cell):
        with pytest.raises(PlanError, match="has no row in mini-batch"):
            Layout.minibatched(n, shards, minibatches, rotate=rotate)
        return
    layout = Layout.minibatched(n, shards, minibatches, rotate=rotate)
    for shard in range(shards):
        rows, cuts = layout.rows(shard), layout.cuts(shard)
        assert cuts is not None
        assert [rows[start:stop].tolist() for start, stop in cuts] == [cell[shard] for cell in cells]
    if rotate:
        assert layout.sizes.max() - layout.sizes.min() <= 1
    for minibatch, cell in enumerate(cells):
        derived = layout.minibatch(minibatch)
        batch = list(range(n))
        assert derived.collect([layout.take(batch, s) for s in range(shards)]) == sorted(
            row for rows in cell for row in rows
        )


@given(st.integers(1, 30), few, few)
def test_minibatched_pads_only_cells_without_a_row(n: int, shards: int, minibatches: int) -> None:
    layout = Layout.minibatched(n, shards, minibatches, pad=True)
    cells = oracle.minibatched(n, shards, minibatches)
    for shard in range(shards):
        held = [row for cell in cells for row in cell[shard]]
        missing = sum(not cell[shard] for cell in cells)
        assert layout.rows(shard).tolist() == held
        assert layout.pads(shard).tolist() == [held[-1] if held else shard % n] * missing
        cuts = layout.cuts(shard)
        assert cuts is not None
        assert [int(stop - start) for start, stop in cuts] == [len(cell[shard]) or 1 for cell in cells]


def test_rotate_pads_only_the_last_mini_batch() -> None:
    layout = Layout.minibatched(7, 4, 2, rotate=True, pad=True)
    assert rows_of(layout) == [[0, 4], [1, 5], [2, 6], [3]] or pads_of(layout)[3] == [3]
    with pytest.raises(PlanError, match="with rotate only the last may be padded"):
        Layout.minibatched(5, 4, 2, rotate=True, pad=True)


@given(small, few, group_size)
def test_chunked_has_full_shards_and_a_short_last_one(groups: int, per_chunk: int, group: int) -> None:
    n, size = groups * group, per_chunk * group
    layout = Layout.chunked(n, size, group=group)
    assert rows_of(layout) == [list(range(start, min(start + size, n))) for start in range(0, n, size)]


@given(layouts())
def test_rows_are_a_partition_and_pads_follow(layout: Layout) -> None:
    assert sorted(row for held in rows_of(layout) for row in held) == list(range(layout.n))
    for shard in range(layout.shards):
        real, size = int(layout.real_sizes[shard]), int(layout.sizes[shard])
        assert layout.is_pad(shard).tolist() == [local >= real for local in range(size)]
        assert len(layout.pads(shard)) == size - real
        if layout.n:
            assert layout.loss_scale(shard) == layout.shards * real / layout.n


@given(layouts())
def test_take_then_collect_is_the_identity(layout: Layout) -> None:
    batch = [f"row {row}" for row in range(layout.n)]
    parts = [layout.take(batch, shard) for shard in range(layout.shards)]
    for shard, part in enumerate(parts):
        assert part == [batch[row] for row in [*layout.rows(shard), *layout.pads(shard)]]
    assert layout.collect(parts) == batch


@given(layouts())
def test_copies_name_every_row_once_by_row(layout: Layout) -> None:
    single = [
        (shard, local + step, row + step)
        for shard, local, row, length in layout.copies().tolist()
        for step in range(length)
    ]
    assert single == oracle.copies(rows_of(layout))


@given(st.data(), st.integers(0, 30))
def test_reshard_is_the_merge_of_both_borders(data: st.DataObject, n: int) -> None:
    source, target = data.draw(layouts(n)), data.draw(layouts(n))
    moves = source.reshard(target)
    assert moves.tolist() == oracle.reshard(rows_of(source), rows_of(target))
    pieces = [source.take(list(range(n)), shard) for shard in range(source.shards)]
    written: list[list[int | None]] = [[None] * int(size) for size in target.sizes]
    for sender, start, receiver, at, length in [*moves.tolist(), *source.pad_moves(target).tolist()]:
        assert written[receiver][at : at + length] == [None] * length, "written once"
        written[receiver][at : at + length] = pieces[sender][start : start + length]
    for shard, part in enumerate(written):
        wanted = [*target.rows(shard).tolist(), *target.pads(shard).tolist()]
        local = {row: row for row in target.rows(shard).tolist()}
        assert [local.get(want) if found is None else found for found, want in zip(part, wanted, strict=True)] == wanted


@given(layouts())
def test_reshard_to_itself_moves_whole_shards(layout: Layout) -> None:
    whole = [[shard, 0, shard, 0, int(size)] for shard, size in enumerate(layout.real_sizes) if size]
    assert layout.reshard(layout).tolist() == whole


@given(st.integers(1, 200), few, few)
def test_even_reshards_move_as_often_as_there_are_borders(n: int, source: int, target: int) -> None:
    inner = {0}
    for shards in (source, target):
        at = 0
        for held in oracle.even(n, shards):
            at += len(held)
            inner.add(at)
    moves = Layout.even(n, source).reshard(Layout.even(n, target))
    assert len(moves) == len(inner - {0, n}) + 1 <= source + target - 1


@given(st.data(), st.integers(1, 20))
def test_derived_layouts_read_the_stored_pieces(data: st.DataObject, n: int) -> None:
    layout = data.draw(layouts(n))
    batch = list(range(100, 100 + n))
    expected = batch
    parts = [layout.take(batch, shard) for shard in range(layout.shards)]
    derived = layout
    for _ in range(data.draw(st.integers(1, 3))):
        step = data.draw(st.sampled_from(["select", "slice", "repeat", "expand"]))
        if step == "select" and expected:
            rows = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=20))
            derived, expected = derived.select(rows), [expected[row] for row in rows]
        elif step == "slice":
            start = data.draw(st.integers(0, len(expected)))
            stop = data.draw(st.integers(start, len(expected)))
            derived, expected = derived.slice(start, stop), expected[start:stop]
        elif step == "repeat":
            times = data.draw(st.integers(0, 3))
            derived, expected = derived.repeat(times), [value for value in expected for _ in range(times)]
        elif step == "expand":
            counts = data.draw(st.lists(st.integers(0, 3), min_size=len(expected), max_size=len(expected)))
            expected = [value for value, count in zip(expected, counts, strict=True) for _ in range(count)]
            derived = derived.expand(counts)
    assert derived.collect(parts) == expected
    taken = [derived.take(batch, shard) for shard in range(derived.shards)]
    for shard, part in enumerate(taken):
        assert part == [expected[row] for row in derived.rows(shard)]
    assert derived.settled().collect(taken) == expected
    target = Layout.even(len(expected), 3)
    written: list[list[int]] = [[0] * int(size) for size in target.sizes]
    for sender, start, receiver, at, length in derived.reshard(target).tolist():
        written[receiver][at : at + length] = parts[sender][start : start + length]
    assert target.collect(written) == expected
    assert pickle.loads(pickle.dumps(derived)) == derived


@given(st.data(), st.integers(0, 15), st.integers(0, 15))
def test_concat_reads_both_pieces_end_to_end(data: st.DataObject, n: int, m: int) -> None:
    first = data.draw(layouts(n))
    second = data.draw(layouts(m).filter(lambda layout: layout.shards == first.shards) | st.just(first))
    joined = first.concat(second)
    batches = list(range(n)), list(range(100, 100 + second.n))
    parts = [first.take(batches[0], s) + second.take(batches[1], s) for s in range(first.shards)]
    assert joined.collect(parts) == [*batches[0], *batches[1]]
    whole = [*batches[0], *batches[1]]
    taken = [joined.take(whole, s) for s in range(first.shards)]
    assert joined.settled().collect(taken) == whole


@given(layouts())
def test_algebra_that_changes_nothing_returns_an_equal_layout_of_ascending_shards(layout: Layout) -> None:
    same = Layout.explicit([sorted(layout.rows(shard)) for shard in range(layout.shards)])
    assert same.select(range(same.n)) == same.slice(0, same.n) == same.repeat(1) == same.expand([1] * same.n) == same
    assert not same.select(range(same.n)).derived


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), few)
def test_rebalance_is_the_balanced_layout_of_the_same_rows(weights: list[int], shards: int) -> None:
    assert Layout.even(len(weights), shards).rebalance(weights) == Layout.balanced(weights, shards)
    with pytest.raises(PlanError, match=f"weights, one per row: {len(weights) + 1} expected, {len(weights)} found"):
        Layout.even(len(weights) + 1, shards).rebalance(weights)


@given(layouts())
def test_layouts_travel_and_keep_their_id(layout: Layout) -> None:
    again = pickle.loads(pickle.dumps(layout))
    assert again == layout
    assert hash(again) == hash(layout)
    assert again.id == layout.id
    assert again.loads.tolist() == layout.loads.tolist()
    assert copy.copy(layout) == copy.deepcopy(layout) == layout


def test_layouts_that_say_the_same_are_equal_however_they_were_made() -> None:
    even = Layout.even(6, 3)
    assert even == Layout.explicit([[0, 1], [2, 3], [4, 5]]) == Layout.chunked(6, 2) == Layout.padded(6, 3)
    assert even != Layout.even(6, 2)
    assert even != Layout.explicit([[1, 0], [2, 3], [4, 5]])
    assert even != Layout.minibatched(6, 3, 2)
    assert even != "a layout"
    assert even.id == Layout.chunked(6, 2).id != Layout.even(6, 2).id
    assert len({even, Layout.chunked(6, 2), Layout.even(6, 2)}) == 2


def test_a_billion_rows_cost_no_more_than_their_shards() -> None:
    layout = Layout.even(10**9, 100_000)
    assert len(pickle.dumps(layout)) < 150
    other = Layout.even(10**9, 77_777)
    moves = layout.reshard(other)
    borders = np.union1d(np.cumsum(layout.sizes), np.cumsum(other.sizes))
    assert len(moves) == len(borders)
    assert int(moves[:, 4].sum()) == 10**9
    assert layout.take(range(10**9), 99_999) == range(10**9 - 10_000, 10**9)
    assert Layout.explicit([range(5 * 10**8, 10**9), range(5 * 10**8)]).real_sizes.tolist() == [5 * 10**8] * 2


def test_the_text_of_a_layout_is_a_table_and_its_repr_a_line() -> None:
    layout = Layout.padded(5, 4)
    assert repr(layout) == "<Layout of 5 rows over 4 shards>"
    assert str(layout).splitlines() == [
        "5 rows over 4 shards",
        "shard  rows  pads  size",
        "    0  0-1            2",
        "    1  2     2        2",
        "    2  3     3        2",
        "    3  4     4        2",
    ]
    assert "load" in str(Layout.balanced([3, 1, 2], 2))
    assert str(Layout.even(10**6, 1000)).endswith("... and 968 more shards")
    assert max(map(len, str(Layout.balanced(list(range(1000)), 7)).splitlines())) <= 80
