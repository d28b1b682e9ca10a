"""Meshes as values: equality, hash, pickle, copy, plain data, dataclass tools, and text."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mesh_oracle import Naive, meshes, meshes_and_axes
from tests.support import run_python
from twinkle import DeviceMesh
from twinkle.errors import MeshError, RankError

FIELDS = {
    "mesh": None,
    "mesh_dim_names": None,
    "ep_size": 2,
    "etp_size": 2,
    "ep_fsdp_size": 8,
    "vpp_size": 2,
    "ulysses_size": 2,
    "sequence_parallel": True,
    "device_type": "npu",
}
ENORMOUS = DeviceMesh.from_sizes(
    fsdp_size=2**12, pp_size=2**12, dp_size=2**12, cp_size=2**12, tp_size=2**13, ulysses_size=2**11, ep_size=2**11,
    etp_size=2, ep_fsdp_size=2**50, vpp_size=2**30, sequence_parallel=True, device_type="npu",
)  # fmt: skip
SETTLED: list[DeviceMesh] = [
    DeviceMesh.from_sizes(),
    DeviceMesh.from_sizes(dp_size=2, pp_size=2, tp_size=2),
    ENORMOUS,
    DeviceMesh.from_axes({"dp": 8, "tp": 2}, offset=2**62, ulysses_size=4, sequence_parallel=True),
    DeviceMesh([[7, 6], [5, 4]], ("dp", "tp")),
    DeviceMesh([5, 3, 9, 2**62]),
    DeviceMesh(np.arange(8).reshape(2, 4), ("ep", "ep_fsdp"), device_type="cpu"),
    DeviceMesh.from_axes({"dp": 4, "pp": 2, "tp": 2}).flatten(("tp", "dp"), "x").flatten(("pp", "x"), "y"),
]
WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "dict": lambda mesh: DeviceMesh.from_dict(mesh.to_dict()),
    "json": lambda mesh: DeviceMesh.from_dict(json.loads(json.dumps(mesh.to_dict()))),
    "replace": lambda mesh: mesh.replace(),
    **{f"pickle-{p}": lambda mesh, p=p: pickle.loads(pickle.dumps(mesh, p)) for p in range(6)},  # type: ignore[misc]
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("mesh", SETTLED, ids=str)
def test_a_mesh_survives_every_way_to_carry_it(mesh: DeviceMesh, way: Any) -> None:
    other = way(mesh)
    assert other is not mesh
    assert other == mesh
    assert hash(other) == hash(mesh)
    assert repr(other) == repr(mesh)
    assert other.to_dict() == mesh.to_dict()
    assert other.strides == mesh.strides


@given(meshes_and_axes())
def test_drawn_meshes_and_their_views_survive_too(drawn: tuple[Naive, tuple[str, ...]]) -> None:
    naive, axes = drawn
    for mesh in (naive.mesh, naive.mesh.flatten(axes, "merged")):
        for way in WAYS.values():
            other = way(mesh)
            assert (other, hash(other)) == (mesh, hash(mesh))


@given(meshes(), meshes(), st.data())
def test_meshes_are_equal_exactly_where_their_parts_are(left: Naive, right: Naive, data: st.DataObject) -> None:
    alike = left.names == right.names and np.array_equal(left.table, right.table) and left.ulysses == right.ulysses
    assert (left.mesh == right.mesh) == alike
    assert left.mesh == left.mesh
    assert len({left.mesh, left.mesh, left.mesh.replace()}) == 1
    table = left.table.reshape(-1).copy()
    table[[0, data.draw(st.integers(0, len(table) - 1))]] = table[[data.draw(st.integers(0, len(table) - 1)), 0]]
    if len(set(table.tolist())) == len(table) and not np.array_equal(table.reshape(left.table.shape), left.table):
        assert left.mesh != Naive(left.names, table.reshape(left.table.shape), left.ulysses).mesh


def test_the_same_devices_in_another_order_are_another_mesh() -> None:
    assert DeviceMesh([0, 1, 2, 3]) != DeviceMesh([0, 1, 3, 2])
    assert DeviceMesh([[0, 1]], ("dp", "tp")) != DeviceMesh([[0, 1]], ("pp", "tp"))
    assert DeviceMesh([0, 1]) != DeviceMesh([0, 1], device_type="cpu")
    assert DeviceMesh([0, 1]) != [0, 1]
    assert (DeviceMesh([0, 1]) == None) is False  # noqa: E711 - what the operator answers is the claim
    merged = DeviceMesh.from_axes({"pp": 2, "tp": 2}).flatten(("pp", "tp"), "x")
    assert merged != DeviceMesh.from_axes({"tp": 4}).split("tp", {"x": 4})


def test_a_pickle_is_small_at_any_size_and_a_table_is_stored_once() -> None:
    for mesh in SETTLED[:5]:
        assert len(pickle.dumps(mesh)) <= 400
    generator = np.random.default_rng(0)
    for spread, width in ((1, 2), (4, 2), (2**20, 5), (2**40, 7)):
        table = generator.permutation(10_000) * spread
        assert len(pickle.dumps(DeviceMesh(table))) <= 10_000 * width + 400
    mesh = DeviceMesh.from_sizes(dp_size=4096)
    assert mesh.mesh is mesh.mesh
    mesh.get_collect_ranks()
    assert len(pickle.dumps(mesh)) <= 400


def test_a_hash_is_the_same_in_every_process() -> None:
    code = "from twinkle import DeviceMesh; print(hash(DeviceMesh([3, 1, 2])), hash(DeviceMesh.from_sizes(tp_size=8)))"
    assert run_python(code).split() == [str(hash(DeviceMesh([3, 1, 2]))), str(hash(DeviceMesh.from_sizes(tp_size=8)))]


def test_a_broken_pickle_is_refused() -> None:
    whole = DeviceMesh.from_sizes(dp_size=8).__reduce__()
    restore, (state, device_type) = whole[0], whole[1]
    for broken in (b"", state[:-1], state + b"\0", b"\xff" * 20):
        with pytest.raises(MeshError, match="these bytes are no mesh"):
            restore(broken, device_type)


def test_dataclass_tools_see_the_documented_fields() -> None:
    assert dataclasses.is_dataclass(DeviceMesh)
    assert [field.name for field in dataclasses.fields(DeviceMesh)] == list(FIELDS)
    table = np.arange(16).reshape(2, 4, 2)
    given: dict[str, Any] = {**FIELDS, "mesh": table, "mesh_dim_names": ("pp", "dp", "tp"), "ep_size": 2}
    mesh = DeviceMesh(**given)
    found = dataclasses.asdict(mesh)
    assert np.array_equal(found.pop("mesh"), table)
    assert found == {name: value for name, value in given.items() if name != "mesh"}
    positional = DeviceMesh(*given.values())
    assert positional == mesh
    other = dataclasses.replace(mesh, vpp_size=3)
    assert other == mesh.replace(vpp_size=3)
    assert dataclasses.replace(DeviceMesh([0, 1])) == DeviceMesh([0, 1], device_type=DeviceMesh([0, 1]).device_type)


def test_plain_data_names_what_differs_from_the_plain_mesh() -> None:
    mesh = DeviceMesh.from_axes({"pp": 2, "dp": 4}, offset=8, ulysses_size=2, device_type="GPU")
    assert mesh.to_dict() == {
        "axes": {"pp": 2, "dp": 4}, "offset": 8, "strides": [4, 1], "ulysses_size": 2, "device_type": "cuda"
    }  # fmt: skip
    assert DeviceMesh([5, 3, 9]).to_dict() == {"axes": {"dp": 3}, "ranks": [5, 3, 9]}
    assert DeviceMesh.from_sizes(dp_size=2).to_dict() == {"axes": {"dp": 2}, "offset": 0, "strides": [1]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"axes": None}, "not a described mesh"),
        ({"axes": {"dp": 3.0, "tp": 2}}, "dp must be an integer"),
        ({"axes": {"dp": "3", "tp": 2}}, "dp must be an integer"),
        ({"axes": {"dp": True, "tp": 2}}, "dp must be an integer"),
        ({"axes": {"dp": 0, "tp": 2}}, "."),
        ({"axes": {"dp 1": 3, "tp": 2}}, "no identifier"),
        ({"axes": {5: 3, "tp": 2}}, "."),
        ({"strides": [2.5, 1]}, "a stride must be an integer"),
        ({"strides": [2, 1, 7]}, "strides"),
        ({"strides": [2]}, "strides"),
        ({"strides": [1, 1]}, "."),
        ({"strides": "21"}, "."),
        ({"offset": "8"}, "offset must be an integer"),
        ({"offset": -1}, "offset must be an integer >= 0"),
        ({"offset": 2**63}, "."),
        ({"ranks": [0, 1, 2, 3, 4, 5]}, "either 'ranks' or 'offset' and 'strides'"),
        ({"vpp_size": 2}, "vpp_size 2 needs pp_size"),
        ({"ulysses": 2}, "found .*ulysses"),
        ({"device_type": "toaster"}, "unknown device_type"),
        ({"merged": [[0, "x", 6, 2]]}, "."),
        ({"merged": [[0, "pp", 3, 0], [0, "tp", 2, 0]]}, "disagree"),
        ({"merged": 5}, "not a described mesh"),
        ({"sequence_parallel": 1}, "must be True or False"),
    ],
)
def test_data_that_describes_no_mesh_is_refused(change: dict[str, Any], words: str) -> None:
    data = {**DeviceMesh.from_sizes(dp_size=3, tp_size=2).to_dict(), **change}
    with pytest.raises(MeshError, match=words):
        DeviceMesh.from_dict(data)


@pytest.mark.parametrize(
    "data", [None, 5, [], {}, {"axes": {"dp": 2}}, {"axes": {"dp": 2}, "strides": [1]}, [("axes", 1)]]
)
def test_other_things_describe_no_mesh(data: Any) -> None:
    with pytest.raises(MeshError, match="a described mesh"):
        DeviceMesh.from_dict(data)


def test_a_stride_that_no_axis_needs_is_not_dropped_silently() -> None:
    one = DeviceMesh.from_axes({"dp": 1, "tp": 2}).to_dict()
    assert one["strides"] == [2, 1]
    with pytest.raises(MeshError, match=r"'strides' are \[7, 1\]"):
        DeviceMesh.from_dict({**one, "strides": [7, 1]})


@pytest.mark.parametrize("mesh", [*SETTLED, DeviceMesh(np.random.default_rng(1).permutation(4096))], ids=str)
def test_a_repr_is_one_short_line_that_shows_the_axis_order(mesh: DeviceMesh) -> None:
    text = repr(mesh)
    assert len(text) < 200
    assert text.isprintable()
    words = text.removeprefix("DeviceMesh(").replace(",", " ").replace(")", " ").split(" ")
    places = [words.index(f"{name}={size}") for name, size in zip(mesh.mesh_dim_names or (), mesh.shape, strict=True)]
    assert all(left < right for left, right in pairwise(places))


def test_a_repr_stays_short_whatever_the_names() -> None:
    long = DeviceMesh.from_sizes(tp_size=2, dp_size=2).flatten("tp", "x" * 5000)
    assert len(repr(long)) < 200
    assert repr(long).startswith("DeviceMesh(dp=2, xxx")


@given(meshes(), st.data())
def test_explain_names_everything_about_a_rank(naive: Naive, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(naive.ranks) - 1))
    rank = naive.ranks[position]
    text = naive.mesh.explain(rank)
    assert text.splitlines()[0].startswith(f"rank {rank} of DeviceMesh(")
    assert f"position {position}" in text
    assert f"data rank {naive.data_rank(position)} of {naive.data_world_size}" in text
    for name in naive.names:
        assert f"{name}={naive.index(name, position)}" in text
    assert len(text.splitlines()) <= 12
    with pytest.raises(RankError, match="is not in this mesh"):
        naive.mesh.explain(max(naive.ranks) + 1)


def test_explain_is_short_at_any_size() -> None:
    assert len(ENORMOUS.explain(2**61 - 1)) < 2000
    huge_peers = DeviceMesh.from_axes({"fsdp": 2**20, "dp": 2**40, "tp": 2}, ulysses_size=2**30)
    assert "data rank" in huge_peers.explain(12345)
