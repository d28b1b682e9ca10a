"""Allocation: which worker runs on which node with which devices, and the environment that says so.

A pure function of groups and an inventory, so that a placement can be read, tested and refused before anything is
started. Ranks count devices: rank r is slot `r % nproc_per_node` of node `r // nproc_per_node` of the group's family.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twinkle.errors import PlacementError
from twinkle.group import DeviceGroup, Node
from twinkle.platform.checks import LIST_CAP, shown, whole
from twinkle.platform.families import FAMILIES, Family
from twinkle.platform.visible import aligned

__all__ = ["Worker", "allocate"]


@dataclass(frozen=True)
class Worker:
    """One worker of a group: its rank in the group, its node, its device ids in order, and its environment."""

    rank: int
    node: str
    devices: tuple[str, ...]
    env: Mapping[str, str] = field(hash=False)


def allocate(
    groups: Sequence[DeviceGroup | Mapping[str, Any]],
    nproc_per_node: int,
    nodes: Sequence[Node | Mapping[str, Any]],
    ncpu_proc_per_node: int = 8,
) -> dict[str, tuple[Worker, ...]]:
    """The workers of every group, by its name, in rank order.

    Groups are served in their order. A group that gives a count gets the block after the highest rank that its family
    has used so far; devices belong to one group, unless it is colocated with another. Everything is checked before the
    answer is made: what does not fit is a `PlacementError` that names the group, the rank, the node and the numbers.
    """
    per_node = whole(nproc_per_node, "nproc_per_node", PlacementError, least=1)
    per_node_cpu = whole(ncpu_proc_per_node, "ncpu_proc_per_node", PlacementError, least=1)
    asked = _made(groups, DeviceGroup, "groups")
    inventory = _Inventory(_made(nodes, Node, "nodes"), per_node, per_node_cpu)
    claims = _Claims()
    placed = {}
    for group in asked:
        ranks = claims.ranks_of(group, inventory.capacity(group.family))
        chunks = _chunks(group, ranks, inventory, claims)
        claims.take(group, ranks, chunks)
        placed[group.name] = (group, chunks)
    return {name: _workers(group, chunks, inventory) for name, (group, chunks) in placed.items()}


@dataclass(frozen=True)
class _Chunk:
    """The node and the device ids of one worker."""

    node: Node
    devices: tuple[str, ...]


class _Inventory:
    """The nodes, counted per family."""

    def __init__(self, nodes: list[Node], per_node: int, per_node_cpu: int) -> None:
        self.per_node = per_node
        self.per_node_cpu = per_node_cpu
        self.nodes = nodes
        self.slots = {node.id: node.slots() for node in nodes}
        if len(self.slots) != len(nodes):
            ids = [node.id for node in nodes]
            twice = next(name for name in ids if ids.count(name) > 1)
            raise PlacementError(f"node {twice!r} is listed twice; node ids are unique", node=twice)
        self.families = {name: [node for node in nodes if node.family == name] for name in FAMILIES}

    def of(self, family: Family) -> list[Node]:
        return self.nodes if family.name == "cpu" else self.families[family.name]

    def processes(self, family: Family) -> int:
        return self.per_node_cpu if family.name == "cpu" else self.per_node

    def capacity(self, family: Family) -> int:
        """The number of ranks for which there is a node."""
        return len(self.of(family)) * self.processes(family)

    def node_at(self, group: DeviceGroup, rank: int) -> tuple[Node, int]:
        """The node and the slot of a rank; a rank without a node is refused."""
        family = group.family
        place, slot = divmod(rank, self.processes(family))
        nodes = self.of(family)
        if place < len(nodes):
            return nodes[place], slot
        sentence = (
            f"group {shown(group.name)}: rank {rank} needs {_kind(family)} node {place}, only {len(nodes)} available"
        )
        raise PlacementError(f"{sentence}{self._hint(family)}", group=group.name, rank=rank, node=place)

    def _hint(self, family: Family) -> str:
        setting = "ncpu_proc_per_node" if family.name == "cpu" else "nproc_per_node"
        limit = self.processes(family)
        wider = [] if family.name == "cpu" else [node for node in self.of(family) if len(node.devices) > limit]
        if wider:
            return f"; node {wider[0].id!r} has {len(wider[0].devices)} devices, but {setting}={limit}"
        others = sorted({node.family for node in self.nodes} - {family.name, "cpu"})
        if not self.of(family) and others:
            return f"; the inventory has {', '.join(others)} nodes"
        return f" with {setting}={limit}"

    def device_at(self, group: DeviceGroup, rank: int, node: Node, slot: int) -> str:
        """The id at a slot; a slot that is not there, or was not granted, is refused."""
        device = self.slots[node.id].get(slot)
        if device is not None:
            return device
        who = f"group {shown(group.name)}: rank {rank} needs device slot {slot} on node {node.id!r}"
        if isinstance(node.devices, Mapping):
            granted = ", ".join(map(str, sorted(self.slots[node.id]))) or "none"
            raise PlacementError(f"{who}, which was granted slots {granted}", group=group.name, rank=rank, node=node.id)
        fit = sum(min(len(other.devices), self.per_node) for other in self.of(group.family))
        raise PlacementError(
            f"{who}, which has {len(node.devices)} ({fit} ranks would fit)", group=group.name, rank=rank, node=node.id
        )


class _Claims:
    """Who has which rank and which device so far."""

    def __init__(self) -> None:
        self.groups: dict[str, DeviceGroup] = {}
        self.ranks: dict[str, Sequence[int]] = {}
        #: The first group of every colocation, by the name of each of its groups.
        self.roots: dict[str, str] = {}
        self.highest: dict[str, int] = {}
        #: The device of every rank, by group.
        self.devices: dict[str, dict[int, str]] = {}
        self.rank_owner: dict[tuple[str, int], str] = {}
        self.device_owner: dict[tuple[str, str], str] = {}

    def ranks_of(self, group: DeviceGroup, capacity: int) -> Sequence[int]:
        """The ranks a group gets."""
        who = f"group {shown(group.name)}"
        if group.name in self.groups:
            raise PlacementError(f"{who}: duplicate group name", group=group.name)
        partner = self._partner(group, who)
        if not isinstance(group.ranks, int):
            return group.ranks
        if partner is not None:
            lent = self.ranks[partner.name]
            if group.ranks > len(lent):
                raise PlacementError(
                    f"{who}: {group.ranks} ranks do not fit into group {partner.name!r}, which has {len(lent)}",
                    group=group.name,
                    ranks=group.ranks,
                )
            return lent[: group.ranks]
        start = self.highest.get(group.device_type, -1) + 1
        # One rank beyond the inventory is enough to be refused for, so a huge count costs nothing.
        count = min(group.ranks, max(capacity - start + 1, 1))
        if count > LIST_CAP:
            raise PlacementError(f"{who}: {group.ranks} ranks are more than {LIST_CAP}", group=group.name)
        return range(start, start + count)

    def _partner(self, group: DeviceGroup, who: str) -> DeviceGroup | None:
        name = group.colocate_with
        if name is None:
            return None
        partner = self.groups.get(name)
        if partner is None:
            known = ", ".join(map(repr, self.groups)) or "none"
            raise PlacementError(
                f"{who}: colocate_with={shown(name)} names no earlier group (earlier are: {known})", group=group.name
            )
        if partner.device_type != group.device_type:
            raise PlacementError(
                f"{who}: colocate_with={shown(name)} is a group of {partner.device_type}, not of {group.device_type}",
                group=group.name,
            )
        return partner

    def lent_device(self, group: DeviceGroup, rank: int) -> str | None:
        """The device of a rank that a colocated group shares, so that it is the same one whoever names it."""
        root = None if group.colocate_with is None else self.roots[group.colocate_with]
        sharing = (name for name, other in self.roots.items() if root is not None and other == root)
        return next((device for name in sharing if (device := self.devices[name].get(rank))), None)

    def take(self, group: DeviceGroup, ranks: Sequence[int], chunks: list[_Chunk]) -> None:
        """Note the ranks and devices of a group; those of another are refused unless the two are colocated."""
        kind = group.device_type
        partner = group.colocate_with
        self.roots[group.name] = group.name if partner is None else self.roots[partner]
        for rank in ranks:
            owner = self.rank_owner.setdefault((kind, rank), group.name)
            self._allow(group, owner, f"rank {rank} already used by group {shown(owner)}")
        for chunk in chunks:
            for device in chunk.devices:
                owner = self.device_owner.setdefault((chunk.node.id, device), group.name)
                place = f"device {device} on node {chunk.node.id!r}"
                self._allow(group, owner, f"{place} already belongs to group {shown(owner)}")
        self.groups[group.name] = group
        self.ranks[group.name] = ranks
        self.highest[kind] = max(self.highest.get(kind, -1), *ranks)

    def _allow(self, group: DeviceGroup, owner: str, sentence: str) -> None:
        if self.roots[owner] != self.roots[group.name]:
            raise PlacementError(
                f"group {shown(group.name)}: {sentence}; to share it, set colocate_with={shown(owner)}",
                group=group.name,
                owner=owner,
            )


def _chunks(group: DeviceGroup, ranks: Sequence[int], inventory: _Inventory, claims: _Claims) -> list[_Chunk]:
    """The node and devices of every worker of a group."""
    width = group.gpus_per_worker
    used: dict[str, int] = {}
    chunks = []
    for start in range(0, len(ranks), width):
        members = ranks[start : start + width]
        found = [inventory.node_at(group, rank) for rank in members]
        node = found[0][0]
        if any(other is not node for other, _ in found):
            spanned = list(dict.fromkeys(rank // inventory.processes(group.family) for rank in members))
            raise PlacementError(
                f"group {shown(group.name)}: ranks {_few(members)} of one worker span nodes {_few(spanned)}",
                group=group.name,
                ranks=list(members),
            )
        devices: list[str] = []
        if group.device_type != "cpu":
            for rank, (_, slot) in zip(members, found, strict=True):
                place = used[node.id] = used.get(node.id, -1) + 1
                devices.append(
                    _listed_device(group, rank, node, place)
                    or claims.lent_device(group, rank)
                    or inventory.device_at(group, rank, node, slot)
                )
            claims.devices.setdefault(group.name, {}).update(zip(members, devices, strict=True))
            devices = _settled(group, node, devices)
        chunks.append(_Chunk(node, tuple(devices)))
    return chunks


def _listed_device(group: DeviceGroup, rank: int, node: Node, place: int) -> str | None:
    """The entry of a group's own list that its rank number `place` on a node takes; None without a list."""
    listed: Any = group.visible_devices
    if listed is None:
        return None
    who = f"group {shown(group.name)}"
    if place >= len(listed):
        raise PlacementError(
            f"{who}: more ranks on node {node.id!r} than visible_devices ({len(listed)}), rank {rank} is one too many",
            group=group.name,
            rank=rank,
            node=node.id,
        )
    granted = isinstance(node.devices, Mapping)
    there = list(node.slots().values())
    # Before the grant the whole list is checked; a grant may hold just the entries that are used.
    for device in listed[place : place + 1] if place or granted else listed:
        if device not in there:
            known = ", ".join(there) or "no devices"
            raise PlacementError(
                f"{who}: device {device} is not on node {node.id!r} ({known})", group=group.name, node=node.id
            )
    return str(listed[place])


