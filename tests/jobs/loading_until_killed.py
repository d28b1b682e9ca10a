"""A shuffled loader that writes down its batches and, in lockstep, its state; one rank may kill itself."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from tests.loading import Noisy, mesh_of
from tests.waiting import PATIENCE
from twinkle.dataloader import DataLoader


def main(out: Path, epochs: int, workers: int, kill_at: int) -> None:
    """Runs under torchrun: goes on from `state.json` in the folder, if there is one."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE))
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(
        Noisy(53), batch_size=12, shuffle=True, device_mesh=mesh_of(dp=world), num_workers=workers, collate_fn=list
    )
    saved = out / "state.json"
    if saved.exists():
        loader.load_state_dict(json.loads(saved.read_text()))
    dist.barrier()
    taken = 0
    while loader.epoch < epochs:
        for batch in loader:
            taken += 1
            if taken == kill_at and rank == world // 2:
                os.kill(os.getpid(), signal.SIGKILL)
            line = {"state": loader.state_dict(), "rows": [row for row, *_ in batch]}
            with (out / f"of {world}, {rank}.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
            dist.barrier()
            if rank == 0:
                fresh = out / "state.new"
                fresh.write_text(json.dumps(line["state"]))
                fresh.rename(saved)
            # Nobody goes on, or is killed, before the state is saved.
            dist.barrier()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(word) for word in sys.argv[2:5]))
