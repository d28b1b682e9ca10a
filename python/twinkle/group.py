"""Device groups and nodes: what a job asks for, and what it has.

A `DeviceGroup` names the ranks of one component and the devices of each of its workers; a `Node` lists the devices of
one host. `twinkle.allocate` brings the two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from typing import Any

from twinkle.errors import PlacementError
from twinkle.platform.checks import LIST_CAP, shown, whole
from twinkle.platform.families import Family, family_of

__all__ = ["DeviceGroup", "Node", "device_id"]

_SHOWN_RANKS = 8


@dataclass(frozen=True, repr=False)
class DeviceGroup:
    """The ranks of one component, and how many devices each of its workers has.

    `ranks` is a count (the next free block) or the ranks themselves; `device_type` is any name of a family and reads
    back as the family's own (`'GPU'` as `'cuda'`); `visible_devices` replaces the node's list of devices for this
    group, as `"8,9"`, one id, or a sequence of ids, and reads back as a tuple of strings. `colocate_with` names an
    earlier group whose ranks and devices this one may share. Groups are equal when all of this is, and hash alike.
    """

    name: str
    ranks: int | Sequence[int]
    device_type: str
    visible_devices: str | int | Sequence[str | int] | None = None
    gpus_per_worker: int = 1
    colocate_with: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise PlacementError(f"a device group needs a name, not {shown(self.name)}", name=self.name)
        family = self._family(self.device_type)
        settled = {
            "device_type": family.name,
            "ranks": self._settled_ranks(family),
            "gpus_per_worker": whole(self.gpus_per_worker, f"{self._who}: gpus_per_worker", PlacementError, least=1),
            "visible_devices": self._settled_devices(family),
        }
        for attribute, value in settled.items():
            object.__setattr__(self, attribute, value)
        self._check_workers(family)

    @property
    def family(self) -> Family:
        """The row of the family table that `device_type` names."""
        return family_of(self.device_type, refuse=PlacementError)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.ranks if isinstance(self.ranks, int) else len(self.ranks)

    @property
    def workers(self) -> int:
        """The number of workers: ranks divided by `gpus_per_worker`."""
        return self.size // self.gpus_per_worker

    @property
    def _who(self) -> str:
        return f"group {shown(self.name)}"

    def _family(self, device_type: object) -> Family:
        try:
            return family_of(device_type, refuse=PlacementError)
        except PlacementError as error:
            raise PlacementError(f"{self._who}: {error}", group=self.name, device_type=device_type) from None

    def _settled_ranks(self, family: Family) -> int | tuple[int, ...]:
        ranks: Any = self.ranks
        unordered = isinstance(ranks, (str, bytes, Mapping, AbstractSet))
        # An array of one number has __index__ too, but its shape tells it from a number.
        number = hasattr(ranks, "__index__") and not getattr(ranks, "shape", ())
        if unordered or number or not isinstance(ranks, Iterable):
            return whole(ranks, f"{self._who}: ranks", PlacementError, least=1)
        if family.name == "cpu":
            raise PlacementError(
                f"{self._who}: a CPU group needs a positive integer of ranks, not {shown(ranks)}", group=self.name
            )
        return self._settled_list(ranks)

    def _settled_list(self, ranks: Any) -> tuple[int, ...]:
        settled: dict[int, None] = {}
        for rank in self._bounded(ranks, "ranks"):
            try:
                number = whole(rank, "rank", PlacementError)
            except PlacementError:
                raise PlacementError(
                    f"{self._who}: rank {shown(rank)} is not a non-negative integer", group=self.name, rank=rank
                ) from None
            if number in settled:
                raise PlacementError(f"{self._who}: rank {number} is listed twice", group=self.name, rank=number)
            settled[number] = None
        if not settled:
            raise PlacementError(f"{self._who}: the list of ranks is empty, ranks must be >= 1", group=self.name)
        return tuple(settled)

    def _settled_devices(self, family: Family) -> tuple[str, ...] | None:
        asked = self.visible_devices
        if asked is None:
            return None
        if family.name == "cpu":
            raise PlacementError(
                f"{self._who}: a CPU group has no devices, visible_devices={shown(asked)} cannot be met",
                group=self.name,
            )
        listed: Any = asked.split(",") if isinstance(asked, str) else asked
        if isinstance(listed, (int, bytes, Mapping, AbstractSet)) or not isinstance(listed, Iterable):
            listed = [listed]
        ids: dict[str, None] = {}
        for entry in self._bounded(listed, "visible_devices"):
            identifier = device_id(entry, family, f"{self._who}: visible_devices={shown(asked)}")
            if identifier in ids:
                raise PlacementError(
                    f"{self._who}: visible_devices={shown(asked)} has duplicates, {identifier} is listed twice",
                    group=self.name,
                )
            ids[identifier] = None
        if not ids:
            raise PlacementError(f"{self._who}: visible_devices is empty; leave it out for all", group=self.name)
        return tuple(ids)

    def _bounded(self, items: Iterable[Any], what: str) -> Iterable[Any]:
        count = len(items) if isinstance(items, Sized) else 0
        try:
            for number, item in enumerate(items):
                if max(count, number + 1) > LIST_CAP:
                    raise PlacementError(f"{self._who}: {what} lists more than {LIST_CAP} items", group=self.name)
                yield item
        except TypeError:
            raise PlacementError(f"{self._who}: {what}={shown(items)} is not a list", group=self.name) from None

    def _check_workers(self, family: Family) -> None:
        if family.name == "cpu" and self.gpus_per_worker != 1:
            raise PlacementError(
                f"{self._who}: a CPU group has no devices, gpus_per_worker={self.gpus_per_worker} must be 1",
                group=self.name,
            )
        if self.size % self.gpus_per_worker:
            raise PlacementError(
                f"{self._who}: {self.size} ranks not divisible by gpus_per_worker={self.gpus_per_worker}",
                group=self.name,
                ranks=self.size,
                gpus_per_worker=self.gpus_per_worker,
            )
        partner = self.colocate_with
        if partner is None:
            return
        if not isinstance(partner, str) or partner == self.name:
            raise PlacementError(
                f"{self._who}: colocate_with must name another group, not {shown(partner)}", group=self.name
            )
        if family.name == "cpu":
            raise PlacementError(
                f"{self._who}: a CPU group is never colocated, colocate_with={shown(partner)}", group=self.name
            )

    def __str__(self) -> str:
        """Who sits where: one row per node once `initialize` has placed the group, until then what it asks for."""
        from twinkle.remote.placement_text import get_device_placement

        return get_device_placement([self])

    def __repr__(self) -> str:
        shape = [shown(self.name), f"ranks={_brief(self.ranks)}", f"device_type={self.device_type!r}"]
        for entry in fields(self)[3:]:
            value = getattr(self, entry.name)
            if value != entry.default:
                shape.append(f"{entry.name}={_brief(value)}")
        return f"DeviceGroup({', '.join(shape)})"


@dataclass(frozen=True)
class Node:
    """One host of the inventory: its id, the family of its devices, their ids in order, and its CPUs.

    Before devices are granted `devices` is a sequence of ids, the slot being the place in it; afterwards it may be a
    mapping from the reserved slots to the granted ids. Ids read back as strings.
    """

    id: str
    family: str
    devices: Sequence[str | int] | Mapping[int, str | int] = field(default=(), hash=False)
    cpus: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise PlacementError(f"a node needs an id, not {shown(self.id)}")
        who = f"node {shown(self.id)}"
        try:
            family = family_of(self.family, refuse=PlacementError)
        except PlacementError as error:
            raise PlacementError(f"{who}: {error}", node=self.id) from None
        listed: Any = self.devices
        settled: Any
        if isinstance(listed, Mapping):
            settled = {
                whole(slot, f"{who}: a device slot", PlacementError): device_id(entry, family, who)
                for slot, entry in listed.items()
            }
            ids = list(settled.values())
        elif isinstance(listed, Sequence) and not isinstance(listed, (str, bytes)) and len(listed) <= LIST_CAP:
            ids = [device_id(entry, family, who) for entry in listed]
            settled = tuple(ids)
        else:
            raise PlacementError(
                f"{who}: devices must be a sequence of ids, or a mapping from slots to ids, not {shown(listed)}",
                node=self.id,
            )
        if len(set(ids)) != len(ids):
            twice = next(entry for entry in ids if ids.count(entry) > 1)
            raise PlacementError(f"{who}: device {twice} is listed twice", node=self.id, device=twice)
        if ids and family.name == "cpu":
            raise PlacementError(f"{who}: a node of family 'cpu' has no devices, not {shown(listed)}", node=self.id)
        object.__setattr__(self, "family", family.name)
        object.__setattr__(self, "devices", settled)
        object.__setattr__(self, "cpus", whole(self.cpus, f"{who}: cpus", PlacementError))

    def slots(self) -> Mapping[int, str]:
        """The id at every slot that exists here, or that was granted here."""
        devices: Any = self.devices
        return devices if isinstance(devices, Mapping) else dict(enumerate(devices))


def device_id(entry: object, family: Family, where: str) -> str:
    """A device id as the string its runtime expects: an integer, or an id that the family spells in another way."""
    text = entry.strip() if isinstance(entry, str) else str(whole(entry, f"{where}: a device id", PlacementError))
    if text.isascii() and text.isdigit() and len(text) < 20:
        return str(int(text))
    spelled = text.startswith(family.id_prefixes) and not any(mark.isspace() or mark == "," for mark in text)
    if family.id_prefixes and spelled and text not in family.id_prefixes:
        return text
    accepted = " or ".join(["an integer", *(f"{prefix}..." for prefix in family.id_prefixes)])
    variable = family.mask or f"family {family.name!r}"
    only = "" if family.id_prefixes else f" ({variable} takes integer ids only)"
    raise PlacementError(f"{where}: {shown(entry)} is no device id, expected {accepted}{only}", device=entry)


def _brief(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > _SHOWN_RANKS:
        return f"<{len(value)}: {', '.join(map(str, value[:3]))}, ..., {value[-1]}>"
    return repr(list(value)) if isinstance(value, tuple) else repr(value)