def _settled(group: DeviceGroup, node: Node, devices: list[str]) -> list[str]:
    """One worker's devices in the order its runtime wants, refused where the runtime would not take them together."""
    family = group.family
    who = f"group {shown(group.name)}: devices {', '.join(devices)} of one worker on node {node.id!r}"
    kinds = {
        next((prefix for prefix in family.id_prefixes if device.startswith(prefix)), "index") for device in devices
    }
    if len(kinds) > 1:
        raise PlacementError(f"{who} mix kinds of ids, of which {family.mask} keeps one", group=group.name)
    if family.name == "hpu" and not aligned(devices):
        raise PlacementError(f"{who} are no aligned block of 1, 2, 4 or 8 modules", group=group.name)
    return sorted(devices, key=int) if family.ascending else devices


def _workers(group: DeviceGroup, chunks: list[_Chunk], inventory: _Inventory) -> tuple[Worker, ...]:
    family = group.family
    on_node: dict[str, int] = {}
    for chunk in chunks:
        on_node[chunk.node.id] = on_node.get(chunk.node.id, 0) + 1
    node_ranks = {node: rank for rank, node in enumerate(on_node)}
    # A worker on the CPU must not see any accelerator of the job.
    present = {node.family for node in inventory.nodes}
    hidden = {kind.mask: "" for kind in FAMILIES.values() if kind.name in present and kind.mask is not None}
    placed: dict[str, int] = {}
    workers = []
    for rank, chunk in enumerate(chunks):
        node = chunk.node.id
        index = placed[node] = placed.get(node, -1) + 1
        env = {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(chunks)),
            # A worker that sees only its own devices calls the first of them 0.
            "LOCAL_RANK": str(index) if family.name == "cpu" else "0",
            "LOCAL_WORLD_SIZE": str(on_node[node]),
            "NODE_RANK": str(node_ranks[node]),
            "NNODES": str(len(on_node)),
            "TWINKLE_LOCAL_INDEX": str(index),
        }
        if family.name == "cpu":
            env |= hidden
        elif family.mask is not None:
            env |= {family.mask: ",".join(chunk.devices), **dict.fromkeys(family.noset, "1")}
        workers.append(Worker(rank, node, chunk.devices, env))
    return tuple(workers)


