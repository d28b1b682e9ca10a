"""This process in a mesh: who it is, by whom it is told, and what it is refused when it is nobody there."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support import LIMIT, run_python
from twinkle import DeviceMesh
from twinkle.errors import AxisError, LauncherError, RankError
from twinkle.platform import Platform
from twinkle.runtime import current

INDICES = ("dp_rank", "fsdp_rank", "tp_rank", "pp_rank", "cp_rank", "ep_rank")
Become = Callable[[int], None]


@pytest.fixture(autouse=True)
def _no_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Become:
    """Patches who this process is; the mesh asks anew each time."""
    return lambda rank: monkeypatch.setattr(Platform, "get_rank", staticmethod(lambda: rank))


@pytest.fixture
def worker() -> Iterator[Callable[..., None]]:
    """Makes this process a remote worker at some positions of a mesh, for as long as the test runs."""

    def at(mesh: DeviceMesh | None, *positions: int) -> None:
        current.positions, current.positions_mesh = positions, mesh

    yield at
    current.positions = current.positions_mesh = None


def test_answers_about_this_process_are_those_about_its_rank(become: Become) -> None:
    mesh = DeviceMesh.from_sizes(dp_size=2, pp_size=2, tp_size=2)
    for rank in range(8):
        become(rank)
        coordinate = mesh.coordinates(rank)
        assert coordinate is not None
        assert mesh.coordinates() == coordinate
        found = {name: getattr(mesh, name) for name in INDICES}
        assert found == {name: coordinate.get(name.removesuffix("_rank")) for name in INDICES}
        assert mesh.data_rank == mesh.data_rank_of(rank)
        assert mesh.group_of("tp") == mesh.group_of("tp", rank)
        assert mesh.get_tp_ranks() == list(mesh.group_of("tp", rank))
        assert mesh.index_in_group("pp") == mesh.index_in_group("pp", rank)
        assert mesh.get_slice(9) == mesh.get_slice(9, global_rank=rank)
        assert mesh["pp", "tp"] == mesh.submesh(("pp", "tp"), rank)
        assert mesh["tp"] == mesh.submesh("tp") == mesh.submesh("tp", rank)
        assert mesh.is_pp_first_rank() == mesh.is_pp_first_rank(rank)
        assert mesh.is_pp_last_rank() == mesh.is_pp_last_rank(rank)
        assert mesh.is_tp_last_rank() == mesh.is_tp_last_rank(rank)
        assert not mesh.is_single_process


def test_the_launchers_variable_says_who_this_process_is(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh: Any = DeviceMesh.from_sizes(dp_size=4)
    assert mesh.coordinates() is None
    for rank in (3, 1):
        monkeypatch.setenv("RANK", str(rank))
        assert (mesh.dp_rank, mesh.data_rank, mesh.get_slice(8)) == (rank, rank, slice(2 * rank, 2 * rank + 2))
    monkeypatch.setenv("RANK", "three")
    with pytest.raises(LauncherError, match="RANK"):
        mesh.get_slice(8)


@pytest.mark.parametrize("rank", [0, 1, 4, 2**40])
def test_a_process_outside_the_mesh_has_no_place_and_no_rows(become: Become, rank: int) -> None:
    become(rank)
    mesh: Any = DeviceMesh([[2, 3]], ("dp", "tp"))
    assert [getattr(mesh, name) for name in INDICES] == [None] * len(INDICES)
    assert mesh.data_rank is mesh.coordinates() is mesh.index_in_group("tp") is None
    assert [mesh.is_pp_first_rank(), mesh.is_pp_last_rank(), mesh.is_tp_last_rank()] == [False] * 3
    for ask, instead in (
        (lambda: mesh.get_slice(10), r"ask slices\(10\) instead"),
        (lambda: mesh.group_of("tp"), "ask about a rank by its number instead"),
        (mesh.get_tp_ranks, "ask about a rank by its number instead"),
        (lambda: mesh["tp"], "ask about a rank by its number instead"),
        (lambda: mesh.submesh("tp"), "ask about a rank by its number instead"),
    ):
        with pytest.raises(
            RankError, match=rf"not one rank of DeviceMesh\(dp=1, tp=2, offset=2\): it is rank {rank}; {instead}"
        ):
            ask()


def test_a_process_that_nothing_launched_is_nobody(become: Become) -> None:
    become(-1)
    mesh: Any = DeviceMesh.from_sizes(dp_size=2)
    assert mesh.dp_rank is mesh.data_rank is mesh.coordinates() is None
    with pytest.raises(
        RankError, match=r"neither torch.distributed nor a launcher's variables .*slices\(4\)"
    ) as refusal:
        mesh.get_slice(4)
    assert (refusal.value.world_size, refusal.value.ranks) == (2, [])


def test_a_mesh_of_one_is_rank_zero_without_any_environment() -> None:
    mesh = DeviceMesh.from_sizes()
    assert (mesh.dp_rank, mesh.data_rank, mesh.tp_rank) == (0, 0, None)
    assert mesh.get_slice(7) == slice(0, 7)
    assert mesh.is_single_process
    assert mesh.is_pp_first_rank()
    assert mesh.is_pp_last_rank()
    assert mesh["tp"].shape == (1,)
    elsewhere = DeviceMesh([[5]], ("pp", "tp"))
    assert (elsewhere.pp_rank, elsewhere.tp_rank, elsewhere.get_tp_ranks()) == (0, 0, [5])


def test_a_launched_process_is_not_alone_even_in_a_mesh_of_one(become: Become) -> None:
    become(0)
    assert not DeviceMesh.from_sizes().is_single_process
    assert DeviceMesh.from_sizes().data_rank == 0
    become(1)
    assert DeviceMesh.from_sizes().data_rank is None
    with pytest.raises(RankError, match="it is rank 1"):
        DeviceMesh.from_sizes().get_slice(3)


def test_ranks_of_a_permuted_mesh_have_the_rows_of_their_position(become: Become) -> None:
    mesh = DeviceMesh([2, 0, 3, 1])
    for position, rank in enumerate((2, 0, 3, 1)):
        become(rank)
        assert (mesh.dp_rank, mesh.get_slice(8)) == (position, slice(2 * position, 2 * position + 2))


def test_an_axis_of_experts_has_an_index_and_its_view_no_rows(become: Become) -> None:
    become(3)
    view = DeviceMesh.from_sizes(dp_size=4, ep_size=2).expert_mesh()
    assert (view.ep_rank, view.dp_rank) == (1, 1)
    with pytest.raises(AxisError, match='declares "ep"'):
        view.data_rank  # noqa: B018 - a property that is refused
    with pytest.raises(AxisError, match='declares "ep"'):
        view.get_slice(4)


def test_a_worker_is_its_positions_whatever_rank_says(worker: Callable[..., None], become: Become) -> None:
    become(0)
    mesh = DeviceMesh([[10, 11], [20, 21]], ("dp", "tp"))
    worker(mesh, 3)
    assert (mesh.dp_rank, mesh.tp_rank, mesh.data_rank, mesh.get_slice(4)) == (1, 1, 1, slice(2, 4))
    assert mesh.coordinates() == {"dp": 1, "tp": 1}
    for same in (copy.copy(mesh), mesh.replace(sequence_parallel=True), DeviceMesh(mesh.mesh, ("dp", "tp"))):
        assert same.dp_rank == 1
    assert mesh.submesh("tp").tp_rank == 1
    assert mesh.flatten(("dp", "tp"), "x").group_of("x") == mesh.flatten(("dp", "tp"), "x").group_of("x", 21)
    assert DeviceMesh.from_sizes(dp_size=8).dp_rank is None
    assert not DeviceMesh.from_sizes().is_single_process


def test_a_worker_of_several_positions_answers_where_they_agree(worker: Callable[..., None]) -> None:
    mesh = DeviceMesh.from_sizes(pp_size=2, dp_size=2, tp_size=2)
    worker(mesh, 2, 3)
    assert (mesh.pp_rank, mesh.dp_rank, mesh.tp_rank, mesh.data_rank) == (0, 1, None, 1)
    assert mesh.get_slice(10) == slice(5, 10)
    assert mesh.coordinates() is None
    assert mesh.is_pp_first_rank()
    assert not mesh.is_pp_last_rank()
    assert not mesh.is_tp_last_rank()
    with pytest.raises(RankError, match=r"it is a remote worker at positions \[2, 3\]"):
        mesh.group_of("tp")
    worker(mesh, 1, 2)
    assert (mesh.dp_rank, mesh.data_rank) == (None, None)
    with pytest.raises(RankError, match=r"positions \[1, 2\]; ask slices\(10\)"):
        mesh.get_slice(10)


def test_an_option_set_on_a_workers_mesh_changes_its_rows_and_not_its_place(worker: Callable[..., None]) -> None:
    mesh: Any = DeviceMesh.from_sizes(dp_size=4)
    worker(mesh, 3)
    mesh.ulysses_size = 2
    assert (mesh.dp_rank, mesh.data_rank, mesh.get_slice(8)) == (3, 1, slice(4, 8))


def test_the_driver_of_a_ray_job_is_nobody_whatever_launched_it(
    worker: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    mesh: Any = DeviceMesh.from_sizes(dp_size=2)
    assert mesh.dp_rank == 0
    worker(None)
    assert (mesh.dp_rank, mesh.data_rank, mesh.coordinates()) == (None, None, None)
    with pytest.raises(RankError, match="it is the driver of a Ray job, which is nobody"):
        mesh.get_slice(4)
    assert mesh.get_slice(4, data_rank=1) == slice(2, 4)
    one = DeviceMesh.from_sizes()
    assert not one.is_single_process


GLOO = """
import os, sys
import torch.distributed as dist
from twinkle import DeviceMesh
from twinkle.errors import LauncherError
mesh = DeviceMesh([[7, 0]], ("dp", "tp"))
assert mesh.tp_rank is None
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
{body}
dist.destroy_process_group()
"""


def in_a_gloo_world_of_one(body: str, **variables: str) -> str:
    # An older gloo says on standard output how many peers it found.
    return run_python(GLOO.format(body=body), timeout=LIMIT, **variables).splitlines()[-1]


def test_an_initialised_process_group_says_who_this_process_is() -> None:
    assert in_a_gloo_world_of_one("print(mesh.tp_rank, mesh.dp_rank, mesh.get_slice(6))") == "1 0 slice(0, 6, None)"


def test_a_rank_of_an_outer_layer_gives_way_to_the_process_group() -> None:
    body = "print(mesh.tp_rank, DeviceMesh.from_sizes(dp_size=8).dp_rank)"
    assert in_a_gloo_world_of_one(body, RANK="5", WORLD_SIZE="8") == "1 0"


def test_a_rank_that_contradicts_the_process_group_is_refused() -> None:
    body = """
