"""Plans of process groups: pure data, against every group of the mesh written out."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import run_python
from twinkle import DeviceMesh
from twinkle.errors import AxisError, RankError
from twinkle.process_groups.plan import spaced

NAMES = ("dp", "fsdp", "tp", "pp", "cp")


@st.composite
def meshes(draw: st.DrawFn) -> DeviceMesh:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    sizes = {name: draw(st.sampled_from((1, 2, 3, 4))) for name in names}
    data = sizes.get("dp", 1) * sizes.get("fsdp", 1)
    ulysses = draw(st.sampled_from([size for size in range(1, data + 1) if data % size == 0]))
    ranks: Any = range(math.prod(sizes.values()))
    if draw(st.booleans()):
        ranks = draw(st.permutations(range(len(ranks) + 2)))[: len(ranks)]
    import numpy as np

    table = np.array(list(ranks)).reshape(tuple(sizes.values()))
    return DeviceMesh(table, tuple(names), ulysses_size=ulysses)


def entries() -> st.SearchStrategy[list[Any]]:
    several = st.lists(st.sampled_from(NAMES), max_size=3, unique=True).map(tuple)
    return st.lists(st.one_of(st.sampled_from((*NAMES, "data", "ulysses")), several), min_size=1, max_size=4)


@given(meshes(), entries())
def test_a_plan_covers_each_rank_once_per_entry_and_shares_what_has_the_same_members(
    mesh: DeviceMesh, asked: list[Any]
) -> None:
    plan = mesh.group_plan(*asked)
    everything = list(plan.groups())
    assert plan == pickle.loads(pickle.dumps(mesh)).group_plan(*asked)
    assert sum(partition.groups for partition in plan.partitions) == len(everything)
    # One group for each ordered tuple of members, unless they are groups of one.
    assert len({tuple(group.members) for group in everything}) == len(everything)
    for position in range(mesh.world_size):
        rank = mesh.rank_at(position)
        own = plan.of(rank)
        assert list(own) == [group for group in everything if rank in group.members]
        for entry in plan.axes:
            (group,) = (group for group in own if entry in group.axes)
            assert list(group.members) == list(mesh.group_of(entry, rank))
            assert group.members.index(rank) == mesh.index_in_group(entry, rank)
            assert group.default == (list(group.members) == list(range(mesh.world_size)))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6, unique=True))
def test_equal_members_are_equal_values(members: list[int]) -> None:
    assert list(spaced(members)) == list(spaced(tuple(members))) == members
    assert spaced(members) == spaced(tuple(members))
    assert hash(spaced(members)) == hash(spaced(tuple(members)))


def test_groups_come_in_the_order_asked_then_by_position() -> None:
    plan = DeviceMesh.from_axes({"pp": 2, "dp": 2, "tp": 2}).group_plan("tp", "dp")
    assert [list(group.members) for group in plan.groups()] == [
        [0, 1], [2, 3], [4, 5], [6, 7], [0, 2], [1, 3], [4, 6], [5, 7],
    ]  # fmt: skip


def test_nothing_asked_means_every_declared_axis() -> None:
    mesh = DeviceMesh.from_axes({"pp": 2, "dp": 2, "tp": 2})
    assert mesh.group_plan() == mesh.group_plan("pp", "dp", "tp")


def test_groups_of_a_part_of_a_job_are_never_the_default_group() -> None:
    mesh = DeviceMesh.from_axes({"dp": 2, "tp": 2}, offset=4)
    assert not any(group.default for group in mesh.group_plan("dp", ("dp", "tp")).groups())


def test_members_in_another_order_are_another_group() -> None:
    mesh = DeviceMesh.from_sizes(fsdp_size=2, dp_size=2, ulysses_size=4)
    data, ulysses = mesh.group_plan("data", "ulysses").of(0)
    assert (list(data.members), data.default) == ([0, 1, 2, 3], True)
    assert (list(ulysses.members), ulysses.default) == ([0, 2, 1, 3], False)


def test_entries_name_their_axes_and_repeats_are_one() -> None:
    mesh = DeviceMesh.from_axes({"dp": 2, "tp": 2})
    plan = mesh.group_plan("dp", "dp", ("dp",), "dp_replicate")
    assert plan.axes == (("dp",), ("dp_replicate",))
    assert len(plan.partitions) == 1
    assert repr(mesh.group_plan("cp", "tp", ("dp", "tp"))) == (
        "GroupPlan(cp: 4 groups of 1; tp: 2 groups of 2; dp+tp: the default group)"
    )


def test_a_plan_does_not_follow_later_options_of_the_mesh() -> None:
    mesh = DeviceMesh.from_sizes(dp_size=4)
    plan = mesh.group_plan("dp")
    setattr(mesh, "ulysses_size", 2)  # noqa: B010 - mypy takes the slots for all that can be set
    assert plan.mesh.ulysses_size is None


def test_own_groups_of_a_very_large_mesh_need_no_table() -> None:
    mesh = DeviceMesh.from_axes({"pp": 2**10, "dp": 2**20, "tp": 8})
    (group,) = mesh.group_plan("pp").of(12345)
    assert group.members == range(12345, 2**33, 2**23)
    assert mesh.group_plan("pp").partitions[0].groups == 2**23


def test_what_is_no_axis_or_no_rank_is_refused() -> None:
    mesh = DeviceMesh.from_axes({"dp": 2, "tp": 2})
    with pytest.raises(AxisError, match='unknown axis "width"'):
        mesh.group_plan("dp", "width")
    with pytest.raises(AxisError, match="named twice"):
        mesh.group_plan(("dp", "dp"))
    with pytest.raises(AxisError, match="a name or a sequence of names, not 3"):
        mesh.group_plan(3)  # type: ignore[arg-type]
    with pytest.raises(RankError, match="4"):
        mesh.group_plan("dp").of(4)


def test_a_plan_needs_no_torch() -> None:
    code = (
        "import sys; from twinkle import DeviceMesh; plan = DeviceMesh.from_sizes(dp_size=8).group_plan('dp');"
        "print(plan, plan.of(3)[0].default, 'torch' in sys.modules)"
    )
    assert run_python(code).strip() == "GroupPlan(dp: the default group) True False"


def test_without_a_default_group_making_is_refused_in_words() -> None:
    code = (
        "from twinkle import DeviceMesh\nfrom twinkle.errors import DeviceError\n"
        "mesh = DeviceMesh.from_sizes(dp_size=2)\n"
        "print(mesh.release_groups())\n"
        "for ask in (mesh.make_groups, mesh.fsdp_mesh, lambda: mesh.create_process_group('dp')):\n"
        "    try: ask()\n"
        "    except DeviceError as error: print(error)\n"
    )
    words = "process groups need torch.distributed's default group, and there is none; call "
    words += "torch.distributed.init_process_group first"
    assert run_python(code).splitlines() == ["0", words, words, words]


def test_without_torch_making_is_refused_in_words() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from twinkle import DeviceMesh\nfrom twinkle.errors import DeviceError\n"
        "try: DeviceMesh.from_sizes(dp_size=2).make_groups('dp')\n"
        "except DeviceError as error: print(error)\n"
    )
    assert "install twinkle-mesh[torch]" in run_python(code)
