"""Binding: which device a process takes, and what is said when it is not there.

The stand-in npu is torch's Python backend registration; torch takes one such name per process, so it is
registered in processes of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import LIMIT

MASK = "ASCEND_RT_VISIBLE_DEVICES"
STAND_IN = Path(__file__).parent / "stand_in_npu.py"
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "3",
    "LOCAL_WORLD_SIZE": "4",
    "TORCHELASTIC_RUN_ID": "x",
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "2",
}
SLURM = {
    "SLURM_JOB_ID": "1",
    "SLURM_STEP_NODELIST": "n1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "3",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_NODES": "1",
}
WORKER = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "0",
    "TWINKLE_LOCAL_INDEX": "3",
    "LOCAL_WORLD_SIZE": "4",
    "NODE_RANK": "0",
    "NNODES": "1",
}


def run(script: str, *, stand_in: int | None = None, **variables: str) -> Any:
    """What a fresh process makes of a script that fills `answer`, with a stand-in npu of so many devices if asked."""
    lines = ["import json, sys"]
    if stand_in is not None:
        lines.append(
            f"sys.path.insert(0, {str(STAND_IN.parent)!r}); import stand_in_npu; stand_in_npu.register({stand_in})"
        )
    lines += [
        "from twinkle.platform import Platform",
        "from twinkle.errors import *",
        script,
        "print(json.dumps(answer))",
    ]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    env = {
        **kept,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], env=env, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


REFUSALS = """
answer = {}
for name in %r:
    try:
        answer[name] = [Platform.bind(name).device]
    except DeviceError as error:
        answer[name] = str(error)
"""


def test_a_host_without_accelerators_binds_the_cpu_unless_one_is_named() -> None:
    script = REFUSALS % (["cuda", "npu", "mlu", "mps", "cpu", None],)
    answer = run(script.replace("answer[name] = [", "answer[str(name)] = [", 1), CUDA_VISIBLE_DEVICES="")
    assert answer["None"] == ["cpu"]
    assert answer["cpu"] == ["cpu"]
    assert "torch sees 0 cuda devices (CUDA_VISIBLE_DEVICES='')" in answer["cuda"]
    assert "torch_npu" in answer["npu"]
    assert "not installed" in answer["npu"]
    assert "Remedy: install the torch_npu" in answer["npu"]
    assert "torch_mlu" in answer["mlu"]
    assert "torch sees 0 mps devices" in answer["mps"]


def test_a_broken_plug_in_is_one_device_error_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "torch_npu.py").write_text("raise OSError('libhccl.so: cannot open shared object file')")
    answer = run(f"import sys; sys.path.insert(0, {str(tmp_path)!r})" + REFUSALS % (["npu"],))
    for word in ("importing torch_npu fails", "OSError: libhccl.so", "Remedy"):
        assert word in answer["npu"]


def test_a_plug_in_that_breaks_the_import_of_torch_is_one_device_error() -> None:
    # What torch_npu without its driver does through torch's autoload.
    script = """
