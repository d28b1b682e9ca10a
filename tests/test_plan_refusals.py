"""Refusals of plans: their words, and that nothing else comes out of any public function whatever goes in."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support import LIMIT
from twinkle import plan
from twinkle.errors import PlanError, TwinkleError
from twinkle.mesh import DeviceMesh
from twinkle.plan import Layout

EVEN = Layout.even(5, 2)
MESH = DeviceMesh.from_sizes(dp_size=4, tp_size=2)
PLACED = MESH.placement(collect_from="any")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Layout.even(-1, 2), "n must be from 0 to 9223372036854775807, not -1"),
        (lambda: Layout.even(2**63, 2), "n must be from 0 to 9223372036854775807, not 9223372036854775808"),
        (lambda: Layout.even(5, 0), "shards must be from 1 to 16777216, not 0"),
        (lambda: Layout.even(5, 2**24 + 1), "shards must be from 1 to 16777216, not 16777217"),
        (lambda: Layout.even(5.0, 2), r"n must be a whole number, not 5.0 \(float\)"),  # type: ignore[arg-type]
        (lambda: Layout.even(True, 2), r"n must be a whole number, not True \(bool\)"),
        (lambda: Layout.even("5", 2), r"n must be a whole number, not '5' \(str\)"),  # type: ignore[arg-type]
        (lambda: Layout.even(5, 2, group=2), "n 5 is no multiple of group 2: .* so hand over whole groups"),
        (lambda: Layout.even(5, 2, group=0), "group must be from 1"),
        (lambda: Layout.padded(0, 2), "0 rows over 2 data shards: there is no row that padding could repeat"),
        (lambda: Layout.padded(5, 2, multiple=0), "multiple must be from 1"),
        (lambda: Layout.padded(2, 2, multiple=2**24), "padding would have 33554430 items, and at most 16777216"),
        (lambda: Layout.balanced([1, 2, 3], 2, group=2), "n 3 is no multiple of group 2"),
        (lambda: Layout.balanced([1, -2], 2), r"weights\[1\] must be from 0 to 9223372036854775807, not -2"),
        (lambda: Layout.balanced(np.array([1, -2]), 2), r"weights\[1\] must be from 0"),
        (lambda: Layout.balanced([1.5], 2), r"weights\[0\] must be a whole number, not 1.5"),
        (lambda: Layout.balanced(np.array([1.5]), 2), r"weights\[0\] must be a whole number, not 1.5"),
        (lambda: Layout.balanced(np.array([True]), 2), r"weights\[0\] must be a whole number, not True"),
        (lambda: Layout.balanced("123", 2), r"weights must be a list, range or one-dimensional array of whole numbers"),
        (lambda: Layout.balanced({1: 2}, 2), "weights must be a list"),  # type: ignore[arg-type]
        (lambda: Layout.balanced(np.ones((2, 2), int), 2), r"weights\[0\] must be a whole number"),
        (lambda: Layout.balanced([2**62] * 2, 2), "the weights add up to more than 9223372036854775807"),
        (lambda: Layout.balanced([1], 2, equal=1), "equal must be True or False, not 1"),  # type: ignore[arg-type]
        (
            lambda: Layout.balanced([1], 2, method="best"),  # type: ignore[arg-type]
            r'method must be one of \["greedy", "refined"\], not \'best\'',
        ),
        (
            lambda: Layout.minibatched(3, 4, 1),
            "3 rows over 4 data shards in 1 mini-batches: shard 3 has no row in mini-batch 0; hand over more rows, or "
            "set pad=True",
        ),
        (lambda: Layout.minibatched(1, 2, 1), "1 row over 2 data shards in 1 mini-batches: shard 1 has no row"),
        (lambda: Layout.minibatched(0, 4, 1, pad=True), "0 rows over 4 data shards: there is no row"),
        (lambda: Layout.chunked(5, 0), "size must be from 1"),
        (lambda: Layout.chunked(2**40, 1), "chunks would have 1099511627776 items, and at most 16777216"),
        (lambda: Layout.chunked(4, 3, group=2), "size 3 is no multiple of group 2"),
        (lambda: Layout.explicit([[0, 1], [1]]), "row 1 sits in shard 0 and again in shard 1"),
        (lambda: Layout.explicit([[0, 0]]), "row 0 sits in shard 0 and again in shard 0"),
        (
            lambda: Layout.explicit([[0], [2]]),
            "row 1 is missing: the 2 rows of the shards must be 0 up to 2, exclusive",
        ),
        (lambda: Layout.explicit([[0], [-1]]), r"rows\[1\]\[0\] must be from 0"),
        (lambda: Layout.explicit([[0], "1"]), r"rows\[1\] must be a list"),
        (lambda: Layout.explicit([[0, 1], [2, 3]], [[4], []]), r"pads\[0\] names row 4, but there are 4 rows"),
        (lambda: Layout.explicit([[0], [1]], [[0]]), "lists of pads, one per shard: 2 expected, 1 found"),
        (
            lambda: Layout.explicit([[0, 2], [1, 3]], group=2),
            "rows 0 to 1 are one group of 2 and must sit next to each",
        ),
        (lambda: Layout.explicit([[0, 1], [2, 3]], [[0, 2], []], group=2), "rows 0 to 1 are one group of 2"),
        (lambda: EVEN.rows(2), "there is no shard 2: 2 shards count from 0 up to 2, exclusive"),
        (lambda: EVEN.take([1] * 5, -1), "there is no shard -1"),
        (lambda: Layout.even(2**40, 1).rows(0), "the rows of a shard would have 1099511627776 items"),
        (lambda: Layout.even(0, 2).loss_scale(0), "0 rows over 2 data shards have no loss scale"),
        (lambda: Layout.even(2, 4).require_rows(), r"^2 rows over 4 data shards: shards \[2, 3\] would be empty$"),
        (lambda: Layout.even(1, 2).require_rows(), r"^1 row over 2 data shards: shards \[1\] would be empty$"),
        (lambda: Layout.even(0, 2).require_rows(), r"^0 rows over 2 data shards: shards \[0, 1\] would be empty$"),
        (
            lambda: Layout.even(32, 128).require_rows(),
            r"^32 rows over 128 data shards: shards \[32, 33, 34, \.\.\., 127\] \(96 of them\) would be empty$",
        ),
        (lambda: EVEN.reshard(Layout.even(6, 2)), "a layout of 5 rows and one of 6 rows do not hold the same rows"),
        (lambda: EVEN.reshard([0]), "other must be a Layout, not a list"),  # type: ignore[arg-type]
        (lambda: EVEN.pad_moves(Layout.even(6, 2)), "do not hold the same rows"),
        (lambda: EVEN.select([5]), "select names row 5, but there are 5 rows"),
        (lambda: EVEN.select(range(4, 6)), "select names row 5, but there are 5 rows"),
        (lambda: EVEN.slice(3, 2), "start must be from 0 to 2, not 3"),
        (lambda: EVEN.slice(0, 6), "stop must be from 0 to 5, not 6"),
        (lambda: EVEN.repeat(2**30), "the rows of repeat would have 5368709120 items"),
        (lambda: EVEN.repeat(-1), "times must be from 0"),
        (lambda: EVEN.expand([1]), "counts, one per row: 5 expected, 1 found"),
        (lambda: EVEN.expand([2**40] * 5), "the rows of expand would have 5497558138880 items"),
        (lambda: EVEN.minibatch(0), "this layout of 5 rows over 2 shards has no mini-batches"),
        (lambda: Layout.minibatched(4, 2, 2).minibatch(2), "minibatch must be from 0 to 1, not 2"),
        (lambda: EVEN.concat(Layout.even(5, 3)), "concat: 2 shards on one side, 3 on the other"),
        (lambda: EVEN.rebalance([1]), "weights, one per row: 5 expected, 1 found"),
        (lambda: EVEN.pack([1], 5), "lengths, one per row: 5 expected, 1 found"),
        (Layout, "a layout is made by Layout.even"),
        (lambda: Layout._from_bytes(b"\xff\xff"), "these bytes are no layout"),
    ],
)
def test_refusals_say_what_was_asked_and_what_would_do(call: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        call()


@given(st.data())
def test_bytes_that_are_no_plan_are_refused(data: st.DataObject) -> None:
    made: list[Any] = [
        Layout.even(12, 4),
        Layout.balanced([5, 1, 4, 2, 3, 3], 3),
        Layout.minibatched(9, 4, 2, pad=True).select([3, 1, 1]),
        Layout.padded(5, 2, multiple=3).concat(EVEN),
        Layout.explicit([[2, 0], [1]], [[1], []]).repeat(2),
        DeviceMesh.from_sizes(dp_size=2, pp_size=2, tp_size=2).placement(),
        DeviceMesh.from_sizes(dp_size=2, tp_size=2).placement(workers=[[1, 0], [2], [3]]),
    ]
    value = data.draw(st.sampled_from(made))
    read, (raw,) = value.__reduce__()
    changed = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    cut = bytes(changed[: data.draw(st.integers(0, len(changed)))])
    for candidate in (cut, bytes(changed), data.draw(st.binary(max_size=40))):
        try:
            other = read(candidate)
        except TwinkleError:
            continue
        assert read(other.__reduce__()[1][0]) == other, "what is read is a whole value"
        if isinstance(other, Layout):
            assert sum(length for *_, length in other.copies().tolist()) == other.n


VALUES = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([2**31, 2**63 - 1, 2**63, 2**64, 2**200, -(2**70)]),
    st.none(),
    st.booleans(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.lists(st.integers(-2, 6), max_size=6),
    st.lists(st.lists(st.integers(0, 6), max_size=5), max_size=4),
    st.dictionaries(st.text(max_size=2), st.lists(st.integers(), max_size=5), max_size=2),
    st.sampled_from(
        [
            np.arange(5),
            np.int64(3),
            np.zeros((2, 2)),
            np.array(["a"]),
            torch.arange(5),
            torch.tensor(2),
            object(),
            range(5),
            range(2**70),
            EVEN,
            DeviceMesh.from_sizes(dp_size=2).placement(),
            Layout,
            len,
            float("nan"),
            {1, 2},
            iter([1]),
        ]
    ),
)
STATIC: list[tuple[Any, int]] = [
    (Layout.even, 2),
    (lambda n, shards, group: Layout.even(n, shards, group=group), 3),
    (lambda n, shards, multiple: Layout.padded(n, shards, multiple=multiple), 3),
    (lambda weights, shards, equal: Layout.balanced(weights, shards, equal=equal), 3),
    (lambda weights, group, method: Layout.balanced(weights, 2, group=group, method=method), 3),
    (lambda n, shards, minibatches: Layout.minibatched(n, shards, minibatches, rotate=True), 3),
    (lambda n, minibatches, pad: Layout.minibatched(n, 2, minibatches, pad=pad), 3),
    (Layout.chunked, 2),
    (Layout.explicit, 2),
    (plan.pack, 3),
    (lambda lengths, cuts, fill: plan.pack(lengths, 5, 1, cuts, 1, fill), 3),
    (plan.route, 4),
    (lambda moves, near, node: plan.route(moves, PLACED, PLACED, near, node, node), 3),
    (MESH.placement, 3),
]
METHODS = {
    "rows": 1,
    "pads": 1,
    "is_pad": 1,
    "loss_scale": 1,
    "cuts": 1,
    "take": 2,
    "collect": 1,
    "dispatch": 2,
    "reshard": 1,
    "pad_moves": 1,
    "select": 1,
    "slice": 2,
    "repeat": 1,
    "expand": 1,
    "minibatch": 1,
    "concat": 1,
    "rebalance": 1,
    "pack": 5,
}


@given(st.data())
def test_whatever_goes_in_only_answers_and_refusals_come_out(data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        call, count = data.draw(st.sampled_from(STATIC))
    else:
        layout = data.draw(
            st.sampled_from([EVEN, Layout.minibatched(5, 2, 2), EVEN.select([0, 0, 4]), Layout.even(0, 1)])
        )
        name = data.draw(st.sampled_from(sorted(METHODS)))
        call, count = getattr(layout, name), METHODS[name]
    arguments = [data.draw(VALUES) for _ in range(count)]
    with contextlib.suppress(TwinkleError):
        call(*arguments)


def test_ids_are_the_same_in_every_process() -> None:
    code = (
        "from twinkle.plan import Layout;"
        "print(Layout.even(12, 4).id, Layout.balanced([5, 1, 4], 2).id, Layout.even(12, 4).select([3, 1]).id)"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        ).stdout
        for seed in ("0", "1", "5", "7")
    }
    assert len(printed) == 1
    assert printed == {
        f"{Layout.even(12, 4).id} {Layout.balanced([5, 1, 4], 2).id} {Layout.even(12, 4).select([3, 1]).id}\n"
    }
