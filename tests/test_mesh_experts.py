"""Megatron's order strings, and the meshes on which experts are spread."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mesh_oracle import divisors
from twinkle import DeviceMesh
from twinkle.errors import AxisError, MeshError

ORDERS = [list(order) for order in permutations(("tp", "cp", "dp", "pp"))]


def full(order: list[str]) -> list[str]:
    """An order with ep where Megatron's layout has it."""
    first = min(order.index("dp"), order.index("pp"))
    return [*order[:first], "ep", *order[first:]]


@pytest.mark.parametrize(
    ("axes", "order"),
    [
        (("pp", "dp", "tp"), "tp-cp-ep-dp-pp"),
        (("dp", "pp", "tp"), "tp-cp-ep-pp-dp"),
        (("dp",), "tp-cp-ep-dp-pp"),
        (("pp",), "tp-cp-ep-dp-pp"),
        (("tp",), "tp-cp-ep-dp-pp"),
        (("tp", "dp"), "ep-dp-pp-tp-cp"),
        (("tp", "pp"), "ep-pp-tp-cp-dp"),
        (("tp", "cp", "dp", "pp"), "ep-pp-dp-cp-tp"),
        (("fsdp", "pp", "dp", "cp", "tp"), "tp-cp-ep-dp-pp"),
    ],
)
def test_undeclared_axes_stand_after_their_nearest_declared_neighbour(axes: tuple[str, ...], order: str) -> None:
    mesh = DeviceMesh.from_axes({axis: 1 if axis == "fsdp" else 2 for axis in axes}, offset=3)
    assert mesh.order == order


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_the_order_is_the_string_that_made_the_mesh(order: list[str]) -> None:
    text = "-".join(full(order))
    mesh = DeviceMesh.from_sizes(tp_size=2, cp_size=3, dp_size=4, pp_size=5, order=text)
    assert mesh.order == text
    assert mesh == DeviceMesh.from_sizes(tp_size=2, cp_size=3, dp_size=4, pp_size=5, order=list(reversed(order)))


