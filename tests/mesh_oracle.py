"""Meshes as NumPy tables, every question answered by comparing all places, and meshes to ask them about."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from twinkle import DeviceMesh

#: Axes of a mesh that cuts rows; expert axes make views.
AXES = ("dp", "fsdp", "tp", "pp", "cp", "ulysses")


@dataclass(frozen=True)
class Naive:
    """A mesh as the rank at every place."""

    names: tuple[str, ...]
    table: NDArray[np.int64]
    ulysses: int = 1

    @property
    def mesh(self) -> DeviceMesh:
        """What is tested, made of the table."""
        return DeviceMesh(self.table, self.names, ulysses_size=self.ulysses)

    @property
    def ranks(self) -> list[int]:
        return [int(rank) for rank in self.table.reshape(-1)]

    @property
    def coordinates(self) -> list[tuple[int, ...]]:
        return list(product(*(range(size) for size in self.table.shape)))

    def size(self, name: str) -> int:
        return self.table.shape[self.names.index(name)] if name in self.names else 1

    def index(self, name: str, position: int) -> int:
        return self.coordinates[position][self.names.index(name)] if name in self.names else 0

    def data_index(self, position: int) -> int:
        return self.index("dp", position) * self.size("fsdp") + self.index("fsdp", position)

    def data_rank(self, position: int) -> int:
        return self.data_index(position) // self.ulysses

    @property
    def data_world_size(self) -> int:
        return self.size("dp") * self.size("fsdp") // self.ulysses

    def peers(self, along: tuple[str, ...], position: int) -> list[int]:
        """Positions that agree on every axis but these, ascending."""
        coordinates = self.coordinates
        fixed = [place for place, name in enumerate(self.names) if name not in along]
        own = [coordinates[position][place] for place in fixed]
        return [other for other, there in enumerate(coordinates) if [there[place] for place in fixed] == own]

    def ulysses_peers(self, position: int) -> list[int]:
        """Positions with the same rows and the same other coordinates, in data order."""
        peers = self.peers(("dp", "fsdp"), position)
        return sorted((own for own in peers if self.data_rank(own) == self.data_rank(position)), key=self.data_index)

    def at(self, positions: list[int]) -> list[int]:
        return [self.ranks[position] for position in positions]

    def partition(self, own: Any) -> list[list[int]]:
        """Every group that `own` makes of the positions, by lowest position."""
        groups = {min(group): group for group in map(own, range(len(self.ranks)))}
        return [self.at(groups[lowest]) for lowest in sorted(groups)]

    def representatives(self) -> list[int]:
        last = self.size("pp") - 1
        firsts: dict[int, int] = {}
        for position, rank in enumerate(self.ranks):
            if self.index("pp", position) == last:
                firsts.setdefault(self.data_rank(position), rank)
        return [firsts[shard] for shard in range(self.data_world_size)]


def rows(total: int, shares: int) -> list[tuple[int, int]]:
    """The rows of each share, dealt by adding them up."""
    bounds, start = [], 0
    for share in range(shares):
        stop = start + total // shares + (share < total % shares)
        bounds.append((start, stop))
        start = stop
    return bounds


def divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


@st.composite
def arrangements(draw: st.DrawFn, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Ranks for a shape: consecutive, an equation with gaps and turned axes, or any distinct ones."""
    count, axes = prod(shape), len(shape)
    kind = draw(st.sampled_from(["consecutive", "equation", "any"]))
    if kind == "consecutive":
        return np.arange(count, dtype=np.int64).reshape(shape) + draw(st.integers(0, 40))
    if kind == "any":
        spread = draw(st.sampled_from([1, 3, 2**40]))
        order = draw(st.permutations(range(count)))
        jitter = draw(st.lists(st.integers(0, spread - 1), min_size=count, max_size=count))
        return np.array([place * spread + more for place, more in zip(order, jitter, strict=True)]).reshape(shape)
    table, width = np.zeros(shape, np.int64), 1
    for place in draw(st.permutations(range(axes))):
        width *= draw(st.integers(1, 3))
        steps = np.arange(shape[place]) * width
        if draw(st.booleans()):
            steps = steps[::-1]
        table = table + steps.reshape([-1 if axis == place else 1 for axis in range(axes)])
        width *= shape[place]
    return table + draw(st.integers(0, 40))


@st.composite
def meshes(draw: st.DrawFn, *, needs: tuple[str, ...] = (), least: int = 1) -> Naive:
    """Small meshes of every kind; `needs` names axes that are always declared, of at least `least` indices."""
    others = st.lists(st.sampled_from([name for name in AXES if name not in needs]), unique=True, max_size=3)
    names = tuple(draw(st.permutations([*needs, *draw(others)]))) or ("tp",)
    most = 3 if len(names) > 3 else 4
    shape = tuple(draw(st.integers(least if name in needs else 1, most)) for name in names)
    plain = Naive(names, draw(arrangements(shape)))
    data = 1 if "ulysses" in names else plain.size("dp") * plain.size("fsdp")
    return Naive(names, plain.table, draw(st.sampled_from(divisors(data))))


@st.composite
def meshes_and_axes(draw: st.DrawFn, *, needs: tuple[str, ...] = ()) -> tuple[Naive, tuple[str, ...]]:
    """A mesh and some of its axes, in any order."""
    naive = draw(meshes(needs=needs))
    axes = draw(st.lists(st.sampled_from(naive.names), unique=True, min_size=1))
    return naive, tuple(axes)
