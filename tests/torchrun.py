"""Runs a program in several processes, as a user does with torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import LIMIT, ROOT, clean_environment

__all__ = ["seen_by_ranks", "torchrun"]


def torchrun(processes: int, *program: str | Path, timeout: float = LIMIT) -> str:
    """What the processes print; all they wrote is shown when one fails, and none outlives the timeout.

    `program` is what `python` takes: `"-m", "tests.jobs.groups_of_four"`, or a file.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    variables = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths.rstrip(os.pathsep)}
    job = subprocess.Popen(
        [*command, *map(str, program)],
        cwd=ROOT,
        env=clean_environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A session of its own, so that the launcher and its processes end together.
        start_new_session=True,
    )
    try:
        log, _ = job.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        log, _ = job.communicate()
        raise AssertionError(f"{program} did not end within {timeout:g} s\n{log}") from None
    assert job.returncode == 0, f"{program} ended with {job.returncode}\n{log}"
    return log


def seen_by_ranks(processes: int, module: str, folder: Path, *arguments: str) -> list[Any]:
    """What each rank of a program wrote to `RANK.json` in a folder, which is the last of its arguments."""
    torchrun(processes, "-m", module, *arguments, folder)
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(processes)]
