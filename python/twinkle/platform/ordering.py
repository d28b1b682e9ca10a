"""The order of nodes and of granted devices: numbers in names count as numbers, and every group sees the same order."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from twinkle.errors import PlacementError
from twinkle.platform.checks import shown, whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["bundle_order", "node_order"]

_Key = tuple[tuple[int, int, str], ...]


def node_order(nodes: Sequence[str], labels: Mapping[str, int] | None = None) -> tuple[str, ...]:
    """The nodes in the order in which ranks fill them.

    By their labels (their NODE_RANK) when every node has one and no two share one; else by address when all are IP
    addresses; else by name, with the numbers in it read as numbers: node7, node8, node66.
    """
    names = _names(nodes)
    if labels is not None:
        ranks = {
            name: whole(labels[name], f"the label of node {name!r}", PlacementError) for name in names if name in labels
        }
        if len(ranks) == len(names) and len(set(ranks.values())) == len(names):
            return tuple(sorted(names, key=ranks.__getitem__))
    addresses = {name: _address(name) for name in names}
    if None not in addresses.values():
        return tuple(sorted(names, key=lambda name: (addresses[name], name)))
    return tuple(sorted(names, key=lambda name: (_natural(name), name)))


def bundle_order(bundles: Sequence[tuple[str, str | int]], nodes: Sequence[str] | None = None) -> tuple[int, ...]:
    """The indices of granted bundles, given as (node, device id), ordered by node and then by device.

    `nodes` is the order of the nodes, `node_order` when left out; a node that it lacks is refused.
    """
    places = [_place(bundle) for bundle in bundles]
    order = node_order(list(dict.fromkeys(node for node, _ in places))) if nodes is None else _names(nodes)
    rank = {name: index for index, name in enumerate(order)}
    for index, (node, device) in enumerate(places):
        if node not in rank:
            raise PlacementError(
                f"bundle {index} (device {device}) is on node {shown(node)}, which is not in the order"
            )
    return tuple(
        sorted(range(len(places)), key=lambda index: (rank[places[index][0]], _natural(places[index][1]), index))
    )


def _place(bundle: object) -> tuple[str, str]:
    """The node and the device id of a bundle, both as text."""
    pair = tuple(bundle) if isinstance(bundle, (tuple, list)) else ()
    if len(pair) != 2 or not isinstance(pair[0], str) or not pair[0]:
        raise PlacementError(f"a bundle is a (node, device id) pair, not {shown(bundle)}")
    node, device = pair
    return node, device if isinstance(device, str) else str(whole(device, "a device id", PlacementError))


def _names(nodes: Sequence[str]) -> list[str]:
    names = list(nodes)
    for name in names:
        if not isinstance(name, str) or not name:
            raise PlacementError(f"a node is named by text, not {shown(name)}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise PlacementError(f"node {shown(twice)} is listed twice", node=twice)
    return names


def _address(name: str) -> tuple[int, int] | None:
    """An IP address as its version and number, so that 10.0.0.2 comes before 10.0.0.10."""
    from ipaddress import ip_address

    try:
        address = ip_address(name)
    except ValueError:
        return None
    return address.version, int(address)


def _natural(name: str) -> _Key:
    """A key under which the runs of digits in a name compare by value."""
    runs = ("".join(run) for _, run in groupby(name, key=lambda mark: mark in "0123456789"))
    # A run of digits compares by its length without leading zeros, then by its text, so no length is too long.
    return tuple((0, len(run.lstrip("0")), run.lstrip("0")) if run[0] in "0123456789" else (1, 0, run) for run in runs)
