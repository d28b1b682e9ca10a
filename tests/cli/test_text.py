"""What the command prints, at two widths, as kept in tests/snapshots."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Answer
from tests.snapshots import assert_snapshot
from twinkle.show.table import display_width

ACTOR = ("--pp", 2, "--dp", 2, "--tp", 2)
BIG = ("--pp", 8, "--dp", 16384, "--tp", 8)
GROUPS = """
- {name: 训练, ranks: 8, device_type: GPU}
- {name: 采样器 sampler, ranks: 8, device_type: GPU, gpus_per_worker: 2}
- {name: reward, ranks: 3, device_type: CPU}
"""
COMMANDS: dict[str, tuple[object, ...]] = {
    "mesh": ("mesh", *ACTOR),
    "mesh-nodes": ("mesh", *ACTOR, "--nproc-per-node", 4),
    "mesh-tp-leaves-its-node": ("mesh", "--tp", 16, "--dp", 2, "--nproc-per-node", 8),
    "mesh-big": ("mesh", *BIG, "--nproc-per-node", 8),
    "mesh-all-axes": ("mesh", "--fsdp", 2, "--pp", 2, "--dp", 2, "--cp", 2, "--tp", 2, "--ulysses", 2),
    "rank": ("rank", 5, *ACTOR, "--nproc-per-node", 4, "--batch", 10),
    "rank-big": ("rank", 123456, *BIG, "--batch", 100000),
    "groups": ("groups", "tp", *ACTOR),
    "groups-of-two-axes": ("groups", "dp,tp", *ACTOR),
    "groups-folded": ("groups", "dp", *BIG),
    "slices": ("slices", "--batch", 2048, "--dp", 4, "--tp", 2, "--pp", 2),
    "slices-folded": ("slices", "--batch", 100000, *BIG),
    "slices-too-few-rows": ("slices", "--batch", 3, "--dp", 4),
    "flow": ("flow", "--from", "dp=4", "--to", "pp=2,dp=2,tp=2", "--batch", 10),
    "flow-folded": ("flow", "--from", "dp=100,tp=4", "--to", "pp=2,dp=60", "--batch", 1000),
}


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_what_it_printed(twinkle: Callable[..., Answer], name: str, columns: int) -> None:
    answer = twinkle(*COMMANDS[name], columns=columns)
    assert (answer.code, answer.err) == (0, "")
    assert all(display_width(line) <= columns for line in answer.out.splitlines())
    assert_snapshot(f"{name}-{columns}", answer.out)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_placement_is_printed_with_chinese_names(
    twinkle: Callable[..., Answer], tmp_path: Path, columns: int
) -> None:
    (tmp_path / "groups.yaml").write_text(GROUPS, encoding="utf-8")
    answer = twinkle("allocate", tmp_path / "groups.yaml", "--nodes", 2, "--gpus", 8, columns=columns)
    assert (answer.code, answer.err) == (0, "")
    assert all(display_width(line) <= columns for line in answer.out.splitlines())
    assert_snapshot(f"allocate-{columns}", answer.out)


def test_all_of_a_folded_table_is_printed_on_request(twinkle: Callable[..., Answer]) -> None:
    words = ("groups", "tp", "--dp", 100, "--tp", 2)
    assert "... 76 more groups, all of them with --all ..." in twinkle(*words).out
    assert len(twinkle(*words, "--all").out.splitlines()) == 103
