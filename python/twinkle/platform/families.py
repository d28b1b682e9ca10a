"""The accelerator families: one table of what differs between them.

A family is more than a torch device type: ROCm answers to torch's `cuda` but is masked by its own variable.
"""

from __future__ import annotations

from twinkle.errors import DeviceError, MeshError, TwinkleError
from twinkle.platform.checks import shown

__all__ = ["FAMILIES", "Family", "device_type_of", "family_of"]


class Family:
    """One kind of accelerator: how torch, c10d, its runtime and Ray call it. Read-only; the rows of one table."""

    # A plain class, because every rank that imports the mesh pays for it and a dataclass costs ten times as much.
    __slots__ = (
        "aliases",
        "ascending",
        "backend",
        "files",
        "hints",
        "id_prefixes",
        "mask",
        "name",
        "noset",
        "plugin",
        "prefix",
        "resource",
    )

    name: str
    #: Other names, in lower case.
    aliases: tuple[str, ...]
    #: The device type torch knows: `torch.device(prefix, 0)`, `torch.<prefix>`.
    prefix: str
    #: The c10d backend for tensors on the device.
    backend: str
    #: The variable that lists the devices a process may see; None when there is none.
    mask: str | None
    #: The Ray resource that counts the devices.
    resource: str
    #: Set to "1", these keep Ray from writing the mask itself.
    noset: tuple[str, ...]
    #: What ids other than integers begin with.
    id_prefixes: tuple[str, ...]
    #: Whether the runtime wants the ids of a mask in ascending order.
    ascending: bool
    #: The module that gives torch this device, when torch does not have it built in.
    plugin: str | None
    #: Names under /dev that show the hardware, with any trailing number left out.
    files: tuple[str, ...]
    #: Variables of which one must be set beside a file, where the file alone shows too little.
    hints: tuple[str, ...]

    def __init__(
        self,
        name: str,
        prefix: str,
        backend: str,
        mask: str | None,
        resource: str,
        *,
        aliases: tuple[str, ...] = (),
        noset: bool = False,
        id_prefixes: tuple[str, ...] = (),
        ascending: bool = False,
        plugin: str | None = None,
        files: tuple[str, ...] = (),
        hints: tuple[str, ...] = (),
    ) -> None:
        settle = object.__setattr__
        settle(self, "name", name)
        settle(self, "aliases", aliases)
        settle(self, "prefix", prefix)
        settle(self, "backend", backend)
        settle(self, "mask", mask)
        settle(self, "resource", resource)
        settle(self, "noset", (f"RAY_EXPERIMENTAL_NOSET_{mask}",) if noset else ())
        settle(self, "id_prefixes", id_prefixes)
        settle(self, "ascending", ascending)
        settle(self, "plugin", plugin)
        settle(self, "files", files)
        settle(self, "hints", hints)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"the family table is read-only, {self.name}.{name} cannot be set")

    def __repr__(self) -> str:
        return f"Family({self.name!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        # The rows are the only instances, so a copy is the row itself.
        return family_of, (self.name,)


#: In the order in which a host is searched for them: an accelerator that needs a plug-in comes before the general ones.
_TABLE = (
    Family("mlu", "mlu", "cncl", "MLU_VISIBLE_DEVICES", "MLU", plugin="torch_mlu", files=("cambricon_dev",)),
    Family("musa", "musa", "mccl", "MUSA_VISIBLE_DEVICES", "MUSA", plugin="torch_musa", files=("mtgpu.",)),
    Family(
        "npu",
        "npu",
        "hccl",
        "ASCEND_RT_VISIBLE_DEVICES",
        "NPU",
        aliases=("ascend",),
        noset=True,
        ascending=True,
        plugin="torch_npu",
        files=("davinci",),
    ),
    Family(
        "hpu",
        "hpu",
        "hccl",
        "HABANA_VISIBLE_MODULES",
        "HPU",
        noset=True,
        plugin="habana_frameworks.torch",
        files=("hl", "accel/accel_controlD"),
    ),
    Family(
        "cuda",
        "cuda",
        "nccl",
        "CUDA_VISIBLE_DEVICES",
        "GPU",
        aliases=("gpu", "ppu", "maca"),
        noset=True,
        id_prefixes=("GPU-", "MIG-"),
        files=("nvidia", "dxg"),
    ),
    Family(
        "rocm",
        "cuda",
        "nccl",
        "HIP_VISIBLE_DEVICES",
        "GPU",
        aliases=("hip",),
        noset=True,
        id_prefixes=("GPU-", "MIG-"),
        files=("kfd",),
    ),
    Family(
        "xpu",
        "xpu",
        "xccl",
        "ZE_AFFINITY_MASK",
        "GPU",
        noset=True,
        # An Intel display adapter has the same files, so the oneAPI runtime must show itself too.
        files=("dri/renderD",),
        hints=("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR", "ONEAPI_ROOT"),
    ),
    Family("mps", "mps", "gloo", None, "GPU"),
    Family("cpu", "cpu", "gloo", None, "CPU"),
)

#: Every family by its name.
FAMILIES: dict[str, Family] = {family.name: family for family in _TABLE}

_BY_WORD: dict[str, Family] = {word: family for family in _TABLE for word in (family.name, *family.aliases)}


def family_of(name: object, *, refuse: type[TwinkleError] = DeviceError) -> Family:
    """The family that a device type names, in any case: `'GPU'`, `'npu'`, `'ascend'`.

    An unknown name is refused with `refuse` and the nearest known one.
    """
    if isinstance(name, Family):
        return name
    if isinstance(name, str):
        family = _BY_WORD.get(name) or _BY_WORD.get(name.strip().lower())
        if family is not None:
            return family
    raise refuse(
        f"unknown device_type {shown(name)}{_nearest(name)}; known are {', '.join(_BY_WORD)}", device_type=name
    )


def device_type_of(name: object, *, refuse: type[TwinkleError] = MeshError) -> str:
    """The torch device type of a family: `'cuda'` for `'GPU'` and for `'rocm'`, `'npu'` for `'ascend'`."""
    return family_of(name, refuse=refuse).prefix


def _nearest(name: object) -> str:
    if not isinstance(name, str):
        return ""
    word = name.strip().lower()
    stem, colon, _ = word.partition(":")
    if colon and stem in _BY_WORD:
        return f": a device type has no index, did you mean {stem!r}?"
    from difflib import get_close_matches

    close = get_close_matches(word[:40], _BY_WORD, n=1, cutoff=0.5)
    return f": did you mean {close[0]!r}?" if close else ""
