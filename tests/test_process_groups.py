"""Process groups in real processes: each job is launched once, and each of its checks is a test."""

from __future__ import annotations

import ast
from functools import cache

import pytest
from torch._C._distributed_c10d import _DistributedBackendOptions

from tests.support import ROOT
from tests.torchrun import torchrun

#: How many processes each job of `tests/jobs` has.
JOBS = {"groups_of_four": 4, "groups_of_eight": 8, "groups_that_split": 4, "stand_in_npu": 2, "torch_meshes": 8}


def checks(job: str) -> list[str]:
    """The checks of a job, by name."""
    module = ast.parse((ROOT / "tests" / "jobs" / f"{job}.py").read_text(encoding="utf-8"))
    functions = (node for node in module.body if isinstance(node, ast.FunctionDef))
    if job == "groups_that_split" and not hasattr(_DistributedBackendOptions, "split_from"):
        # Here only torch's own backends are handed a communicator to split, and they need an accelerator.
        return []
    return [
        function.name for function in functions if any(ast.unparse(word) == "check" for word in function.decorator_list)
    ]


@cache
def outcome(job: str) -> str:
    """What a job prints; a job that fails is not launched again for its next check."""
    try:
        return torchrun(JOBS[job], "-m", f"tests.jobs.{job}")
    except AssertionError as error:
        return f"{error}"


def test_every_job_is_launched() -> None:
    files = {path.stem for path in (ROOT / "tests" / "jobs").glob("*.py")}
    # test_dataloader_processes launches the jobs that load rows.
    assert {name for name in files if not name.startswith("loading_")} == {*JOBS, "__init__", "support"}


@pytest.mark.parametrize(("job", "check"), [(job, check) for job in JOBS for check in checks(job)])
def test_in_real_processes(job: str, check: str) -> None:
    log = outcome(job)
    assert f"ok {check} (" in log, log
