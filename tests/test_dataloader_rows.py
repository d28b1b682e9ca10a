"""Which rows a data rank gets: partition, replicas, order, tails, lengths, restarts."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loading import (
    Counted,
    Noisy,
    chunks,
    epoch_of,
    flat,
    leads,
    loader_of,
    mesh_of,
    rank_of,
    state_after,
    steps_of,
)
from twinkle import DeviceMesh
from twinkle._core import permuted
from twinkle.dataloader import DataLoader

pytestmark = pytest.mark.filterwarnings("ignore:the last .* rows of the epoch are dropped")

MESHES = [
    mesh_of(dp=1),
    mesh_of(dp=2),
    mesh_of(dp=4),
    mesh_of(dp=3, tp=2),
    mesh_of(fsdp=2, dp=2),
    mesh_of(pp=2, dp=2, tp=2),
    mesh_of(dp=8, ulysses=2),
    DeviceMesh([[7, 2], [0, 5]], ("dp", "cp")),
    DeviceMesh([6, 1, 4], ("dp",)),
]


def kept(rows: int, batch: int, mesh: DeviceMesh | None, tail: str, *, least: int, group: int) -> int:
    """How many rows the plain rule delivers in an epoch."""
    rest = rows % batch
    shards = 1 if mesh is None else mesh.data_world_size
    stays = tail == "pad" or (tail == "keep" and rest >= max(least, shards * group))
    return rows if stays else rows - rest


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    mesh = draw(st.sampled_from([None, *MESHES]))
    shards = 1 if mesh is None else mesh.data_world_size
    group = draw(st.sampled_from([1, 1, 2, 3]))
    batch = group * draw(st.integers(shards, 3 * shards + 2))
    return {
        "mesh": mesh,
        "dataset": range(group * draw(st.integers(0, 40))),
        "batch_size": batch,
        "group": group,
        "tail": draw(st.sampled_from(["keep", "drop", "pad"])),
        "min_batch_size": draw(st.none() | st.integers(1, batch)),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**63 - 1)),
    }


@given(jobs(), st.integers(0, 3))
def test_the_ranks_of_each_step_hold_exactly_the_batch(job: dict[str, Any], epoch: int) -> None:
    mesh, rows = job["mesh"], len(job["dataset"])
    if job["shuffle"]:
        groups = permuted(job["seed"], epoch, rows // job["group"], 0, rows // job["group"]).tolist()
        order = [job["group"] * number + place for number in groups for place in range(job["group"])]
    else:
        order = list(range(rows))
    end = kept(rows, job["batch_size"], mesh, job["tail"], least=job["min_batch_size"] or 0, group=job["group"])
    expected = chunks(order[:end], job["batch_size"])
    got: list[list[int]] = [[] for _ in expected]
    for rank in leads(mesh):
        loader = loader_of(mesh, rank, **{name: value for name, value in job.items() if name != "mesh"})
        loader.set_epoch(epoch)
        assert len(loader) == len(expected)
        with rank_of(mesh, rank):
            for step, batch in enumerate(loader):
                assert batch, "no rank is without a row"
                assert len(batch) % job["group"] == 0
                got[step] += [row for row, pad in zip(batch, loader.is_pad, strict=True) if not pad]
                if step == len(expected) - 1 and rows % job["batch_size"] and job["tail"] == "pad" and mesh is not None:
                    assert len(batch) == max(loader.layout.sizes.tolist())  # type: ignore[union-attr]
    assert got == expected


@given(jobs(), st.data())
def test_a_resume_at_any_step_with_another_dp_size_continues_the_very_sequence(
    job: dict[str, Any], data: st.DataObject
) -> None:
    job["tail"] = data.draw(st.sampled_from(["drop", "pad"]))
    mesh, options = job.pop("mesh"), {name: value for name, value in job.items() if name != "dataset"}
    other = data.draw(
        st.sampled_from(
            [
                mesh
                for mesh in [None, *MESHES]
                if mesh is None or mesh.data_world_size * job["group"] <= job["batch_size"]
            ]
        )
    )
    whole = [
        steps_of(
            mesh, job["dataset"], {**loader_of(mesh, leads(mesh)[0], **job).state_dict(), "epoch": epoch}, **options
        )
        for epoch in range(3)
    ]
    if job["tail"] == "pad":
        whole = [chunks(dict.fromkeys(row for step in epoch for row in step), job["batch_size"]) for epoch in whole]
    sequence = [step for epoch in whole for step in epoch]
    if not whole[0]:
        return
    cut = data.draw(st.integers(0, 2 * len(whole[0])))
    state = state_after(mesh, job["dataset"], cut, **options)
    assert state["epoch"] * len(whole[0]) + -(-state["next_row"] // job["batch_size"]) == cut
    rest = steps_of(other, job["dataset"], state, **options)
    assert [sorted(set(step)) for step in rest] == [
        sorted(step) for step in sequence[cut : (cut // len(whole[0]) + 1) * len(whole[0])]
    ]


@pytest.mark.parametrize("mesh", MESHES, ids=repr)
def test_replicas_get_the_same_rows_in_the_same_order_with_the_same_random_numbers(mesh: DeviceMesh) -> None:
    size = 2 * mesh.data_world_size
    seen: dict[int, Any] = {}
    for position in range(mesh.world_size):
        rank = mesh.rank_at(position)
        batches = epoch_of(mesh, rank, Noisy(4 * size), batch_size=size, shuffle=True)
        assert seen.setdefault(mesh.get_data_rank_from_global_rank(rank), batches) == batches
    assert len({repr(batches) for batches in seen.values()}) == mesh.data_world_size


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_and_random_numbers_do_not_depend_on_the_number_of_workers(workers: int) -> None:
    mesh = mesh_of(dp=2)
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True}
    alone = epoch_of(mesh, 1, Noisy(22), **options)
    assert epoch_of(mesh, 1, Noisy(22), num_workers=workers, **options) == alone
    state = state_after(mesh, Noisy(22), 3, num_workers=workers, prefetch_factor=4, **options)
    assert epoch_of(mesh, 1, Noisy(22), state, **options) == alone[3:]


def test_persistent_workers_go_through_epochs_as_fresh_ones_do() -> None:
    def epochs(**workers: Any) -> Any:
        loader = DataLoader(Noisy(10), batch_size=4, shuffle=True, collate_fn=list, **workers)
        first = next(iter(loader))
        return first, [list(loader) for _ in range(3)], loader.epoch

    kept_alive = epochs(num_workers=2, persistent_workers=True)
    assert kept_alive == epochs()
    assert kept_alive[1][0][0] == kept_alive[0]


def test_two_epochs_differ_and_two_runs_do_not() -> None:
    loader = DataLoader(range(100), batch_size=10, shuffle=True, collate_fn=list)
    first, second = list(loader), list(loader)
    assert first != second
    assert sorted(flat(first)) == sorted(flat(second)) == list(range(100))
    again = DataLoader(range(100), batch_size=10, shuffle=True, collate_fn=list)
    again.set_epoch(1)
    assert list(again) == second
    assert [list(DataLoader(range(100), batch_size=10, shuffle=True, seed=7, collate_fn=list)) == first] == [False]


def test_what_the_process_drew_before_changes_nothing_and_reading_draws_nothing() -> None:
    # D42: an extra draw before a resume must not change the permutation.
    first = epoch_of(None, 0, Noisy(12), batch_size=4, shuffle=True)
    random.random(), np.random.rand(), torch.rand(())
    state = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]
    assert epoch_of(None, 0, Noisy(12), batch_size=4, shuffle=True) == first
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == state  # type: ignore[index]


def test_every_rank_reads_its_own_rows_and_no_other() -> None:
    # D38: one rank of dp8 has 4 of 32 rows.
    data = Counted(32)
    epoch_of(mesh_of(dp=8), 3, data, batch_size=32)
    assert data.read == [12, 13, 14, 15]


def test_skipping_reads_no_row() -> None:
    data = Counted(1_000_000)
    loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=list)
    loader.skip_consumed_samples(900_000)
    batch = next(iter(loader))
    assert data.read == batch == permuted(42, 0, 1_000_000, 900_000, 900_008).tolist()


def test_a_skip_inside_a_batch_loses_nothing() -> None:
    # D39: 100 rows, batch 8, dp4, skip 6: rows 6..13, 14..21, ...
    loader = loader_of(mesh_of(dp=4), 0, range(100), batch_size=8)
    assert steps_of(mesh_of(dp=4), range(100), {**loader.state_dict(), "next_row": 6}, batch_size=8)[:2] == [
        list(range(6, 14)),
        list(range(14, 22)),
    ]


def test_only_the_first_epoch_skips() -> None:
    # D40.
    loader = DataLoader(range(8), batch_size=4, collate_fn=list)
    loader.skip_consumed_samples(4)
    assert [list(loader) for _ in range(3)] == [
        [[4, 5, 6, 7]],
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[0, 1, 2, 3], [4, 5, 6, 7]],
    ]


def test_the_cursor_counts_rows_and_not_batches() -> None:
    # D41: 10 rows, batch 4: after one epoch the state is epoch 1, row 0, not 12 samples.
    loader = DataLoader(range(10), batch_size=4, collate_fn=list)
    list(loader)
    assert (loader.state_dict()["epoch"], loader.state_dict()["next_row"]) == (1, 0)
    assert loader.get_state()["consumed_train_samples"] == 10
    list(loader)
    again = DataLoader(range(10), batch_size=4, collate_fn=list)
    again.resume_from_checkpoint(loader.get_state()["consumed_train_samples"])
    assert again.state_dict() == loader.state_dict()
    assert list(again) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_batch_counts_when_it_is_delivered_even_if_nobody_asks_for_another() -> None:
    loader = DataLoader(range(10), batch_size=4)
    for _ in zip(range(len(loader)), loader, strict=False):
        pass
    assert (loader.state_dict()["epoch"], loader.state_dict()["next_row"]) == (1, 0)


def test_prefetched_batches_that_were_not_delivered_do_not_count() -> None:
    loader = DataLoader(range(100), batch_size=4, num_workers=2, prefetch_factor=4)
    batches = iter(loader)
    next(batches), next(batches)
    assert loader.state_dict()["next_row"] == 8
    del batches


def test_an_abandoned_iteration_is_forgotten_and_a_loaded_state_is_not() -> None:
    loader = DataLoader(range(8), batch_size=2, collate_fn=list)
    assert next(iter(loader)) == next(iter(loader)) == [0, 1]
    state = loader.state_dict()
    assert len(loader) == 4
    loader.load_state_dict(state)
    assert len(loader) == 3
    assert list(loader) == [[2, 3], [4, 5], [6, 7]]


def test_setting_the_epoch_that_is_under_way_keeps_the_cursor() -> None:
    loader = DataLoader(range(8), batch_size=2, shuffle=True, collate_fn=list)
    loader.load_state_dict({**loader.state_dict(), "epoch": 3, "next_row": 4})
    loader.set_epoch(3)
    assert len(list(loader)) == 2
    loader.load_state_dict({**loader.state_dict(), "epoch": 3, "next_row": 4})
    loader.set_epoch(5)
    assert (loader.epoch, len(list(loader))) == (5, 4)


def test_elastic_resume_of_the_design() -> None:
    # Dispatch 1.2, example 18.
    options: dict[str, Any] = {"batch_size": 12}
    state = state_after(mesh_of(dp=2), range(48), 2, **options)
    assert state["next_row"] == 24
    assert [epoch_of(mesh_of(dp=4), r, range(48), state, **options)[0] for r in range(4)] == chunks(range(24, 36), 3)
    assert [epoch_of(mesh_of(dp=6), r, range(48), state, **options)[0] for r in range(6)] == chunks(range(24, 36), 2)


@pytest.mark.parametrize(("tail", "steps"), [("keep", 2), ("drop", 1), ("pad", 2)])
def test_ranks_agree_on_the_number_of_steps(tail: str, steps: int) -> None:
    # B34: 10 rows, global batch 6, three data ranks; counters and epochs stay together.
    mesh = mesh_of(dp=3)
    for rank in range(3):
        loader = loader_of(mesh, rank, range(10), batch_size=6, tail=tail)
        with rank_of(mesh, rank):
            assert len(list(loader)) == len(loader) == steps
        assert loader.epoch == 1
        assert loader.consumed_train_samples == (6 if tail == "drop" else 10)


def test_a_dropped_tail_leaves_the_order_as_it_was() -> None:
    mesh = mesh_of(dp=3)
    order = permuted(42, 0, 10, 0, 10).tolist()
    assert steps_of(mesh, range(10), batch_size=6, shuffle=True, tail="drop") == [order[:6]]


@pytest.mark.parametrize(
    ("rows", "batch", "skip", "steps"), [(9, 4, 0, 2), (16, 4, 8, 2), (10, 4, 3, 2), (10, 8, 8, 1)]
)
def test_len_is_what_is_yielded(rows: int, batch: int, skip: int, steps: int) -> None:
    # D50, B38: 9 rows, batch 4, dp2 yield 2 batches, and so does a skip of 8 of 16.
    loader = loader_of(mesh_of(dp=2), 0, range(rows), batch_size=batch)
    loader.skip_consumed_samples(skip)
    with rank_of(mesh_of(dp=2), 0):
        assert len(loader) == len(list(loader)) == steps


def test_a_resume_with_another_batch_size_regroups() -> None:
    # B38: 12 rows, batch 4, dp2, 3 rows consumed.
    loader = loader_of(mesh_of(dp=2), 0, range(12), batch_size=4)
    state = {**loader.state_dict(), "next_row": 3, "batch": 3}
    assert [epoch_of(mesh_of(dp=2), rank, range(12), state, batch_size=4) for rank in range(2)] == [
        [[3, 4], [7, 8]],
        [[5, 6], [9, 10]],
    ]


def test_the_minimum_holds_without_a_mesh() -> None:
    # B41.
    with pytest.warns(UserWarning, match="the last 2 rows of the epoch are dropped on all ranks: a batch needs 3 rows"):
        assert epoch_of(None, 0, range(10), batch_size=4, min_batch_size=3) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_padded_tail_has_one_size_and_says_which_rows_are_pads() -> None:
    # D52: 14 rows, batch 8, dp4: the last batch has 2, 2, 2, 2 rows.
    mesh, seen = mesh_of(dp=4), []
    for rank in range(4):
        loader = loader_of(mesh, rank, range(14), batch_size=8, tail="pad")
        with rank_of(mesh, rank):
            last = list(loader)[-1]
        seen.append((last, loader.is_pad, round(loader.layout.loss_scale(rank), 3)))  # type: ignore[union-attr]
    assert seen == [
        ([8, 9], [False, False], 1.333),
        ([10, 11], [False, False], 1.333),
        ([12, 12], [False, True], 0.667),
        ([13, 13], [False, True], 0.667),
    ]


def test_a_padded_tail_reaches_the_minimum() -> None:
    mesh = mesh_of(dp=2)
    last = [epoch_of(mesh, rank, range(9), batch_size=8, tail="pad", min_batch_size=6)[-1] for rank in range(2)]
    assert last == [[8, 8, 8], [8, 8, 8]]


def test_context_and_tensor_peers_are_replicas() -> None:
    # B42, B43: cp2 dp2 has data ranks 0, 0, 1, 1, and so have the worker seeds; tp2 dp1 sees every row twice.
    class Seeds(Counted):
        def __getitem__(self, row: int) -> int:
            return torch.initial_seed()

    seeds = [epoch_of(mesh_of(cp=2, dp=2), rank, Seeds(4), batch_size=4, num_workers=1) for rank in range(4)]
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]
    assert [epoch_of(mesh_of(tp=2), rank, range(8), batch_size=4) for rank in range(2)] == [
        [[0, 1, 2, 3], [4, 5, 6, 7]]
    ] * 2
    eight = [epoch_of(mesh_of(dp=2, cp=4), rank, range(8), batch_size=8) for rank in range(8)]
    assert eight == [[[0, 1, 2, 3]]] * 4 + [[[4, 5, 6, 7]]] * 4


def test_seeds_of_batches_do_not_collide_between_ranks_and_workers() -> None:
    # D53: worker seeds of neighbouring ranks overlapped.
    class Seeds(Counted):
        def __getitem__(self, row: int) -> int:
            return torch.initial_seed()

    mesh = mesh_of(dp=4)
    seeds = [
        seed
        for rank in range(4)
        for batch in epoch_of(mesh, rank, Seeds(64), batch_size=4, num_workers=2)
        for seed in batch
    ]
    assert len(set(seeds)) == len(seeds) == 64


def test_groups_stay_together_in_every_epoch_and_after_a_resume() -> None:
    mesh = mesh_of(dp=2)
    options: dict[str, Any] = {"batch_size": 8, "group": 2, "shuffle": True}
    for epoch in range(3):
        state = {**loader_of(mesh, 0, range(24), **options).state_dict(), "epoch": epoch, "next_row": 4}
        for rank in range(2):
            for batch in epoch_of(mesh, rank, range(24), state, **options):
                assert all(second == first + 1 and first % 2 == 0 for first, second in chunks(batch, 2))


def test_steps_say_where_a_batch_belongs() -> None:
    mesh = mesh_of(dp=2)
    loader = loader_of(mesh, 1, range(6), batch_size=4)
    with rank_of(mesh, 1):
        steps = list(loader.steps())
    assert [(step.batch, step.shard, step.layout.n) for step in steps] == [([2, 3], 1, 4), ([5], 1, 2)]


@settings(max_examples=25)
@given(st.integers(0, 30), st.integers(1, 8), st.integers(0, 30), st.data())
def test_a_batch_sampler_is_cut_batch_by_batch(rows: int, batch: int, skip: int, data: st.DataObject) -> None:
    mesh = data.draw(st.sampled_from([None, mesh_of(dp=1, tp=2), *([mesh_of(dp=2)] if batch > 1 else [])]))
    given_batches = torch.utils.data.BatchSampler(range(rows), batch, drop_last=False)
    state = {
        **loader_of(mesh, 0, range(rows), batch_sampler=given_batches, tail="pad").state_dict(),
        "next_row": min(skip, rows),
    }
    got = steps_of(mesh, range(rows), state, batch_sampler=given_batches, tail="pad")
    assert [sorted(set(step)) for step in got] == chunks(range(min(skip, rows), rows), batch)
    even = steps_of(mesh, range(rows), batch_size=batch, tail="pad")
    assert steps_of(mesh, range(rows), batch_sampler=given_batches, tail="pad") == even


def test_batches_of_several_sizes_are_each_cut() -> None:
    # D46.
    mesh, sizes = mesh_of(dp=2), [[5, 1, 2], [9, 8], [0, 3, 4, 6]]
    assert steps_of(mesh, range(10), batch_sampler=sizes) == sizes
    assert epoch_of(mesh, 1, range(10), batch_sampler=sizes) == [[2], [8], [4, 6]]


def test_a_sampler_that_draws_gives_one_order_to_all_ranks_and_another_in_the_next_epoch() -> None:
    sampler = torch.utils.data.RandomSampler(range(12))
    torch.manual_seed(1)
    first = steps_of(mesh_of(dp=2), range(12), batch_size=4, sampler=sampler)
    torch.manual_seed(2)
    assert steps_of(mesh_of(dp=2), range(12), batch_size=4, sampler=sampler) == first
    assert sorted(flat(first)) == list(range(12))
    loader = DataLoader(range(12), batch_size=4, sampler=sampler, collate_fn=list)
    assert list(loader) == first
    assert list(loader) != first


def test_a_sampler_with_its_own_generator_is_resumed_exactly() -> None:
    def loader() -> DataLoader:
        generator = torch.Generator().manual_seed(5)
        sampler = torch.utils.data.RandomSampler(range(12), generator=generator)
        return DataLoader(range(12), batch_size=4, sampler=sampler, collate_fn=list)

    plain = torch.utils.data.RandomSampler(range(12), generator=torch.Generator().manual_seed(5))
    whole, half = loader(), loader()
    first, second = list(whole), list(whole)
    assert flat(first) == list(plain)
    assert first != second
    list(half)
    batches = iter(half)
    next(batches)
    again = loader()
    again.load_state_dict(half.state_dict())
    assert list(again) == second[1:]


def test_two_iterations_at_once_are_both_whole() -> None:
    loader = DataLoader(range(8), batch_size=4, collate_fn=list)
    assert list(zip(loader, loader, strict=True)) == [([0, 1, 2, 3],) * 2, ([4, 5, 6, 7],) * 2]


def test_collating_and_pinning_are_torchs_own() -> None:
    rows = [{"x": torch.full((2,), float(i)), "y": i} for i in range(4)]
    (batch,) = DataLoader(rows, batch_size=4)
    assert batch["x"].shape == (4, 2)
    assert batch["y"].tolist() == [0, 1, 2, 3]
    assert DataLoader(rows, batch_size=2, pin_memory=False, num_workers=1, timeout=60).batch_size == 2


def test_a_worker_init_fn_sees_its_worker() -> None:
    seen = epoch_of(None, 0, WorkerId(8), batch_size=2, num_workers=2, worker_init_fn=remember_worker)
    assert seen == [[0, 0], [1, 1], [0, 0], [1, 1]]


class WorkerId(Counted):
    def __getitem__(self, row: int) -> int:
        return _WORKER[0]


_WORKER = [-1]


def remember_worker(worker: int) -> None:
    _WORKER[0] = worker


def test_workers_that_are_spawned_read_as_forked_ones_do() -> None:
    sampler = torch.utils.data.RandomSampler(range(8), generator=torch.Generator().manual_seed(3))
    for options in ({"shuffle": True}, {"sampler": sampler}):
        alone = epoch_of(None, 0, Noisy(8), batch_size=4, **options)
        spawned = epoch_of(None, 0, Noisy(8), batch_size=4, num_workers=1, multiprocessing_context="spawn", **options)
        assert spawned == alone
