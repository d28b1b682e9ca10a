"""Real launches: what `Platform` answers in processes that mpirun and torchrun started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import LIMIT
from twinkle.platform.launchers import FIELDS, LAUNCHERS

ASK = """
import dataclasses, json, os, sys
from twinkle.platform import Platform, resolve
answers = {
    "rank": Platform.get_rank(), "world_size": Platform.get_world_size(),
    "local_rank": Platform.get_local_rank(), "local_world_size": Platform.get_local_world_size(),
    "node_rank": Platform.get_node_rank(), "nnodes": Platform.get_nnodes(),
    "master": Platform.is_master(), "local_master": Platform.is_local_master(), "last": Platform.is_last_rank(),
    "record": dataclasses.asdict(resolve()), "device": Platform.bind("cpu").device,
    "peers": [(part := Platform.get_peer_index(7)).start, part.stop],
}
# torch's own MPI or gloo group would be slow to make; the launcher's variables are what it would read.
answers["heavy"] = [name for name in ("torch", "ray", "numpy") if name in sys.modules]
with open(os.path.join(sys.argv[1], f"{os.getpid()}.json"), "w") as file:
    json.dump(answers, file)
"""


def launched(command: list[str], folder: Path, **variables: str) -> list[dict[str, Any]]:
    """The answers of every process that a command starts, in rank order."""
    script = folder / "ask.py"
    script.write_text(ASK)
    names = {name for row in LAUNCHERS for names in (*row.shown_by, row.local_rank, row.nnodes) for name in names}
    env = {name: value for name, value in os.environ.items() if name not in names}
    env |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
    done = subprocess.run(
        [*command, str(script), str(folder)], env=env, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return sorted(answers, key=lambda answer: answer["rank"])


def check(answers: list[dict[str, Any]], world: int, launcher: str) -> None:
    assert [answer["rank"] for answer in answers] == list(range(world))
    for rank, answer in enumerate(answers):
        assert [answer[what] for what in FIELDS] == [rank, world, rank, world, 0, 1]
        assert [answer["record"][what] for what in FIELDS] == [rank, world, rank, world, 0, 1]
        assert answer["record"]["launcher"] == launcher
        assert answer["master"] is (rank == 0)
        assert answer["local_master"] is (rank == 0)
        assert answer["last"] is (rank == world - 1)
        assert answer["device"] == "cpu"
        assert answer["heavy"] == []
    assert [answer["peers"][0] for answer in answers[1:]] == [answer["peers"][1] for answer in answers[:-1]]


def test_processes_of_mpirun_know_their_places(tmp_path: Path) -> None:
    # As root in a container mpirun wants to be told twice, and it must not count the cores.
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = ["mpirun", "-n", "3", "--oversubscribe", "--host", "localhost:3", sys.executable]
    check(launched(command, tmp_path, **root), 3, "openmpi")


def test_processes_of_torchrun_know_their_places(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    answers = launched(command, tmp_path)
    check(answers, 2, "torchrun")
    assert {answer["record"]["sources"]["node_rank"] for answer in answers} == {"GROUP_RANK"}
