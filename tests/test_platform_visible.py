"""Visible devices: what each runtime makes of its mask, and the strict mode that refuses what it drops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from twinkle.errors import DeviceError
from twinkle.platform import logical_index, physical_id, visible_devices

CASES = json.loads((Path(__file__).parent / "cases" / "visible_devices.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['family']}={case['value']}")
def test_handed_cases(case: dict[str, Any]) -> None:
    assert visible_devices(case["family"], case["value"], case.get("count", 8)) == tuple(case["expect"])


# What torch makes of CUDA_VISIBLE_DEVICES, then cut at the first index that is not on a host of 8.
CUDA = [
    (None, [*range(8)]),
    ("", []),
    (" ", []),
    ("-1", []),
    ("NoDevFiles", []),
    ("none", []),
    ("abc", []),
    ("1,0", [1, 0]),
    ("0,0", []),
    ("0,1,0", []),
    ("0,-1,1", [0]),
    ("0,,1", [0]),
    (" 0, 1 ", [0, 1]),
    ("0,1,", [0, 1]),
    ("1gpu2,2ampere", [1, 2]),
    ("0x1", [0]),
    ("0;1", [0]),
    ("0-3", [0]),
    ("0,abc,1", [0]),
    ("GPU-a,GPU-b", ["GPU-a", "GPU-b"]),
    ("GPU-a, GPU-b", ["GPU-a"]),
    ("GPU-a,0", ["GPU-a"]),
    ("0,GPU-a", [0]),
    ("GPU-a,GPU-a", []),
    ("MIG-x,MIG-y", ["MIG-x", "MIG-y"]),
    ("MIG-GPU-u/1/0", ["MIG-GPU-u/1/0"]),
    ("0,99,1", [0]),
    ("8", []),
    ("99,99,0", []),
]
# What the Ascend runtime makes of ASCEND_RT_VISIBLE_DEVICES with 8 devices.
NPU = [
    (None, [*range(8)]),
    ("", []),
    ("0,1", [0, 1]),
    ("1,0", []),
    ("3,1", []),
    ("0,0", []),
    ("-1", []),
    ("abc", []),
    ("1, 2,3", [1]),
    (" 1", []),
    ("1,2,-1,3", [1, 2]),
    ("0,,1", [0]),
    ("1,3,8", [1, 3]),
    ("0,1,", [0, 1]),
    ("00,1", [0, 1]),
]
XPU = [
    (None, [*range(8)]),
    ("1,0", [1, 0]),
    ("1,1,0", [1, 0]),
    ("1,-2,0", [1, 0]),
    (" 1 , 0", [1, 0]),
    ("0.0", []),
    ("0.0,0.1", []),
    ("a", []),
    ("0,,1", []),
]


@pytest.mark.parametrize(
    ("family", "value", "seen"),
    [(family, *row) for family, rows in (("cuda", CUDA), ("rocm", CUDA), ("npu", NPU), ("xpu", XPU)) for row in rows],
)
def test_lenient_answers_as_the_runtime_does(family: str, value: str | None, seen: list[int | str]) -> None:
    assert visible_devices(family, value) == tuple(map(str, seen))


@pytest.mark.parametrize("value", ["--1", "+", "0,-", "9" * 5000])
def test_a_value_on_which_the_runtime_fails_is_refused(value: str) -> None:
    with pytest.raises(DeviceError, match="the runtime fails on"):
        visible_devices("cuda", value)


# family, value, what the runtime sees of it, which strict answers too
WHOLE = [
    ("cuda", None, [*range(8)]),
    ("cuda", "", []),
    ("cuda", " 1, 0 ", [1, 0]),
    ("cuda", "00,1", [0, 1]),
    ("cuda", "GPU-a,GPU-b", ["GPU-a", "GPU-b"]),
    ("rocm", "GPU-a", ["GPU-a"]),
    ("npu", "1,3", [1, 3]),
    ("npu", "", []),
    ("xpu", "1,0", [1, 0]),
    ("hpu", "2,3", [2, 3]),
    ("hpu", "4,5,6,7", [4, 5, 6, 7]),
    ("mlu", "3,1", [3, 1]),
    ("musa", "0", [0]),
]


@pytest.mark.parametrize(("family", "value", "seen"), WHOLE)
def test_strict_answers_a_value_of_which_nothing_is_dropped(
    family: str, value: str | None, seen: list[int | str]
) -> None:
    assert visible_devices(family, value, strict=True) == tuple(map(str, seen))
    assert visible_devices(family, value) == tuple(map(str, seen))


# family, value, the token that the refusal names, why
DROPPED = [
    ("cuda", "0,0", "'0'", "twice"),
    ("cuda", "0,-1,1", "'-1'", "index"),
    ("cuda", "-1", "'-1'", "index"),
    ("cuda", "0,,1", "''", "empty"),
    ("cuda", "0,1,", "''", "empty"),
    ("cuda", "1gpu2", "'1gpu2'", "index"),
    ("cuda", "none", "'none'", "GPU-"),
    ("cuda", "0,8", "'8'", "8 devices"),
    ("cuda", "GPU-a,0", "'0'", "mix"),
    ("cuda", "0,GPU-a", "'GPU-a'", "mix"),
    ("cuda", "GPU-a, GPU-b", "' GPU-b'", "space"),
    ("cuda", "GPU-a,GPU-a", "'GPU-a'", "twice"),
    ("npu", "1,0", "'0'", "ascend"),
    ("npu", "0,0", "'0'", "twice"),
    ("npu", "1, 2", "' 2'", "index"),
    ("npu", " ", "' '", "index"),
    ("npu", "GPU-a", "'GPU-a'", "index"),
    ("xpu", "0.0", "'0.0'", "index"),
    ("xpu", "1,1", "'1'", "twice"),
    ("hpu", "1,2", "'1,2'", "aligned"),
    ("hpu", "0,1,2", "'0,1,2'", "aligned"),
]


@pytest.mark.parametrize(("family", "value", "token", "why"), DROPPED)
def test_strict_names_the_entry_that_the_runtime_would_drop(family: str, value: str, token: str, why: str) -> None:
    with pytest.raises(DeviceError) as refusal:
        visible_devices(family, value, strict=True)
    message = str(refusal.value)
    assert token in message
    assert why in message
    assert repr(value) in message


def test_families_without_a_mask_see_what_is_there_and_refuse_a_value() -> None:
    assert visible_devices("mps", None) == ("0",)
    assert visible_devices("mps", None, 0) == ()
    assert visible_devices("cpu", None) == ()
    with pytest.raises(DeviceError, match="no mask variable"):
        visible_devices("cpu", "0")


def test_logical_and_physical_are_inverse() -> None:
    visible = visible_devices("cuda", "5,7,2")
    assert [physical_id(visible, index) for index in range(3)] == ["5", "7", "2"]
    assert [logical_index(visible, identifier) for identifier in visible] == [0, 1, 2]
    assert logical_index(visible, 7) == 1


def test_an_index_or_id_that_is_not_visible_is_refused_with_what_is() -> None:
    visible = ("5", "7")
    with pytest.raises(DeviceError, match=r"index 2 .* 2 visible devices \(5, 7\)"):
        physical_id(visible, 2)
    with pytest.raises(DeviceError, match=r"'6' is not visible, only 5, 7"):
        logical_index(visible, 6)
    with pytest.raises(DeviceError, match="index"):
        physical_id(visible, -1)


@pytest.mark.parametrize(
    ("family", "value", "count"), [("gpus", "0", 8), ("cuda", 3, 8), ("cuda", "0", -1), ("cuda", None, 2**40)]
)
def test_wrong_arguments_are_refused(family: Any, value: Any, count: Any) -> None:
    with pytest.raises(DeviceError):
        visible_devices(family, value, count)
