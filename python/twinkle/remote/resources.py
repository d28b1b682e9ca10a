"""Resources: one bundle per device, pinned to its node, granted before a deadline or not at all.

A group is planned on paper first (`twinkle.allocate`), its bundles are reserved where the plan says, the devices that
Ray granted are read, and the group is planned again on those. Whatever fails, everything that was reserved is
released.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlacementError
from twinkle.group import DeviceGroup, Node
from twinkle.platform import FAMILIES, Family, Worker, allocate, node_order

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Reservation", "inventory", "release", "reserve"]

#: Seconds until a reservation that cannot be met is given up.
DEADLINE = 120.0
#: What a worker without a device takes of a node, so that many fit on few cores.
_CPU_SHARE = 0.001
#: Families that Ray knows to number one by one; of the others only the count is known.
_NUMBERED = ("GPU", "NPU", "HPU", "TPU")
_MARK = "#"


@dataclass(frozen=True, eq=False)
class Reservation:
    """The workers of one group, and the bundle that each of them starts in."""

    group: DeviceGroup
    workers: tuple[Worker, ...]
    placement_group: Any
    bundles: tuple[int, ...]
    addresses: tuple[str, ...]


def reserve(
    groups: Sequence[DeviceGroup], nproc_per_node: int, ncpu_proc_per_node: int
) -> tuple[dict[str, Reservation], list[Any]]:
    """Reserves what the groups need, or releases everything and refuses; also returns what `release` gives back."""
    deadline = time.monotonic() + DEADLINE
    nodes, addresses = inventory(groups)
    # Which ids there are is known only when they are granted.
    unlisted = [replace(group, visible_devices=None) for group in groups]
    planned = allocate(unlisted, nproc_per_node, nodes, ncpu_proc_per_node)
    held: list[Any] = []
    try:
        owners: dict[str, Any] = {}
        slots: dict[tuple[str, str], str] = {}
        places: dict[tuple[str, str], tuple[Any, int]] = {}
        for group in groups:
            if group.colocate_with is not None:
                continue
            wanted = [(worker.node, slot) for worker in planned[group.name] for slot in worker.devices or ("",)]
            # Named devices are searched one by one, and what is not among them is given back one by one.
            single = group.visible_devices is not None
            pieces = [[node] for node, _ in wanted] if single else [[node for node, _ in wanted]]
            pgs = [_placement_group(group, nodes_of, held, deadline) for nodes_of in pieces]
            bundles = [(pg, bundle) for pg, those in zip(pgs, pieces, strict=True) for bundle in range(len(those))]
            owners[group.name] = pgs[0]
            if group.device_type == "cpu":
                continue
            granted = _granted(group, bundles, wanted, held, deadline)
            for (node, slot), (device, found, bundle) in zip(wanted, granted, strict=True):
                slots[node, slot] = device
                places[node, device] = (found, bundle)
        final = allocate(groups, nproc_per_node, _granted_nodes(nodes, slots), ncpu_proc_per_node)
        made = {group.name: _reservation(group, final[group.name], owners, places, addresses) for group in groups}
        return made, held
    except BaseException:
        release(held)
        raise


def release(placement_groups: Sequence[Any]) -> None:
    """Gives reservations back."""
    from ray.util import remove_placement_group

    for pg in placement_groups:
        remove_placement_group(pg)


def inventory(groups: Sequence[DeviceGroup]) -> tuple[list[Node], dict[str, str]]:
    """The living nodes in the order that ranks fill them, one entry per family asked for; and their addresses."""
    alive = {node["NodeID"]: node for node in _nodes() if node["Alive"]}
    addresses = {identity: node["NodeManagerAddress"] for identity, node in alive.items()}
    by_address: dict[str, list[str]] = {}
    for identity in sorted(alive):
        by_address.setdefault(addresses[identity], []).append(identity)
    ordered = [identity for address in node_order(list(by_address)) for identity in by_address[address]]
    families = list(dict.fromkeys(group.family.name for group in groups if group.device_type != "cpu"))
    nodes = []
    for identity in ordered:
        resources = alive[identity]["Resources"]
        entries = [
            Node(
                f"{identity}{_MARK}{family.name}",
                family.name,
                [str(i) for i in range(count)],
                int(resources.get("CPU", 0)),
            )
            for family in (FAMILIES[name] for name in families)
            if (count := int(resources.get(family.resource, 0)))
        ]
        nodes += entries or [Node(f"{identity}{_MARK}cpu", "cpu", (), int(resources.get("CPU", 0)))]
    return nodes, addresses


def _placement_group(group: DeviceGroup, nodes: Sequence[str], held: list[Any], deadline: float) -> Any:
    """One bundle per device, each on its node; refused when the deadline comes first."""
    import ray
    from ray.util.placement_group import placement_group

    family = group.family
    bundle = {"CPU": _CPU_SHARE} if family.name == "cpu" else {family.resource: 1}
    labels = [{"ray.io/node-id": _identity(node)} for node in nodes]
    pg = placement_group([dict(bundle) for _ in nodes], strategy="PACK", bundle_label_selector=labels)
    held.append(pg)
    if not ray.wait([pg.ready()], timeout=max(deadline - time.monotonic(), 0.0))[0]:
        free = ray.available_resources().get(family.resource, 0)  # type: ignore[no-untyped-call]
        raise PlacementError(
            f"group {group.name!r}: {len(nodes)} x {bundle} on {len(set(nodes))} nodes were not granted within "
            f"{DEADLINE:g} s; {free:g} {family.resource} are free now: another job may hold them",
            group=group.name,
            wanted=len(nodes),
            free=free,
        )
    return pg


def _granted(
    group: DeviceGroup,
    bundles: Sequence[tuple[Any, int]],
    wanted: Sequence[tuple[str, str]],
    held: list[Any],
    deadline: float,
) -> list[tuple[str, Any, int]]:
    """For each wanted device, in order, the id that was granted for it and the bundle that holds it."""
    by_node: dict[str, list[int]] = {}
    for at, (node, _) in enumerate(wanted):
        by_node.setdefault(node, []).append(at)
    answer: dict[int, tuple[str, Any, int]] = {}
    for node, places in by_node.items():
        found = {_device_of(group.family, *bundles[at], wanted[at][1]): bundles[at] for at in places}
        if group.visible_devices is None:
            ids = sorted(found, key=lambda device: (len(device), device) if device.isdigit() else (0, ""))
        else:
            ids = [str(device) for device in group.visible_devices][: len(places)]  # type: ignore[union-attr]
            found = _searched(group, node, ids, found, held, deadline)
        answer |= {at: (device, *found[device]) for at, device in zip(places, ids, strict=True)}
    return [answer[at] for at in range(len(wanted))]


def _searched(  # noqa: PLR0917 - one search, spelled out
    group: DeviceGroup, node: str, asked: list[str], found: dict[str, tuple[Any, int]], held: list[Any], deadline: float
) -> dict[str, tuple[Any, int]]:
    """Reserves one more device at a time until all that are asked for are held, then gives the others back."""
    while missing := [device for device in asked if device not in found]:
        try:
            pg = _placement_group(group, [node], held, deadline)
        except PlacementError as error:
            raise PlacementError(
                f"group {group.name!r}: devices {', '.join(asked)} wanted on node {_identity(node)}, "
                f"{', '.join(found)} granted within {DEADLINE:g} s, {', '.join(missing)} missing",
                group=group.name,
                wanted=asked,
                granted=list(found),
            ) from error
        found[_device_of(group.family, pg, 0, str(len(found)))] = (pg, 0)
    for device in [device for device in found if device not in asked]:
        pg, _ = found.pop(device)
        release([pg])
        held.remove(pg)
    return found


def _device_of(family: Family, pg: Any, bundle: int, slot: str) -> str:
    """The id that Ray granted in a bundle; the slot where Ray does not number the devices of a family."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    if family.resource not in _NUMBERED:
        return slot
    resources: dict[str, Any] = {"num_gpus": 1} if family.resource == "GPU" else {"resources": {family.resource: 1}}
    strategy = PlacementGroupSchedulingStrategy(pg, placement_group_bundle_index=bundle)
    # A process that is used again answers in a moment; by default Ray ends one after each task with a device.
    probe = ray.remote(num_cpus=0, max_calls=0, **resources)(_accelerators).options(scheduling_strategy=strategy)
    ids = ray.get(probe.remote()).get(family.resource) or [slot]
    return str(ids[0])


