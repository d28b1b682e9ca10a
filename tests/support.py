"""What several tests need: the handed cases, a clean environment, and Python in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent

#: Seconds after which a process that a test has started hangs, on the slowest machine.
LIMIT = 600.0

# Every variable by which a launcher, a scheduler or a device mask could tell a test who it is.
LAUNCHER_VARIABLE = re.compile(
    r"(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|GROUP_WORLD_SIZE|NODE_RANK|NNODES|NPROC_PER_NODE"
    r"|MASTER_ADDR|MASTER_PORT|CROSS_RANK|CROSS_SIZE|LOCAL_SIZE|SIZE"
    r"|ROLE_\w+|TORCHELASTIC_\w+|PET_\w+|OMPI_\w+|PMIX?_\w+|MPI_\w+|MV2_\w+|FLUX_\w+|PALS_\w+|SLURM_\w+|PBS_\w+|LSB_\w+"
    r"|RAY_\w+|HOROVOD_\w+|TWINKLE_\w+"
    r"|\w+_VISIBLE_(DEVICES|MODULES|CHIPS|CORES)|ZE_AFFINITY_MASK|ONEAPI_DEVICE_SELECTOR|ASCEND_DEVICE_ID)"
)


def cases(name: str) -> Any:
    """The handed cases of `tests/cases/<name>.json`."""
    return json.loads((ROOT / "tests" / "cases" / f"{name}.json").read_text(encoding="utf-8"))


def clean_environment(**variables: str) -> dict[str, str]:
    """This process's environment without any launcher's variables, with `variables` added."""
    kept = {name: value for name, value in os.environ.items() if not LAUNCHER_VARIABLE.fullmatch(name)}
    return {**kept, **variables}


def run(
    command: Sequence[str | Path],
    *,
    folder: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    timeout: float = LIMIT,
) -> subprocess.CompletedProcess[str]:
    """Runs a command, at the root of the repository, and shows all that it wrote if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=clean_environment() if environment is None else dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    shown = " ".join(str(word) for word in command)
    assert done.returncode == 0, f"{shown} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def run_python(code: str, *, timeout: float = LIMIT, **variables: str) -> str:
    """What a fresh interpreter prints when it runs `code` in a clean environment."""
    return run([sys.executable, "-c", code], environment=clean_environment(**variables), timeout=timeout).stdout


def maturin() -> Path:
    """The maturin of this environment."""
    found = shutil.which("maturin", path=str(Path(sys.executable).parent)) or shutil.which("maturin")
    assert found, "maturin is missing: make the environment with `make dev`"
    return Path(found)
