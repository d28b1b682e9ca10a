"""What `twinkle env` says of launchers, masks and devices."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Answer
from twinkle.platform.families import FAMILIES
from twinkle.show import surroundings

TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8",
    "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "job",
}  # fmt: skip


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts the process on a host with a family of devices, with some variables."""

    def put(family: str | None, **variables: str) -> None:
        found = None if family is None else FAMILIES[family]
        monkeypatch.setattr(surroundings, "detect_family", lambda: found)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return put


def asked(twinkle: Callable[..., Answer]) -> tuple[dict[str, object], str]:
    """The JSON and the text."""
    found, text = twinkle("env", "--json"), twinkle("env")
    assert (found.code, text.code) == (0, 0)
    return json.loads(found.out), text.out


def test_without_a_launcher_the_process_is_nobody_on_the_cpu(
    twinkle: Callable[..., Answer], on: Callable[..., None]
) -> None:
    on(None)
    found, text = asked(twinkle)
    assert (found["launcher"], found["family"], found["device"], found["masks"]) == ("single", "cpu", "cpu", {})
    assert text.startswith("launcher: none, this process is nobody in a world of one\n")


def test_under_torchrun_every_number_says_where_it_is_from(
    twinkle: Callable[..., Answer], on: Callable[..., None]
) -> None:
    on("cuda", **TORCHRUN, CUDA_VISIBLE_DEVICES="4,5,6,7")
    found, text = asked(twinkle)
    assert found["launcher"] == "torchrun"
    assert (found["device"], found["why"]) == ("cuda:3", "its local rank; CUDA_VISIBLE_DEVICES makes it device 7")
    assert "rank                  3  RANK" in text
    assert "mask: CUDA_VISIBLE_DEVICES='4,5,6,7', visible 4, 5, 6, 7" in text


def test_an_isolated_process_gets_the_first_device_it_sees(
    twinkle: Callable[..., Answer], on: Callable[..., None]
) -> None:
    on("npu", RANK="3", WORLD_SIZE="8", LOCAL_RANK="0", TWINKLE_LOCAL_INDEX="3", ASCEND_RT_VISIBLE_DEVICES="5")
    found, _ = asked(twinkle)
    assert found["device"] == "npu:0"
    assert (
        found["why"] == "its launcher gave this process devices of its own; ASCEND_RT_VISIBLE_DEVICES makes it device 5"
    )


def test_a_mask_that_hides_the_device_is_said_to(twinkle: Callable[..., Answer], on: Callable[..., None]) -> None:
    on("cuda", **TORCHRUN, CUDA_VISIBLE_DEVICES="0,1")
    found, text = asked(twinkle)
    assert (found["device"], found["why"]) == (None, "its local rank is 3, but CUDA_VISIBLE_DEVICES leaves 2 visible")
    assert "would be bound: refused (its local rank is 3" in text


def test_what_a_runtime_would_drop_is_warned_of(twinkle: Callable[..., Answer], on: Callable[..., None]) -> None:
    on("cuda", CUDA_VISIBLE_DEVICES="0,0")
    found, text = asked(twinkle)
    assert found["masks"]["CUDA_VISIBLE_DEVICES"]["visible"] == []  # type: ignore[index]
    assert "warning: CUDA_VISIBLE_DEVICES='0,0'" in text


def test_variables_that_contradict_are_part_of_the_answer(
    twinkle: Callable[..., Answer], on: Callable[..., None]
) -> None:
    on(None, RANK="8", WORLD_SIZE="8")
    found, text = asked(twinkle)
    assert "RANK=8 is not below WORLD_SIZE=8" in str(found["refused"])
    assert text.startswith("launcher: refused, ")