def _made(items: Any, kind: type[Any], what: str) -> list[Any]:
    """A list of groups or nodes, each given as itself or as a mapping of its fields."""
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
        raise PlacementError(f"{what} must be a sequence of {kind.__name__} or mappings, not {shown(items)}")
    made = []
    for given in items:
        item = given
        if isinstance(item, Mapping):
            known = set(kind.__dataclass_fields__)
            unknown = [name for name in item if name not in known]
            missing = [entry for entry in ("name", "ranks", "device_type", "id", "family") if entry in known - {*item}]
            if unknown or missing:
                told = f"lacks {', '.join(missing)}" if missing else f"has no field {shown(unknown[0])}"
                raise PlacementError(f"{what}: a {kind.__name__} {told}: {shown(dict(item))}")
            item = kind(**item)
        if not isinstance(item, kind):
            raise PlacementError(f"{what} must hold {kind.__name__} or mappings, not {shown(item)}")
        made.append(item)
    return made


def _kind(family: Family) -> str:
    return family.resource if family.name in ("cuda", "cpu") else family.name.upper()


def _few(numbers: Sequence[int]) -> str:
    listed = list(numbers[:8])
    return str(listed) if len(numbers) <= 8 else f"{str(listed)[:-1]}, ... {numbers[-1]}]"
