"""The reference flow: a sampler on one mesh, an actor on another, and rows that pass between them without the driver.

A local Ray runs 13 processes. The sampler (dp=4) is a small language model that continues prompts token by token; the
actor (dp=2, pp=2, tp=2) trains the same model on what follows in the text, its gradients averaged over its dp group
by gloo. Each round the driver hands prompts to the sampler and the sampler's handle to the actor; what it gets back
are numbers.
"""

from __future__ import annotations

import sys
import time
import zlib
from pathlib import Path
from typing import Any

from twinkle import (
    DeviceGroup,
    DeviceMesh,
    Sharded,
    get_device_placement,
    initialize,
    remote_class,
    remote_function,
    shutdown,
)
from twinkle.dataloader import DataLoader
from twinkle.remote import traffic

TEXT = (Path(__file__).resolve().parent.parent / "LICENSE").read_text(encoding="utf-8")
ROUNDS, BATCH, PROMPT, FOLLOWING = 12, 16, 48, 16


def make_model() -> Any:
    """A small recurrent model of bytes; seeded, so that every worker begins with the same weights."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(128, 32)
            self.recurrent = nn.GRU(32, 64, batch_first=True)
            self.head = nn.Linear(64, 128)

        def forward(self, tokens: Any, state: Any = None) -> Any:
            hidden, state = self.recurrent(self.embedding(tokens), state)
            return self.head(hidden), state

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return Model()


@remote_class()
class Sampler:
    """Continues prompts, one token at a time."""

    def __init__(self, *, device_mesh: DeviceMesh, remote_group: str) -> None:
        self.device_mesh = device_mesh
        self.model = make_model().eval()

    @remote_function()
    def load(self, weights: dict[str, Any]) -> None:
        self.model.load_state_dict(weights)

    @remote_function(dispatch="slice_dp", collect="flatten")
    def sample(self, batch: Any) -> Any:
        import torch

        samples = []
        for row in batch:
            tokens, state = torch.tensor([list(row["prompt"].encode())]), None
            made = []
            with torch.no_grad():
                for _ in range(FOLLOWING):
                    logits, state = self.model(tokens, state)
                    tokens = logits[:, -1:].argmax(-1)
                    made.append(int(tokens))
            samples.append({**row, "sampled": made, "by": self.device_mesh.data_rank})
        return samples


@remote_class()
class Actor:
    """Trains on the rows of its data rank; pp and tp peers hold copies here."""

    def __init__(self, *, device_mesh: DeviceMesh, remote_group: str) -> None:
        import torch
        from torch import distributed

        self.device_mesh = device_mesh
        distributed.init_process_group("gloo")
        self.group = self.device_mesh.create_process_group("dp", backend="gloo")
        self.model = make_model()
        self.speeds = [torch.zeros_like(parameter) for parameter in self.model.parameters()]

    @remote_function(
        dispatch="slice_dp", collect="flatten", result_rows={"seen": "rows", "loss": "mean", "right": "mean"}
    )
    def train(self, samples: Any) -> dict[str, Any]:
        import torch
        from torch import distributed
        from torch.nn.functional import cross_entropy

        texts = torch.tensor([list((row["prompt"] + row["following"]).encode()) for row in samples])
        logits, _ = self.model(texts[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten())
        gradients = torch.autograd.grad(loss, list(self.model.parameters()))
        with torch.no_grad():
            for parameter, gradient, speed in zip(self.model.parameters(), gradients, self.speeds, strict=True):
                distributed.all_reduce(gradient, group=self.group)
                speed.mul_(0.9).add_(gradient / distributed.get_world_size(self.group))
                parameter.sub_(speed, alpha=0.3)
        right = [sum(a == b for a, b in zip(row["sampled"], row["following"].encode(), strict=True)) for row in samples]
        return {
            "seen": [(row["id"], zlib.crc32(row["prompt"].encode()), row["by"]) for row in samples],
            "loss": loss.item(),
            "right": sum(right) / (len(samples) * FOLLOWING),
        }

    @remote_function(collect="first")
    def weights(self) -> dict[str, Any]:
        return dict(self.model.state_dict())

    @remote_function()
    def close(self) -> None:
        from torch import distributed

        distributed.destroy_process_group()


class Prompts:
    """Places in the text: what stands there, and what follows."""

    def __len__(self) -> int:
        return ROUNDS * BATCH

    def __getitem__(self, number: int) -> dict[str, Any]:
        at = number * 397 % (len(TEXT) - PROMPT - FOLLOWING)
        middle, end = at + PROMPT, at + PROMPT + FOLLOWING
        return {"id": number, "prompt": TEXT[at:middle], "following": TEXT[middle:end]}


def check(seen: Sharded, rows: list[dict[str, Any]]) -> None:
    """Every row came back once, in order, with its own prompt, from the sampler that was to have it."""
    expected = [(row["id"], zlib.crc32(row["prompt"].encode()), at // (BATCH // 4)) for at, row in enumerate(rows)]
    assert list(seen) == expected


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    start = time.monotonic()
    groups = [DeviceGroup("sampler", 4, "cpu"), DeviceGroup("actor", 8, "cpu")]
    initialize("ray", groups=groups, ncpu_proc_per_node=12)
    say(get_device_placement())
    sampler_mesh = DeviceMesh.from_sizes(dp_size=4)
    actor_mesh = DeviceMesh.from_sizes(dp_size=2, pp_size=2, tp_size=2)
    sampler = Sampler(device_mesh=sampler_mesh, remote_group="sampler")
    actor = Actor(device_mesh=actor_mesh, remote_group="actor")
    say(f"\nprompts -> sampler {sampler_mesh} -> actor {actor_mesh}; {BATCH} rows a round")
    losses, crossed = [], 0
    loader = DataLoader(Prompts(), batch_size=BATCH, collate_fn=list)
    for number, rows in enumerate(loader):
        samples = sampler.sample(rows)
        traffic.reset()
        output = actor.train(samples)
        crossed += traffic.driver_rows
        losses.append(output["loss"])
        if number == 0:
            sampled, trained = samples.layout.sizes.tolist(), output["seen"].layout.sizes.tolist()
            say(f"rows per sampler worker {sampled}, per actor data rank {trained}")
            each = sum(size * actor_mesh.world_size // len(trained) for size in trained)
            say(
                f"all {actor_mesh.world_size} actor workers fetch the rows of their data rank, so each row goes to its "
                f"{actor_mesh.world_size // len(trained)} replicas: {each} rows from worker to worker"
            )
        say(
            f"round {number:2}: loss {output['loss']:.3f}, sampled tokens right {output['right']:4.0%}, "
            f"rows fetched from worker to worker {traffic.moved_rows}, through the driver {traffic.driver_rows}"
        )
        check(output["seen"], rows)
        sampler.load(actor.weights())
    actor.close()
    shutdown()
    assert crossed == 0
    assert losses[-1] < losses[0]
    say(
        f"\n{ROUNDS * BATCH} rows checked by their ids; rows that crossed the driver between components: {crossed}; "
        f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; {time.monotonic() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
