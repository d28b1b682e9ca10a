"""Which nodes groups reach, against counting them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.meshes import meshes, ranks_of
from twinkle import DeviceMesh
from twinkle.errors import MeshError
from twinkle.show.nodes import Span, node_count, per_node, span


@given(meshes(), st.integers(1, 9), st.data())
def test_a_span_is_what_counting_the_nodes_of_every_group_gives(
    mesh: DeviceMesh, per: int, data: st.DataObject
) -> None:
    axes = data.draw(st.lists(st.sampled_from(mesh.mesh_dim_names or ()), unique=True))
    counts = [len({rank // per for rank in group}) for group in mesh.groups(axes).tolist()]
    assert span(mesh, axes, per) == Span(min(counts), max(counts))
    assert node_count(mesh, per) == len({rank // per for rank in ranks_of(mesh)})


@given(
    st.integers(1, 8), st.integers(1, 8), st.integers(1, 16), st.permutations(["dp", "fsdp", "tp"]), st.integers(1, 9)
)
def test_ulysses_peers_are_counted_too(dp: int, fsdp: int, peers: int, order: list[str], per: int) -> None:
    assume(dp * fsdp % peers == 0)
    mesh = DeviceMesh.from_sizes(fsdp_size=fsdp, dp_size=dp, tp_size=2, ulysses_size=peers, order=order)
    counts = [len({rank // per for rank in group}) for group in mesh.groups("ulysses").tolist()]
    assert span(mesh, "ulysses", per) == Span(min(counts), max(counts))


def test_huge_meshes_are_counted_without_being_listed() -> None:
    mesh = DeviceMesh.from_axes({"dp": 2**37, "tp": 8})
    assert span(mesh, "tp", 8) == Span(1, 1)
    assert span(mesh, "dp", 8) == Span(2**37, 2**37)
    assert node_count(mesh, 16) == 2**36
    sequence = DeviceMesh.from_sizes(dp_size=2**37, tp_size=8, ulysses_size=4)
    assert span(sequence, "ulysses", 8) == Span(4, 4)


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "8"])
def test_ranks_on_a_node_are_a_whole_number_above_zero(wrong: object) -> None:
    with pytest.raises(MeshError, match="nproc_per_node must be an integer >= 1"):
        per_node(wrong)


def test_a_span_says_a_range_only_where_groups_differ() -> None:
    assert (str(Span(1, 1)), str(Span(1, 3))) == ("1", "1-3")
