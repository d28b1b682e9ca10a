"""Visible devices: what a runtime makes of its mask variable, and what it would silently leave out.

Ids stay strings from end to end. `visible_devices` answers as the family's runtime does, quirks included; with `strict`
it refuses every value of which the runtime would drop something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from twinkle.errors import DeviceError
from twinkle.platform.checks import LIST_CAP, shown, whole
from twinkle.platform.families import Family, family_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["logical_index", "physical_id", "visible_devices"]


def visible_devices(
    family: str | Family, value: str | None, count: int = 8, *, strict: bool = False
) -> tuple[str, ...]:
    """The ids a process sees, in logical order, when its mask variable holds `value` on a host of `count` devices.

    None is an unset variable: every device. The list is cut at the first index that is not on the host. With `strict` a
    value that the runtime would shorten is a `DeviceError` that names the entry.
    """
    kind = family_of(family)
    devices = whole(count, "count", DeviceError, most=LIST_CAP)
    if kind.mask is None and value is not None:
        raise DeviceError(f"family {kind.name!r} has no mask variable, so the value {shown(value)} means nothing")
    if value is None:
        most = {"cpu": 0, "mps": 1}.get(kind.name, devices)
        return tuple(map(str, range(min(devices, most))))
    if not isinstance(value, str):
        raise DeviceError(f"the value of {kind.mask} must be text or None, not {shown(value)}")
    if strict:
        return _strict(kind, value, devices)
    seen = _PARSERS.get(kind.name, _read_numbers)(value)
    kept = next((place for place, entry in enumerate(seen) if isinstance(entry, int) and entry >= devices), len(seen))
    return tuple(map(str, seen[:kept]))


def physical_id(visible: Sequence[str], index: int) -> str:
    """The id of the device that a process calls `index`; the inverse of `logical_index`."""
    place = whole(index, "index", DeviceError)
    if place >= len(visible):
        raise DeviceError(
            f"device index {place} is not below the {len(visible)} visible devices ({_listed(visible)})",
            index=place,
            count=len(visible),
        )
    return visible[place]


def logical_index(visible: Sequence[str], identifier: str | int) -> int:
    """What a process calls the device with this id; the inverse of `physical_id`."""
    wanted = str(identifier) if isinstance(identifier, str) else str(whole(identifier, "a device id", DeviceError))
    for place, entry in enumerate(visible):
        if entry == wanted:
            return place
    raise DeviceError(f"device {shown(wanted)} is not visible, only {_listed(visible)} are", device=wanted)


def _listed(visible: Sequence[str]) -> str:
    return ", ".join(visible[:16]) + (", ..." if len(visible) > 16 else "") if visible else "none"


def _read_numbers(value: str) -> list[int | str]:
    """Numbers as CUDA reads them: order kept, a duplicate empties the list, the first bad entry ends it."""
    numbers: dict[int | str, None] = {}
    for entry in value.split(","):
        number = _leading_number(entry.strip(), value)
        if number in numbers:
            return []
        if number < 0:
            break
        numbers[number] = None
    return list(numbers)


def _read_cuda(value: str) -> list[int | str]:
    """Numbers, or ids of the kind that the first entry has; the kinds do not mix."""
    for prefix in ("GPU-", "MIG-"):
        if value.startswith(prefix):
            ids: dict[int | str, None] = {}
            for entry in value.split(","):
                if not entry.startswith(prefix):
                    break
                if entry in ids:
                    return []
                ids[entry] = None
            return list(ids)
    return _read_numbers(value)


def _read_npu(value: str) -> list[int | str]:
    """Numbers up to the first foreign character; a list that does not ascend is no list at all."""
    numbers: list[int | str] = []
    last = -1
    for entry in value.split(","):
        digits = _leading_digits(entry)
        if not digits:
            break
        number = _bounded(digits, value)
        if number <= last:
            return []
        numbers.append(number)
        last = number
        if len(digits) < len(entry):
            break
    return numbers


def _read_xpu(value: str) -> list[int | str]:
    """Numbers with duplicates and negatives left out; one entry that is no number empties the list."""
    numbers: dict[int | str, None] = {}
    for entry in value.split(","):
        text = entry.strip()
        sign, digits = text[:1], text.lstrip("+-")
        if not digits or digits != _leading_digits(digits) or len(text) - len(digits) > 1:
            return []
        if sign != "-" or not digits.strip("0"):
            numbers[_bounded(digits, value)] = None
    return list(numbers)


#: The families whose runtime reads its mask in a way of its own; the others read numbers as CUDA does.
_PARSERS: dict[str, Callable[[str], list[int | str]]] = {
    "cuda": _read_cuda,
    "rocm": _read_cuda,
    "npu": _read_npu,
    "xpu": _read_xpu,
}


def _leading_digits(text: str) -> str:
    end = next((place for place, mark in enumerate(text) if mark not in "0123456789"), len(text))
    return text[:end]


def _leading_number(entry: str, value: str) -> int:
    """The number that an entry begins with, -1 when it begins with none; a lone sign raises, as it does in torch."""
    sign = entry[:1] if entry[:1] in ("+", "-") else ""
    digits = _leading_digits(entry[len(sign) :])
    if digits:
        return -_bounded(digits, value) if sign == "-" else _bounded(digits, value)
    if sign:
        raise DeviceError(f"the runtime fails on {shown(entry)} in {shown(value)}: a sign without a number")
    return -1


def _bounded(digits: str, value: str) -> int:
    """The number, refused where Python itself will not read so long a one."""
    short = digits.lstrip("0")
    if len(short) > 4300:
        raise DeviceError(f"the runtime fails on {shown(value)}: a number of {len(short)} digits is no device index")
    return int(short or "0")


def _strict(kind: Family, value: str, count: int) -> tuple[str, ...]:
    """Every entry of the value, each of which the runtime will see."""
    if not (value if kind.name == "npu" else value.strip(" ")):
        return ()
    ids: dict[str, None] = {}
    first = None
    for entry in value.split(","):
        identifier, spelling = _strict_entry(kind, value, entry, count)
        first = spelling if first is None else first
        if spelling != first:
            _refuse(kind, value, entry, f"the first entry is {first}, and kinds do not mix")
        if identifier in ids:
            _refuse(kind, value, entry, f"device {identifier} is listed twice")
        if kind.ascending and ids and int(identifier) < int(next(reversed(ids))):
            _refuse(kind, value, entry, "ids must ascend")
        ids[identifier] = None
    _check_modules(kind, value, list(ids))
    return tuple(ids)


def _strict_entry(kind: Family, value: str, entry: str, count: int) -> tuple[str, str]:
    """The id of an entry and the kind of id that it is."""
    text = entry if kind.name == "npu" else entry.strip(" ")
    prefix = next((prefix for prefix in kind.id_prefixes if text.startswith(prefix)), None)
    if prefix is not None and text != prefix:
        if text != entry or any(mark.isspace() for mark in text):
            _refuse(kind, value, entry, "a space ends the list")
        return text, f"a {prefix} id"
    if not text:
        _refuse(kind, value, entry, "an empty entry ends the list")
    if _leading_digits(text) != text:
        prefixes = "".join(f" or {prefix}..." for prefix in kind.id_prefixes)
        _refuse(kind, value, entry, f"expected an index{prefixes}")
    index = _bounded(text, value)
    if index >= count:
        _refuse(kind, value, entry, f"this host has {count} devices")
    return str(index), "an index"


def _check_modules(kind: Family, value: str, ids: list[str]) -> None:
    """HPU modules work in whole aligned blocks of 2, 4 or 8."""
    if kind.name == "hpu" and not aligned(ids):
        _refuse(kind, value, value, "modules come as one, as aligned 2 (0,1) or 4 (0-3), or as all 8")


def aligned(ids: Sequence[str]) -> bool:
    """Whether HPU modules form a block that works: one, or 2, 4 or 8 consecutive ones from a multiple of that."""
    numbers = sorted(map(int, ids))
    size = len(numbers)
    return size in (1, 2, 4, 8) and numbers == list(range(numbers[0], numbers[0] + size)) and numbers[0] % size == 0


def _refuse(kind: Family, value: str, entry: str, why: str) -> NoReturn:
    raise DeviceError(f"{kind.mask}={shown(value)}: the runtime would drop {shown(entry)}, {why}", entry=entry)