@given(st.sampled_from(ORDERS), st.tuples(*[st.integers(1, 4)] * 4), st.data())
def test_experts_stand_as_the_order_says_without_cp(order: list[str], dense: Any, data: st.DataObject) -> None:
    tp, cp, dp, pp = dense
    world = tp * cp * dp * pp
    ep = data.draw(st.sampled_from(divisors(world // pp)))
    etp = data.draw(st.sampled_from(divisors(world // pp // ep)))
    sizes = {"etp": etp, "ep": ep, "dp": world // (pp * ep * etp), "pp": pp}
    text = full(order)
    mesh = DeviceMesh.from_sizes(
        tp_size=tp, cp_size=cp, dp_size=dp, pp_size=pp, ep_size=ep, etp_size=etp, order="-".join(text)
    )
    names = ["etp" if name == "tp" else name for name in reversed(text) if name != "cp"]
    expected = DeviceMesh.from_axes({name: sizes[name] for name in names})
    if sorted(expected.groups("pp").tolist()) != sorted(mesh.groups("pp").tolist()):
        with pytest.raises(MeshError, match=f"the {pp} stages of a pipeline are"):
            mesh.expert_mesh()
    else:
        assert mesh.expert_mesh() == mesh.expert_mesh("megatron") == expected


def test_the_field_logs_experts_are_found_by_their_index_in_the_group() -> None:
    mesh = DeviceMesh.from_sizes(dp_size=2, pp_size=2, ep_size=2)
    experts = mesh.expert_mesh()
    assert experts.groups("ep").tolist() == [[0, 1], [2, 3]]
    per_rank = 8 // 2
    owned = {rank: range(per_rank * (experts.index_in_group("ep", rank) or 0)) for rank in (2, 3)}
    assert experts.index_in_group("ep", 2) == 0
    assert experts.index_in_group("ep", 3) == 1
    assert owned == {2: range(0), 3: range(4)}


def test_sixteen_ranks_with_two_experts_each() -> None:
    experts = DeviceMesh.from_sizes(dp_size=16, ep_size=2).expert_mesh()
    assert experts.groups("ep").tolist() == [[rank, rank + 1] for rank in range(0, 16, 2)]
    assert experts.groups("dp").tolist() == [[*range(0, 16, 2)], [*range(1, 16, 2)]]


def test_the_fsdp_layout_spreads_experts_over_the_whole_world() -> None:
    mesh = DeviceMesh.from_sizes(fsdp_size=8, dp_size=1, ep_size=4, device_type="npu", sequence_parallel=True)
    experts = mesh.expert_mesh("fsdp")
    assert experts == DeviceMesh.from_axes({"ep": 4, "ep_fsdp": 2}, device_type="npu", sequence_parallel=True)
    assert mesh.ep_fsdp_size == experts.get_dim_size("ep_fsdp") == 2
    assert DeviceMesh.from_axes({"tp": 4}, offset=9).expert_mesh("fsdp") == DeviceMesh(
        [range(9, 13)], ("ep", "ep_fsdp")
    )


@pytest.mark.parametrize("layout", ["megatron", "fsdp"])
def test_ranks_that_are_not_consecutive_have_no_expert_mesh(layout: Any) -> None:
    for table in ([0, 2, 4, 6], [3, 2, 1, 0], [0, 1, 3, 2]):
        with pytest.raises(MeshError, match="are not consecutive in the order of the axes"):
            DeviceMesh(table).expert_mesh(layout)
    permuted = DeviceMesh.from_sizes(dp_size=2, tp_size=2).permute(("tp", "dp"))
    with pytest.raises(MeshError, match="consecutive"):
        permuted.expert_mesh(layout)
    with pytest.raises(MeshError, match="consecutive"):
        permuted.order  # noqa: B018 - a property that is refused


def test_axes_that_megatron_does_not_know_have_no_order() -> None:
    for axes in ({"fsdp": 2, "dp": 2}, {"ulysses": 2}, {"ep": 2, "ep_fsdp": 2}):
        mesh = DeviceMesh.from_axes(axes)
        with pytest.raises(AxisError, match="has no place in Megatron's order"):
            mesh.order  # noqa: B018 - a property that is refused
        with pytest.raises(AxisError, match="has no place in Megatron's order"):
            mesh.expert_mesh()
    assert DeviceMesh.from_axes({"fsdp": 1, "tp": 2}).order == "tp-cp-ep-dp-pp"


@pytest.mark.parametrize("layout", ["Megatron", "", None, 5, np.array(["fsdp"]), ["fsdp"]])
def test_an_unknown_layout_is_refused(layout: Any) -> None:
    with pytest.raises(MeshError, match="layout must be 'megatron' or 'fsdp'"):
        DeviceMesh.from_sizes(dp_size=2).expert_mesh(layout)


@pytest.mark.parametrize("order", ["ep-tp-cp-dp-pp", "tp-cp-dp-ep-pp", "tp-cp-dp-pp-ep"])
def test_ep_in_an_order_string_is_not_ignored_silently(order: str) -> None:
    sizes: dict[str, Any] = {"tp_size": 2, "dp_size": 4, "pp_size": 2}
    with pytest.raises(AxisError, match="ep stands right before the first of dp and pp"):
        DeviceMesh.from_sizes(**sizes, ep_size=2, order=order)
    assert DeviceMesh.from_sizes(**sizes, order=order) == DeviceMesh.from_sizes(**sizes)


def test_an_expert_mesh_cuts_no_rows() -> None:
    experts = DeviceMesh.from_sizes(dp_size=8, ep_size=2).expert_mesh()
    with pytest.raises(AxisError, match='declares "ep"'):
        experts.data_ranks()
    assert experts.ep_world_size == 2
    assert (experts.ep_size, experts.ulysses_size, experts.vpp_size) == (None, None, None)
