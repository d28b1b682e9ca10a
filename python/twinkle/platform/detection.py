"""Which accelerator this host has, found without importing torch and without starting a process."""

from __future__ import annotations

import os
import sys

from twinkle.platform.families import FAMILIES, Family

# The name is known to type checkers; `typing` itself would cost more than this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

__all__ = ["detect", "detect_family"]


def detect(
    *,
    files: Collection[str] | None = None,
    environ: Mapping[str, str] | None = None,
    modules: Mapping[str, Any] | None = None,
    system: str | None = None,
) -> str:
    """The torch device type of this host's accelerator, `'cuda'` when none shows itself."""
    family = detect_family(files=files, environ=environ, modules=modules, system=system)
    return "cuda" if family is None else family.prefix


def detect_family(
    *,
    files: Collection[str] | None = None,
    environ: Mapping[str, str] | None = None,
    modules: Mapping[str, Any] | None = None,
    system: str | None = None,
) -> Family | None:
    """The family of this host's accelerator, or None; imports nothing and starts no process.

    Device files decide; then torch, when it is loaded already, because a plug-in may have given it a device that has
    no file. What is left out is looked up: `files` (names below /dev), `environ`, `modules` (as `sys.modules`) and
    `system` (`'Darwin arm64'`).
    """
    present = _device_files() if files is None else files
    variables = os.environ if environ is None else environ
    stems = {name.rstrip("0123456789") for name in present}
    for family in FAMILIES.values():
        hinted = not family.hints or any(variables.get(hint) for hint in family.hints)
        if hinted and not stems.isdisjoint(family.files):
            return family
    if (_system() if system is None else system) == "Darwin arm64":
        return FAMILIES["mps"]
    return _torch_family(sys.modules if modules is None else modules)


def _device_files() -> list[str]:
    """The names below /dev that `Family.files` may match."""
    names = []
    for folder in ("", "accel/", "dri/"):
        try:
            with os.scandir(f"/dev/{folder}") as entries:
                names += [folder + entry.name for entry in entries]
        except OSError:
            continue
    return names


def _system() -> str:
    if sys.platform != "darwin":
        return sys.platform
    return " ".join((os.uname().sysname, os.uname().machine))


def _torch_family(modules: Mapping[str, Any]) -> Family | None:
    torch = modules.get("torch")
    current = getattr(getattr(torch, "accelerator", None), "current_accelerator", None)
    try:
        device = None if current is None else current()
    except Exception:  # a broken plug-in must not keep anybody from asking for a rank
        return None
    kind = getattr(device, "type", None)
    if kind == "cuda" and getattr(getattr(torch, "version", None), "hip", None):
        kind = "rocm"
    return FAMILIES.get(str(kind))