try:
    mesh.tp_rank
except LauncherError as error:
    print(error)
"""
    # The mesh is asked before the group exists too, so RANK must be of its world then.
    said = run_python(
        GLOO.format(body=body).replace("assert mesh.tp_rank is None", "os.environ['RANK'] = '3'"), WORLD_SIZE="1"
    )
    assert "RANK=3" in said
    assert "rank 0 of 1" in said


def test_asking_many_ranks_needs_nobody(become: Become) -> None:
    become(-1)
    mesh = DeviceMesh.from_sizes(dp_size=4, tp_size=2)
    assert mesh.coords_of().shape == (8, 2)
    assert np.array_equal(mesh.data_ranks(), np.arange(8) // 2)
    assert mesh.get_collect_ranks() == [0, 2, 4, 6]


def test_who_this_process_is_cannot_be_set() -> None:
    mesh: Any = DeviceMesh.from_sizes()
    for name in (*INDICES, "data_rank", "is_single_process"):
        with pytest.raises(AttributeError):
            setattr(mesh, name, 0)


def test_a_mesh_is_not_counted_through_as_if_it_were_empty(become: Become) -> None:
    mesh: Any = DeviceMesh.from_sizes(dp_size=4)
    for rank in (-1, 0, 9):
        become(rank)
        with pytest.raises(TypeError, match="not iterable"):
            list(mesh)
        with pytest.raises(RankError, match="must be an array of ranks"):
            DeviceMesh(mesh)
