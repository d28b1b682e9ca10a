"""The command's JSON and CSV, equal to the Python answers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Answer
from tests.meshes import CASES, mesh_of
from tests.support import cases
from twinkle import allocate

Command = Callable[..., Answer]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])


@pytest.fixture
def words(case: dict[str, Any], tmp_path: Path) -> list[object]:
    """A handed mesh as the options of a command: as sizes, or as a file."""
    if "from_sizes" in case:
        sizes = {key.removesuffix("_size"): value for key, value in case["from_sizes"].items()}
        names = {"world": "--world-size"}
        return [word for name, size in sizes.items() for word in (names.get(name, f"--{name.replace('_', '-')}"), size)]
    described = {"mesh": case["mesh"], "mesh_dim_names": case["mesh_dim_names"], **case["options"]}
    (tmp_path / "mesh.json").write_text(json.dumps(described))
    return ["--mesh", tmp_path / "mesh.json"]


def answered(answer: Answer) -> Any:
    """The JSON that was printed."""
    assert (answer.code, answer.err) == (0, "")
    return json.loads(answer.out)


@each_case
def test_the_command_answers_a_handed_mesh_as_python_does(
    twinkle: Command, case: dict[str, Any], words: list[object]
) -> None:
    expected, mesh = case["expect"], mesh_of(case)
    about = answered(twinkle("mesh", *words, "--json"))
    assert {key: about[key] for key in ("world_size", "names", "shape", "data_world_size")} == {
        key: expected[key] for key in ("world_size", "names", "shape", "data_world_size")
    }
    for name, groups in expected["groups"].items():
        assert answered(twinkle("groups", name, *words, "--json"))["groups"] == groups
        printed = twinkle("groups", name, *words, "--csv").out
        assert [tuple(map(int, row)) for row in list(csv.reader(io.StringIO(printed)))[1:]] == [
            (number, index, rank) for number, group in enumerate(groups) for index, rank in enumerate(group)
        ]
    for batch, slices in expected["slices"].items():
        found = answered(twinkle("slices", "--batch", batch, *words, "--json"))
        assert found["slices"] == slices
        assert found["collected_from"] == expected["collect_ranks"]
    for rank, coordinates in expected["coordinates"].items():
        found = answered(twinkle("rank", rank, *words, "--batch", 10, "--nproc-per-node", 4, "--json"))
        rows = mesh.get_slice(10, global_rank=int(rank))
        assert found["coordinates"] == coordinates
        assert found["data_rank"] == expected["data_rank"][rank]
        assert found["rows"] == [rows.start, rows.stop]
        assert (found["node"], found["local_rank"]) == divmod(int(rank), 4)
        for name, group in found["groups"].items():
            assert group["ranks"] == list(mesh.group_of(name, int(rank)))


@pytest.mark.parametrize("case", cases("plan")["flow"], ids=lambda case: case["id"])
def test_the_command_answers_a_handed_flow_as_python_does(twinkle: Command, case: dict[str, Any]) -> None:
    def spec(side: dict[str, Any]) -> str:
        more = {key: value for key, value in side.items() if key != "dims"}
        return ",".join(f"{name}={size}" for name, size in [*side["dims"], *more.items()])

    words = ("--from", spec(case["from"]), "--to", spec(case["to"]), "--collect-from", case["collect_from"])
    assert answered(twinkle("flow", *words, "--batch", case["n"], "--json"))["moves"] == case["moves"]


@pytest.mark.parametrize(
    "case", cases("plan")["reshard"], ids=lambda case: f"{case['from_shards']}-{case['to_shards']}"
)
def test_the_command_answers_a_handed_reshard_as_python_does(twinkle: Command, case: dict[str, Any]) -> None:
    words = ("--from", f"dp={case['from_shards']}", "--to", f"dp={case['to_shards']}", "--batch", case["n"])
    assert answered(twinkle("flow", *words, "--json"))["shard_moves"] == case["moves"]


@pytest.mark.parametrize("case", [case for case in cases("allocate") if "expect" in case], ids=lambda case: case["id"])
def test_the_command_allocates_as_python_does(twinkle: Command, case: dict[str, Any], tmp_path: Path) -> None:
    asked = {key: case[key] for key in ("groups", "nodes", "nproc_per_node", "ncpu_proc_per_node") if key in case}
    (tmp_path / "job.json").write_text(json.dumps(asked))
    found = answered(twinkle("allocate", tmp_path / "job.json", "--json"))
    assert found == case["expect"]
    assert list(found) == list(allocate(**asked))


@pytest.mark.parametrize("suffix", ["json", "yaml"])
@pytest.mark.parametrize(
    "described",
    [
        {"mesh": [[2, 0], [3, 1]], "mesh_dim_names": ["dp", "tp"]},
        {"axes": {"dp": 2, "tp": 2}, "offset": 4, "strides": [2, 1]},
        {"dp": 2, "tp_size": 2, "world_size": 4},
        [[2, 0], [3, 1]],
    ],
    ids=["fields", "to_dict", "sizes", "table"],
)
def test_a_mesh_may_come_from_a_file(twinkle: Command, tmp_path: Path, described: Any, suffix: str) -> None:
    path = tmp_path / f"mesh.{suffix}"
    path.write_text(json.dumps(described))
    names = ("--names", "dp,tp") if isinstance(described, list) else ()
    about = answered(twinkle("mesh", "--mesh", path, *names, "--json"))
    assert (about["names"], about["shape"]) == (["dp", "tp"], [2, 2])


def test_a_mesh_may_come_from_an_array_for_every_command(twinkle: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "ranks.npy", np.array([[2, 0], [3, 1]]))
    found = answered(twinkle("groups", "tp", "--mesh", tmp_path / "ranks.npy", "--names", "dp,tp", "--json"))
    assert found["groups"] == [[2, 0], [3, 1]]
    np.save(tmp_path / "row.npy", np.arange(4, 8))
    flow = answered(twinkle("flow", "--from", tmp_path / "row.npy", "--to", "dp=2", "--batch", 4, "--json"))
    assert flow["shard_moves"] == [[0, 0, 0, 0, 1], [1, 0, 0, 1, 1], [2, 0, 1, 0, 1], [3, 0, 1, 1, 1]]


def test_orders_are_axes_outermost_first_or_megatron_s(twinkle: Command) -> None:
    for order in ("pp,dp,tp", "tp-cp-ep-dp-pp"):
        about = answered(twinkle("mesh", "--pp", 2, "--dp", 2, "--tp", 2, "--order", order, "--json"))
        assert about["names"] == ["pp", "dp", "tp"]
    about = answered(twinkle("mesh", "--pp", 2, "--dp", 2, "--tp", 2, "--order", "dp,pp,tp", "--json"))
    assert about["names"] == ["dp", "pp", "tp"]
