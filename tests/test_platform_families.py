"""Families: names and aliases, the table's facts, and finding a host's accelerator from what lies about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from twinkle.errors import DeviceError, MeshError, PlacementError
from twinkle.platform import FAMILIES, detect, detect_family, device_type_of, family_of

NAMES = {
    "cuda": ["cuda", "GPU", "gpu", "PPU", "maca", " Cuda "],
    "rocm": ["ROCM", "rocm", "hip", "HIP"],
    "npu": ["NPU", "npu", "Ascend"],
    "xpu": ["XPU", "xpu"],
    "hpu": ["HPU"],
    "mlu": ["MLU"],
    "musa": ["MUSA"],
    "mps": ["MPS", "mps"],
    "cpu": ["CPU", "cpu"],
}

# family, torch prefix, backend, mask, Ray resource
FACTS = [
    ("cuda", "cuda", "nccl", "CUDA_VISIBLE_DEVICES", "GPU"),
    ("rocm", "cuda", "nccl", "HIP_VISIBLE_DEVICES", "GPU"),
    ("npu", "npu", "hccl", "ASCEND_RT_VISIBLE_DEVICES", "NPU"),
    ("xpu", "xpu", "xccl", "ZE_AFFINITY_MASK", "GPU"),
    ("hpu", "hpu", "hccl", "HABANA_VISIBLE_MODULES", "HPU"),
    ("mlu", "mlu", "cncl", "MLU_VISIBLE_DEVICES", "MLU"),
    ("musa", "musa", "mccl", "MUSA_VISIBLE_DEVICES", "MUSA"),
    ("mps", "mps", "gloo", None, "GPU"),
    ("cpu", "cpu", "gloo", None, "CPU"),
]


@pytest.mark.parametrize(("family", "name"), [(family, name) for family, names in NAMES.items() for name in names])
def test_a_family_answers_to_all_its_names_in_any_case(family: str, name: str) -> None:
    assert family_of(name).name == family
    assert device_type_of(name) == FAMILIES[family].prefix


@pytest.mark.parametrize(("name", "prefix", "backend", "mask", "resource"), FACTS)
def test_the_table_holds_what_each_stack_calls_it(
    name: str, prefix: str, backend: str, mask: str | None, resource: str
) -> None:
    family = FAMILIES[name]
    assert (family.prefix, family.backend, family.mask, family.resource) == (prefix, backend, mask, resource)


def test_only_families_that_ray_knows_have_a_variable_that_stops_it() -> None:
    assert {name for name, family in FAMILIES.items() if family.noset} == {"cuda", "rocm", "npu", "xpu", "hpu"}
    assert FAMILIES["npu"].noset == ("RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES",)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cudda", ["'cudda'", "did you mean 'cuda'"]),
        ("NPUS", ["'NPUS'", "did you mean 'npu'"]),
        ("cuda:0", ["no index", "'cuda'"]),
        ("", ["''", "known are"]),
        (None, ["None", "known are"]),
        (3, ["3", "musa"]),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: Any, words: list[str]) -> None:
    with pytest.raises(MeshError) as refusal:
        device_type_of(name)
    for word in ["unknown device_type", *words]:
        assert word in str(refusal.value)
    with pytest.raises(PlacementError):
        family_of(name, refuse=PlacementError)
    with pytest.raises(DeviceError):
        family_of(name)


def torch_with(kind: str | None, hip: str | None = None) -> dict[str, Any]:
    device = None if kind is None else SimpleNamespace(type=kind)
    accelerator = SimpleNamespace(current_accelerator=lambda: device)
    return {"torch": SimpleNamespace(accelerator=accelerator, version=SimpleNamespace(hip=hip))}


def broken_torch() -> dict[str, Any]:
    def fail() -> None:
        raise RuntimeError("no driver")

    return {"torch": SimpleNamespace(accelerator=SimpleNamespace(current_accelerator=fail))}


# files below /dev, variables, loaded modules, system, family
HOSTS: list[tuple[list[str], dict[str, str], dict[str, Any], str, str | None]] = [
    ([], {}, {}, "linux", None),
    (["null", "nvidiactl", "nvidia-uvm"], {}, {}, "linux", None),
    (["nvidia0", "nvidia1"], {}, {}, "linux", "cuda"),
    (["dxg"], {}, {}, "linux", "cuda"),
    (["kfd"], {}, {}, "linux", "rocm"),
    (["davinci_manager"], {}, {}, "linux", None),
    (["davinci0", "davinci_manager"], {}, {}, "linux", "npu"),
    (["davinci12", "nvidia0"], {}, {}, "linux", "npu"),
    (["hl0"], {}, {}, "linux", "hpu"),
    (["accel/accel_controlD0"], {}, {}, "linux", "hpu"),
    (["accel/accel0"], {}, {}, "linux", None),
    (["cambricon_dev3"], {}, {}, "linux", "mlu"),
    (["mtgpu.0"], {}, {}, "linux", "musa"),
    (["dri/renderD128"], {}, {}, "linux", None),
    (["dri/renderD128"], {"ONEAPI_ROOT": "/opt"}, {}, "linux", "xpu"),
    (["dri/renderD128", "nvidia0"], {"ONEAPI_ROOT": "/opt"}, {}, "linux", "cuda"),
    ([], {}, {}, "Darwin arm64", "mps"),
    ([], {}, {}, "Darwin x86_64", None),
    ([], {}, torch_with(None), "linux", None),
    ([], {}, torch_with("npu"), "linux", "npu"),
    ([], {}, torch_with("cuda"), "linux", "cuda"),
    ([], {}, torch_with("cuda", hip="6.2"), "linux", "rocm"),
    ([], {}, torch_with("openreg"), "linux", None),
    (["davinci0"], {}, torch_with("cuda"), "linux", "npu"),
    ([], {}, broken_torch(), "linux", None),
    ([], {}, {"torch": SimpleNamespace()}, "linux", None),
]


@pytest.mark.parametrize(("files", "environ", "modules", "system", "family"), HOSTS)
def test_a_host_is_known_by_its_device_files_then_by_torch(
    files: list[str], environ: dict[str, str], modules: dict[str, Any], system: str, family: str | None
) -> None:
    found = detect_family(files=files, environ=environ, modules=modules, system=system)
    assert (None if found is None else found.name) == family
    prefix = detect(files=files, environ=environ, modules=modules, system=system)
    assert prefix == ("cuda" if family is None else FAMILIES[family].prefix)


def test_this_host_is_looked_at_when_nothing_is_given() -> None:
    assert detect() in {family.prefix for family in FAMILIES.values()}