class Breaking:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise RuntimeError("Failed to load the backend extension: torch_npu")
sys.meta_path.insert(0, Breaking())
"""
    answer = run(script + REFUSALS % (["npu", "cuda"],))
    for name in ("npu", "cuda"):
        assert "Failed to load the backend extension: torch_npu" in answer[name]
        assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in answer[name]


# How many devices the stand-in has, the arguments of bind, the variables; then device, index, mask, rank, or words.
BOUND: list[tuple[int, list[Any], dict[str, str], list[Any]]] = [
    (8, [None], {}, ["npu:0", 0, None, -1]),
    (8, ["npu"], TORCHRUN, ["npu:3", 3, None, 3]),
    (4, ["Ascend"], {**TORCHRUN, MASK: "4,5,6,7"}, ["npu:3", 3, "4,5,6,7", 3]),
    (1, ["npu"], {**WORKER, MASK: "6"}, ["npu:0", 0, "6", 3]),
    (2, ["npu", 1], TORCHRUN, ["npu:1", 1, None, 3]),
    (1, ["npu", 0], TORCHRUN, ["npu:0", 0, None, 3]),
    (1, ["npu"], {**SLURM, "SLURM_GPUS_PER_TASK": "1"}, ["npu:0", 0, None, 3]),
    (1, ["npu"], {**SLURM, "SLURM_GPU_BIND": "single:1"}, ["npu:0", 0, None, 3]),
    (4, ["npu"], {**SLURM, "SLURM_GPUS_PER_TASK": "1"}, ["npu:3", 3, None, 3]),
    # A named family that is hidden is refused, this host's own accelerator gives way to the CPU.
    (0, [None], {MASK: ""}, ["cpu", 0, None, -1]),
]
UNBOUND: list[tuple[int, list[Any], dict[str, str], list[str]]] = [
    (2, ["npu"], TORCHRUN, ["DeviceError", "local rank 3", "2 npu devices", "bind(index=0)"]),
    (1, ["npu"], {**TORCHRUN, MASK: "6"}, ["DeviceError", "local rank 3", f"{MASK}='6'", "bind(index=0)"]),
    (1, ["npu"], SLURM, ["DeviceError", "local rank 3", "bind(index=0)"]),
    (1, ["npu"], {**TORCHRUN, "SLURM_PROCID": "3", "SLURM_GPUS_PER_TASK": "1"}, ["DeviceError", "local rank 3"]),
    (8, ["npu", 8], {}, ["DeviceError", "index 8", "8 npu devices"]),
    (8, ["npu", -1], {}, ["DeviceError", "index", "-1"]),
    (0, ["npu"], {}, ["DeviceError", "torch sees 0 npu devices"]),
    (8, ["npu"], {"RANK": "1", "WORLD_SIZE": "4"}, ["LauncherError", "LOCAL_RANK is not set", "pod-level"]),
    (8, ["npu"], {**TORCHRUN, "LOCAL_RANK": "4"}, ["LauncherError", "LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"]),
    (8, ["cuda"], {}, ["DeviceError", "cuda"]),
]
BIND = """
import os, torch
answer = []
for devices, (family, *index), variables, _ in json.loads(%r):
    torch.npu.devices, torch.npu.current = devices, 0
    os.environ.update(variables)
    try:
        bound = Platform.bind(family, index=index[0] if index else None)
        assert torch.npu.current == bound.index
        answer.append([bound.device, bound.index, bound.mask, bound.record.rank])
    except TwinkleError as error:
        assert torch.npu.current == 0
        answer.append(type(error).__name__ + ": " + str(error))
    for name in variables:
        del os.environ[name]
"""


def test_a_stand_in_npu_is_bound_by_local_rank_or_by_zero_when_it_is_ones_own() -> None:
    answers = run(BIND % json.dumps(BOUND), stand_in=8)
    assert answers == [expected for *_, expected in BOUND]


def test_a_stand_in_npu_that_is_not_there_is_refused_before_it_is_touched() -> None:
    answers = run(BIND % json.dumps(UNBOUND), stand_in=8, CUDA_VISIBLE_DEVICES="")
    for answer, (*asked, words) in zip(answers, UNBOUND, strict=True):
        for word in words:
            assert word in answer, asked


def test_a_stand_in_npu_gives_its_prefix_backend_mask_and_group() -> None:
    script = """
import torch, torch.distributed as dist
dist.init_process_group(Platform.device_backend("npu"), store=dist.HashStore(), rank=0, world_size=1)
answer = [
    Platform.device_prefix(), Platform.device_backend(), Platform.visible_device_env(), Platform.get_local_device(),
    str(torch.device(Platform.get_local_device(3))), Platform.get_rank(), Platform.get_world_size(), dist.get_backend(),
]
dist.destroy_process_group()
"""
    answer = run(script, stand_in=8)
    assert answer == ["npu", "hccl", "ASCEND_RT_VISIBLE_DEVICES", "npu:0", "npu:3", 0, 1, "hccl"]


def test_a_rank_that_contradicts_the_group_is_refused_at_binding_too() -> None:
    script = """
import os
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
answer = [Platform.bind("cpu").device]
for variables in ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, {"RANK": "1", "WORLD_SIZE": "1"}):
    os.environ.update(variables)
    try:
        answer.append(Platform.bind("cpu").device)
    except LauncherError as error:
        answer.append(str(error))
"""
    alone, outer, contradicted = run(script)
    assert (alone, outer) == ("cpu", "cpu")
    assert "rank 0 of 1" in contradicted
