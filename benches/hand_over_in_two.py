"""One of two processes that hand rows over for `bench_local.py`: a side's name comes in, `done` goes out."""

from __future__ import annotations

import os
import pickle
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch import distributed

import twinkle
from tests.remote import components
from twinkle import DeviceMesh, Global
from twinkle.remote.exchange import Exchange

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Rows of each process, and numbers in a row.
ROWS, WIDTH = 4096, 1024


def pickled(self: Exchange, values: Sequence[Any], about: str = "", step: str = "", key: object = 0) -> list[Any]:
    """What an exchange is by hand: every piece pickled, bytes included, one exchange of sizes and one of bytes."""
    data = [pickle.dumps(_own(value), protocol=5) for value in values]
    sizes = torch.tensor([len(one) for one in data])
    theirs = torch.empty_like(sizes)
    distributed.all_to_all_single(theirs, sizes, group=self.group)
    sent = torch.frombuffer(bytearray(b"".join(data)), dtype=torch.uint8)
    received = torch.empty(int(theirs.sum()), dtype=torch.uint8)
    distributed.all_to_all_single(received, sent, theirs.tolist(), sizes.tolist(), group=self.group)
    whole, found, at = received.numpy().tobytes(), [], 0
    for size in theirs.tolist():
        found.append(pickle.loads(whole[at : at + size]))
        at += size
    return found


def _own(value: Any) -> Any:
    """The same with copies of tensors: a slice would be pickled with all that it looks into."""
    if isinstance(value, (list, tuple)):
        return type(value)([_own(part) for part in value])
    return value.clone() if isinstance(value, torch.Tensor) else value


def main() -> None:
    rank = int(os.environ["RANK"])
    distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
    twinkle.initialize("local")
    echo: Any = components.Echo
    mesh = DeviceMesh.from_sizes(dp_size=2)
    rows = torch.arange(2 * ROWS * WIDTH, dtype=torch.float32).reshape(2 * ROWS, WIDTH)
    # Each process needs what the other has.
    handle = echo(device_mesh=mesh).same(Global(rows)).select([*range(ROWS, 2 * ROWS), *range(ROWS)])
    taker = echo(device_mesh=mesh)
    found = taker.same(handle).local
    assert torch.equal(found, rows[(1 - rank) * ROWS :][:ROWS])
    for line in sys.stdin:
        if line.strip() == "pickled":
            with patch.object(Exchange, "swapped", pickled):
                taker.sum_of(handle)
        else:
            taker.sum_of(handle)
        sys.stdout.write("done\n")
        sys.stdout.flush()
    twinkle.shutdown()


if __name__ == "__main__":
    main()
