"""A component that draws random numbers, for `test_seeds.py`; under a launcher every rank writes what it saw."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import twinkle
from twinkle import DeviceMesh, Global, remote_class, remote_function
from twinkle.dataloader import DataLoader


def draw() -> list[float]:
    """A number of every generator; a second Gaussian is ready in two of them."""
    return [random.random(), random.gauss(0, 1), np.random.random(), np.random.normal(), torch.rand(1).item()]


@remote_class()
class Rolls:
    """Draws in its constructor and in its methods."""

    def __init__(self) -> None:
        self.built = draw()

    @remote_function()
    def weights(self) -> Any:
        """What the constructor drew."""
        return self.built

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True)
    def roll(self, rows: Any) -> Any:
        """Numbers for every row."""
        return [draw() for _ in rows]

    @remote_function(dispatch="slice_dp", collect="flatten")
    def kept(self, rows: Any) -> Any:
        """The rows themselves, as a handle."""
        return list(rows)

    @remote_function()
    def all(self) -> Any:
        """What every worker draws."""
        return draw()


# A type checker does not see what the decorator adds.
Rolling: Any = Rolls


def seen(options: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """What components draw, with others made between; all values are plain."""
    first = Rolling(**options)
    told: dict[str, Any] = {"weights": first.weights(), "rolls": [first.roll(Global([0] * 4)) for _ in range(2)]}
    second = Rolling(**options)
    told["second weights"] = second.weights()
    told["after"] = [first.roll(Global([0] * 4)), second.roll(Global([0] * 4))]
    third = Rolling(**more)
    told["replicas"] = [third.all(), third.all()]
    told["apart"] = first.all()
    return told


def mapped(rolls: Any) -> list[Any]:
    """What the function of `map` draws: twice for the same rows, and for two handles of them in one."""
    handle = rolls.kept(Global([0] * 4))
    return [
        *(handle.map(lambda _: draw()).gather() for _ in range(2)),
        handle[:2].concat(rolls.kept(Global([0, 0]))).map(lambda _: draw()).gather(),
    ]


def maps(rolls: Any) -> dict[str, Any]:
    """What maps draw under a launcher, and what the script draws after them."""
    told: dict[str, Any] = {"numbers": mapped(rolls)}
    loader = DataLoader(range(4), batch_size=2, device_mesh=DeviceMesh.from_sizes(dp_size=1, tp_size=2))
    # Both replicas have read the rows.
    told["replicas"] = [batch.map(lambda _: draw()).local for batch in loader]
    return {**told, "script": draw()}


def main() -> None:
    """Draws in the script as well, between all that components do."""
    mine = []
    twinkle.initialize("local", seed=7)
    mine.append(draw())
    told = seen(
        {"device_mesh": DeviceMesh.from_sizes(dp_size=2)}, {"device_mesh": DeviceMesh.from_sizes(dp_size=1, tp_size=2)}
    )
    mine.append(draw())
    # Its rows are on the first rank alone.
    told["maps"] = [maps(Rolling(device_mesh=DeviceMesh.from_sizes(dp_size=1)))]
    twinkle.shutdown()
    twinkle.initialize("local", seed=None)
    rolls = Rolling(device_mesh=DeviceMesh.from_sizes(dp_size=1))
    for seed in (5, 5, 6):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        told["maps"].append(maps(rolls))
    twinkle.shutdown()
    Path(sys.argv[1], f"{os.environ['RANK']}.json").write_text(json.dumps({**told, "script": mine}), encoding="utf-8")


if __name__ == "__main__":
    main()
