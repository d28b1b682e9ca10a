"""Hybrid sharding in four processes: two replicas of a tiny model, each sharded over two ranks.

Run it with `torchrun --nproc-per-node 4 examples/fsdp.py`; started plainly, it launches itself that way. On CPUs it
uses gloo; with four accelerators it binds one to each process. The trained weights equal those of a run in one process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from twinkle import DeviceMesh, Platform

RANKS, STEPS, ROWS, WIDTH = 4, 20, 32, 16


def new_model(device: str) -> nn.Sequential:
    """The same model in every process."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, 1)).to(device)


def train(model: nn.Module, rows: torch.Tensor) -> None:
    """Fits the sum of each row."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (model(rows) - rows.sum(dim=1, keepdim=True)).square().mean().backward()
        optimizer.step()


def main() -> None:
    """One of the four processes."""
    torch.set_num_threads(1)
    device_type = None if torch.accelerator.device_count() >= RANKS else "cpu"
    mesh = DeviceMesh.from_sizes(dp_size=2, fsdp_size=2, device_type=device_type)
    binding = mesh.bind()
    dist.init_process_group(Platform.device_backend(mesh.device_type))
    groups = mesh.make_groups("dp", "fsdp", "data")

    torch.manual_seed(1)
    batch = torch.randn(ROWS, WIDTH).to(binding.device)
    model = new_model(binding.device)
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh.fsdp_mesh())
    train(model, batch[mesh.get_slice(ROWS)])

    weight = cast("DTensor", model[0].weight)
    # In one piece, since four processes write to one terminal.
    sys.stdout.write(
        f"rank {dist.get_rank()} on {binding.device}: replicas {dist.get_process_group_ranks(groups['dp'])}, "
        f"shards {dist.get_process_group_ranks(groups['fsdp'])}, "
        f"{weight.to_local().numel()} of {weight.numel()} numbers, rows {mesh.get_slice(ROWS)}\n"
    )
    alone = new_model(binding.device)
    train(alone, batch)
    for (name, found), expected in zip(model.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(cast("DTensor", found).full_tensor(), expected, msg=lambda text: f"{name}: {text}")  # noqa: B023
    dist.barrier(groups["data"])
    if dist.get_rank() == 0:
        print(f"after {STEPS} steps all weights equal those of one process")
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", __file__]
        # The example is for one host: its processes talk over the loopback.
        variables = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **os.environ}
        sys.exit(subprocess.run(launch, env=variables, check=False).returncode)