def _accelerators() -> dict[str, list[str]]:
    import ray

    return dict(ray.get_runtime_context().get_accelerator_ids())


def _granted_nodes(nodes: Sequence[Node], slots: dict[tuple[str, str], str]) -> list[Node]:
    """The inventory with what was granted in the place of what was planned."""
    made = []
    for node in nodes:
        granted = {int(slot): device for (name, slot), device in slots.items() if name == node.id}
        made.append(node if node.family == "cpu" else replace(node, devices=granted))
    return made


def _reservation(
    group: DeviceGroup,
    workers: tuple[Worker, ...],
    owners: dict[str, Any],
    places: dict[tuple[str, str], tuple[Any, int]],
    addresses: dict[str, str],
) -> Reservation:
    if group.device_type == "cpu":
        pgs, bundles = [owners[group.name]] * len(workers), list(range(len(workers)))
    else:
        found = [places[worker.node, worker.devices[0]] for worker in workers]
        pgs, bundles = [pg for pg, _ in found], [bundle for _, bundle in found]
    return Reservation(
        group, workers, tuple(pgs), tuple(bundles), tuple(addresses[_identity(worker.node)] for worker in workers)
    )


def _nodes() -> list[dict[str, Any]]:
    import ray

    return list(ray.nodes())  # type: ignore[no-untyped-call]


def _identity(node: str) -> str:
    return node.partition(_MARK)[0]
