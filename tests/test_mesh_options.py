"""Options may be set and are checked when set; the layout is read-only; device types are found when read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import run_python
from twinkle import DeviceMesh
from twinkle.errors import DeviceError, MeshError

OPTIONS = ("ep_size", "etp_size", "ep_fsdp_size", "vpp_size", "ulysses_size", "sequence_parallel")


def a_mesh() -> DeviceMesh:
    return DeviceMesh.from_sizes(dp_size=4, pp_size=2, tp_size=2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ep_size", 4),
        ("etp_size", 2),
        ("vpp_size", 3),
        ("ulysses_size", 2),
        ("ep_fsdp_size", 16),
        ("sequence_parallel", True),
        ("ulysses_size", np.int32(4)),
    ],
)
def test_an_option_is_set_and_part_of_equality(name: str, value: Any) -> None:
    mesh, plain = a_mesh(), a_mesh()
    setattr(mesh, name, value)
    assert getattr(mesh, name) == value
    assert mesh != plain
    assert hash(mesh) == hash(plain)
    assert mesh == plain.replace(**{name: value}) == DeviceMesh.from_axes({"pp": 2, "dp": 4, "tp": 2}, **{name: value})
    assert getattr(plain, name) in (None, False)
    assert mesh.replace(**{name: False if name == "sequence_parallel" else None}) == plain
    setattr(mesh, name, False if name == "sequence_parallel" else None)
    assert mesh == plain


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ulysses_size", 3, r"ulysses_size 3 does not divide dp \* fsdp = 4 \* 1 = 4"),
        ("ulysses_size", -1, "ulysses_size is -1"),
        ("ulysses_size", True, "ulysses_size must be a whole number"),
        ("ulysses_size", 2.0, "ulysses_size must be a whole number"),
        ("ulysses_size", 2**64, "below 2"),
        ("ep_size", 3, r"pp \* ep \* etp = 2 \* 3 \* 2 = 12 does not divide the world size 16"),
        ("etp_size", 16, r"pp \* ep \* etp = 2 \* 1 \* 16 = 32"),
        ("etp_size", 0, "etp_size is 0"),
        ("ep_fsdp_size", 4, r"ep \* ep_fsdp = 1 \* 4 = 4, but it must be the world size 16"),
        ("vpp_size", "2", "vpp_size must be a whole number"),
        ("sequence_parallel", None, "sequence_parallel must be True or False"),
        ("sequence_parallel", 1, "sequence_parallel must be True or False"),
        ("device_type", "toaster", "unknown device_type 'toaster'"),
        ("device_type", 5, "unknown device_type 5"),
        ("device_type", "", "unknown device_type ''"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_and_nothing_changes(name: str, value: Any, words: str) -> None:
    mesh = a_mesh()
    with pytest.raises(MeshError, match=words):
        setattr(mesh, name, value)
    assert mesh == a_mesh()
    with pytest.raises(MeshError, match=words):
        mesh.replace(**{name: value})
    with pytest.raises(MeshError, match=words):
        DeviceMesh(mesh.mesh, mesh.mesh_dim_names, **{name: value})


def test_answers_follow_an_option_that_is_set_later() -> None:
    mesh = DeviceMesh.from_sizes(dp_size=4, tp_size=2)
    assert mesh.get_collect_ranks() == [0, 2, 4, 6]
    mesh.ulysses_size = 2
    assert mesh.get_collect_ranks() == [0, 4]
    assert mesh.data_ranks().tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert mesh.slices(3).tolist() == [[0, 2], [2, 3]]
    mesh.ulysses_size = None
    assert mesh.get_collect_ranks() == [0, 2, 4, 6]


@pytest.mark.parametrize("name", ["mesh", "mesh_dim_names", "dp_world_size", "tp_world_size"])
def test_the_layout_is_read_only(name: str) -> None:
    mesh = a_mesh()
    with pytest.raises(MeshError, match="is part of the layout, which is read-only; make another mesh instead"):
        setattr(mesh, name, None)


@pytest.mark.parametrize("name", ["world_size", "shape", "data_world_size", "strides", "offset", "order", "dp_rank"])
def test_answers_cannot_be_set(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(a_mesh(), name, 1)


def test_a_misspelt_option_is_refused_everywhere() -> None:
    mesh = a_mesh()
    with pytest.raises(AttributeError):
        mesh.ulyses_size = 2  # type: ignore[attr-defined]
    with pytest.raises(MeshError, match='a mesh has no option "ulyses_size"; its options are ulysses_size'):
        mesh.replace(ulyses_size=2)
    with pytest.raises(MeshError, match="no option"):
        mesh.replace(mesh=[0])
    with pytest.raises(TypeError):
        DeviceMesh([0], ulyses_size=2)  # type: ignore[call-arg]


def test_replace_makes_another_mesh_and_no_array() -> None:
    mesh = DeviceMesh.from_axes({"pp": 2**20, "dp": 2**20}, device_type="npu")
    other = mesh.replace(vpp_size=2, device_type=None)
    assert mesh.vpp_size is None
    assert other.vpp_size == 2
    assert other == DeviceMesh.from_axes({"pp": 2**20, "dp": 2**20}, vpp_size=2)
    assert mesh.replace() == mesh
    assert mesh.replace() is not mesh


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("GPU", "cuda"), ("gpu", "cuda"), ("Cuda", "cuda"), ("PPU", "cuda"), ("maca", "cuda"), ("ROCM", "cuda"),
        ("hip", "cuda"), ("NPU", "npu"), ("ascend", "npu"), ("XPU", "xpu"), ("HPU", "hpu"), ("mlu", "mlu"),
        ("MUSA", "musa"), ("mps", "mps"), ("CPU", "cpu"),
    ],
)  # fmt: skip
def test_a_device_type_is_read_in_any_case_as_torch_calls_it(given: str, read: str) -> None:
    assert DeviceMesh.from_sizes(device_type=given).device_type == read
    assert DeviceMesh.from_sizes(device_type=given) == DeviceMesh([0], device_type=read)
    mesh = DeviceMesh([0])
    mesh.device_type = given
    assert mesh.device_type == read
    assert not issubclass(DeviceError, MeshError)


def test_a_device_type_left_open_is_found_when_read_and_stays_open() -> None:
    mesh = DeviceMesh.from_sizes(dp_size=2)
    found = mesh.device_type
    assert found in ("cuda", "npu", "xpu", "hpu", "mlu", "musa", "mps")
    assert "device_type" not in mesh.to_dict()
    assert mesh != mesh.replace(device_type=found)
    assert mesh == DeviceMesh.from_sizes(dp_size=2)
    assert "device_type" not in repr(mesh)
    mesh.device_type = "cpu"
    mesh.device_type = None
    assert mesh == DeviceMesh.from_sizes(dp_size=2)


def test_reading_options_and_device_types_loads_no_array_and_no_torch() -> None:
    code = """
import sys
from twinkle import DeviceMesh
mesh = DeviceMesh.from_sizes(dp_size=2**20, tp_size=2**20, ulysses_size=4)
mesh.ulysses_size = 2
mesh.device_type, mesh.replace(ep_size=2), mesh.to_dict(), repr(mesh), hash(mesh), mesh == mesh.replace(), mesh.order
mesh.coord_of(5), mesh.rank_of(dp=1, tp=1), mesh.group_of("tp", 5), mesh.get_slice(8, global_rank=3), mesh.explain(9)
mesh.submesh("tp", 3).permute(["tp"]).flatten("tp", "x").split("x", {"tp": 2**20}), mesh.expert_mesh("fsdp")
print(sorted({"numpy", "torch", "ray"} & {name.partition(".")[0] for name in sys.modules}))
"""
    assert run_python(code).strip() == "[]"
