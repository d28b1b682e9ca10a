"""What a process can know about itself without torch: its launcher, its accelerator, its masks, and its device."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from twinkle.errors import TwinkleError
from twinkle.platform.binding import device_name, own_index, own_record
from twinkle.platform.detection import detect_family
from twinkle.platform.families import FAMILIES, Family
from twinkle.platform.launchers import FIELDS
from twinkle.platform.visible import visible_devices
from twinkle.show.table import plain, table, wrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["about_surroundings", "surroundings_text"]


def about_surroundings() -> dict[str, Any]:
    """Launcher, family, masks and the device that `Platform.bind` would choose; refusals are part of the answer."""
    family = detect_family()
    answer: dict[str, Any] = {"launcher": None, "record": None, "refused": None}
    try:
        record = own_record()
        answer["launcher"] = record.launcher
        answer["record"] = {what: getattr(record, what) for what in FIELDS}
        answer["sources"] = dict(record.sources)
        answer["isolated"] = record.isolated
    except TwinkleError as refusal:
        answer["refused"] = str(refusal)
    answer["family"] = "cpu" if family is None else family.name
    answer["backend"] = FAMILIES["cpu"].backend if family is None else family.backend
    answer["masks"] = _masks(os.environ)
    answer["device"], answer["why"] = _device(family or FAMILIES["cpu"])
    return answer


def _masks(environ: Mapping[str, str]) -> dict[str, Any]:
    """Every mask variable that is set: its value, the devices it leaves visible, and what a strict reader refuses."""
    found: dict[str, Any] = {}
    for family in FAMILIES.values():
        if family.mask is None or family.mask not in environ or family.mask in found:
            continue
        value = environ[family.mask]
        entry: dict[str, Any] = {"value": value, "visible": None, "refused": None}
        try:
            # Without torch the host's count is unknown: no index is too high.
            entry["visible"] = list(visible_devices(family, value, 2**16))
            visible_devices(family, value, 2**16, strict=True)
        except TwinkleError as refusal:
            entry["refused"] = str(refusal)
        found[family.mask] = entry
    return found


def _device(family: Family) -> tuple[str | None, str]:
    """The device that binding would choose, and the reason in a few words."""
    try:
        device = device_name(family, None)
        if family.name == "cpu":
            return device, "no accelerator shows itself among the device files of this host"
        record = own_record()
        value = None if family.mask is None else os.environ.get(family.mask)
        visible = None if value is None else visible_devices(family, value, 2**16)
        index = own_index(record, None if visible is None else len(visible))
    except TwinkleError as refusal:
        return None, str(refusal)
    why = "its launcher gave this process devices of its own" if record.isolated else "its local rank"
    if not record.isolated and (record.local_rank or 0) != index:
        why = "the one device that this process sees"
    if record.launcher == "single":
        why = "the first one: nothing launched this process"
    if visible is None:
        return device, f"{why}; {family.mask or 'no mask'} is unset" if family.mask else why
    if index >= len(visible):
        return None, f"{why} is {index}, but {family.mask} leaves {len(visible)} visible"
    return device, f"{why}; {family.mask} makes it device {visible[index]}"


def surroundings_text(found: Mapping[str, Any], *, width: int = 80) -> str:
    """What `about_surroundings` found, as lines of text."""
    lines = []
    if found["record"] is None:
        lines += wrapped(f"launcher: refused, {plain(found['refused'])}", width)
    elif found["launcher"] == "single":
        lines.append("launcher: none, this process is nobody in a world of one")
    else:
        lines += [f"launcher: {found['launcher']}", ""]
        rows = [
            [what.replace("_", " "), "unknown" if value is None else value, found["sources"].get(what, "")]
            for what, value in found["record"].items()
        ]
        lines += [table(["", "value", "from"], rows, width=width, right=" r"), ""]
    lines.append(f"accelerator: {found['family']}, backend {found['backend']}")
    for name, mask in found["masks"].items():
        seen = "refused" if mask["visible"] is None else f"visible {', '.join(mask['visible']) or 'none'}"
        lines += wrapped(plain(f"mask: {name}={mask['value']!r}, {seen}"), width)
        if mask["refused"]:
            lines += wrapped(f"warning: {plain(mask['refused'])}", width)
    if not found["masks"]:
        lines.append("masks: none is set")
    bound = "refused" if found["device"] is None else found["device"]
    lines += wrapped(f"would be bound: {bound} ({plain(found['why'])})", width)
    return "\n".join([*lines, *wrapped("torch was not asked; Platform.bind() checks the device against it", width)])
