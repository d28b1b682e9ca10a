"""Plans that went wrong elsewhere, each with the numbers that are right."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.test_plan_placement import mesh_of
from twinkle.errors import PlanError
from twinkle.mesh import DeviceMesh
from twinkle.plan import Layout, route


def test_uneven_batches_are_cut_one_row_apart() -> None:  # B26, B28
    assert Layout.even(6, 4).reshard(Layout.even(6, 1))[:, [0, 3, 4]].tolist() == [
        [0, 0, 2],
        [1, 2, 2],
        [2, 4, 1],
        [3, 5, 1],
    ]
    assert Layout.even(5, 4).sizes.tolist() == [2, 1, 1, 1]


def test_fewer_rows_than_shards_are_refused_up_front_or_padded_and_trimmed() -> None:  # B28
    placement = DeviceMesh.from_sizes(dp_size=128).placement()
    prompts = [f"prompt {row}" for row in range(32)]
    with pytest.raises(PlanError, match=r"32 rows over 128 data shards: shards .* 127"):
        Layout.even(32, 128).dispatch(prompts, placement)
    padded = Layout.padded(32, 128)
    sent = padded.dispatch(prompts, placement)
    assert (len(sent), {len(part) for part in sent}) == (128, {1})
    assert sum(len(padded.pads(shard)) for shard in range(128)) == 96
    assert padded.collect(sent) == prompts
    with pytest.raises(PlanError, match=r"3 rows over 4 data shards: shards \[3\] would be empty"):
        Layout.even(3, 4).dispatch([1, 2, 3], DeviceMesh.from_sizes(dp_size=4).placement())


@pytest.mark.parametrize(
    "batch",
    [[1, 2, 3], (1, 2, 3), np.arange(3), torch.arange(3), {"rows": [1, 2, 3]}, {"deep": {"rows": (1, 2, 3)}}],
    ids=lambda batch: type(batch).__name__,
)
def test_one_rule_of_length_for_every_container(batch: object) -> None:  # B29, D15, D20
    four = DeviceMesh.from_sizes(dp_size=4).placement()
    with pytest.raises(PlanError, match=r"3 rows over 4 data shards: shards \[3\] would be empty"):
        Layout.even(3, 4).dispatch(batch, four)
    pieces = Layout.even(3, 3).dispatch(batch, DeviceMesh.from_sizes(dp_size=3).placement())
    assert [type(piece) for piece in pieces] == [type(batch)] * 3


def test_columns_of_one_batch_must_be_equally_long() -> None:  # B29, D19
    with pytest.raises(PlanError, match=r"column \['advantages'\] has 5 rows, and column \['inputs'\] has 8"):
        Layout.even(8, 4).take({"inputs": [0] * 8, "advantages": [0] * 5}, 0)


def test_padding_larger_than_the_data_repeats_rows_in_turn() -> None:  # B30
    layout = Layout.padded(3, 8)
    parts = [layout.take(["a", "b", "c"], shard) for shard in range(8)]
    assert [part[0] for part in parts] == ["a", "b", "c", "a", "b", "c", "a", "b"]
    assert layout.collect(parts) == ["a", "b", "c"]
    assert [layout.loss_scale(shard) for shard in range(8)] == [8 / 3] * 3 + [0.0] * 5
    with pytest.raises(PlanError, match="0 rows over 8 data shards: there is no row that padding could repeat"):
        Layout.padded(0, 8)


def test_a_last_micro_batch_may_be_short() -> None:  # B33
    assert Layout.chunked(146, 4).sizes.tolist() == [4] * 36 + [2]


def test_results_come_back_in_data_order_on_any_mesh() -> None:  # B44, D1
    for ranks in (None, [2, 0, 3, 1]):
        mesh = mesh_of([("fsdp", 2), ("dp", 2)], ranks=ranks)
        placement = mesh.placement()
        layout = Layout.even(8, 4)
        sent = layout.dispatch(list(range(8)), placement)
        assert sent == [[0, 1], [4, 5], [2, 3], [6, 7]]
        assert layout.collect([sent[worker] for worker in placement.representative]) == list(range(8))


def test_every_row_comes_back_once_from_the_last_stage() -> None:  # B45, D9, D14
    placement = mesh_of([("pp", 2), ("dp", 2), ("tp", 2)]).placement()
    assert placement.representative.tolist() == [4, 6]
    layout = Layout.even(10, 2)
    sent = layout.dispatch(list(range(10)), placement)
    assert [sent[4], sent[6]] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert layout.collect([sent[worker] for worker in placement.representative]) == list(range(10))
    assert mesh_of([("cp", 2), ("dp", 2)]).placement().representative.tolist() == [0, 1]


def test_rows_go_from_sampler_to_trainer_once_per_receiver() -> None:  # B46, D37
    sampler = mesh_of([("dp", 4)]).placement()
    trainer = mesh_of([("pp", 2), ("dp", 2), ("tp", 2)]).placement()
    moves = Layout.even(10, 4).reshard(Layout.even(10, 2))
    assert moves.tolist() == [[0, 0, 0, 0, 3], [1, 0, 0, 3, 2], [1, 2, 1, 0, 1], [2, 0, 1, 1, 2], [3, 0, 1, 3, 2]]
    assert [trainer.members(shard).tolist() for shard in range(2)] == [[0, 1, 4, 5], [2, 3, 6, 7]]
    routed = route(moves, sampler, trainer)
    assert int(routed[:, 4].sum()) == 8 * 5, "each of 8 workers receives its 5 rows and no more"


def test_collecting_needs_no_search_at_any_size() -> None:  # B48, D34
    mesh = DeviceMesh.from_sizes(world_size=2**20, tp_size=4, pp_size=2)
    placement = mesh.placement()
    assert placement.shards == 131072
    assert placement.representative[:2].tolist() == [2**19, 2**19 + 4]
    assert placement.members(0).tolist() == [0, 1, 2, 3, 2**19, 2**19 + 1, 2**19 + 2, 2**19 + 3]


def test_meshes_without_a_data_axis_are_one_shard() -> None:  # D10
    assert mesh_of([("tp", 4)]).placement().shard_of_worker.tolist() == [0, 0, 0, 0]
    assert mesh_of([("fsdp", 4)]).placement().shard_of_worker.tolist() == [0, 1, 2, 3]


def test_an_uneven_tensor_comes_back_without_a_row_that_was_never_there() -> None:  # D23, D26, D30
    layout = Layout.even(5, 2)
    for batch in (
        torch.tensor([2**24 + 1, 1, 2, 3, 4]),
        torch.tensor([True, False, True, False, True]),
        torch.arange(5, dtype=torch.uint8),
        torch.zeros(5, 2, 3),
    ):
        again = layout.collect([layout.take(batch, 0), layout.take(batch, 1)])
        assert again.dtype == batch.dtype
        assert torch.equal(again, batch)


def test_the_loss_of_uneven_shards_is_the_mean_over_rows() -> None:  # D29
    layout = Layout.even(4, 2)
    uneven = Layout.explicit([[0, 1, 2], [3]])
    assert sum(layout.loss_scale(shard) * loss for shard, loss in enumerate([1.0, 5.0])) / 2 == 3.0
    assert sum(uneven.loss_scale(shard) * loss for shard, loss in enumerate([1.0, 5.0])) / 2 == 2.0


def test_rows_of_a_batch_do_not_depend_on_the_shards_they_resume_on() -> None:  # B33, dispatch 1.2 (18)
    four, six = Layout.even(12, 4), Layout.even(12, 6)
    assert [(24 + four.rows(shard)).tolist() for shard in range(4)] == [
        [24, 25, 26],
        [27, 28, 29],
        [30, 31, 32],
        [33, 34, 35],
    ]
    assert [(24 + six.rows(shard)).tolist()[0] for shard in range(6)] == [24, 26, 28, 30, 32, 34]


def test_padded_layouts_fetch_what_they_cannot_repeat_themselves() -> None:  # dispatch 1.2 (3), (17)
    assert Layout.even(2, 4).pad_moves(Layout.padded(2, 4)).tolist() == [[0, 0, 2, 0, 1], [1, 0, 3, 0, 1]]
    two, four = Layout.even(5, 2), Layout.padded(5, 4)
    assert two.reshard(four).tolist() == [[0, 0, 0, 0, 2], [0, 2, 1, 0, 1], [1, 0, 2, 0, 1], [1, 1, 3, 0, 1]]
    assert two.pad_moves(four).tolist() == []
    balanced = Layout.balanced([900, 100, 400, 300, 800, 200, 600, 500], 2)
    assert Layout.even(8, 4).reshard(balanced).tolist() == [
        [0, 0, 0, 0, 2],
        [1, 0, 0, 2, 1],
        [3, 1, 0, 3, 1],
        [1, 1, 1, 0, 1],
        [2, 0, 1, 1, 2],
        [3, 0, 1, 3, 1],
    ]
    assert balanced.copies().tolist() == [[0, 0, 0, 3], [1, 0, 3, 4], [0, 3, 7, 1]]
