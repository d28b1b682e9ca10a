"""What the command is given: sizes, axes written as `dp=4,tp=2`, and files of meshes or groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinkle.errors import MeshError, TwinkleError

if TYPE_CHECKING:
    from twinkle.mesh import DeviceMesh
    from twinkle.plan import CollectFrom
    from twinkle.show.flow import Side

__all__ = [
    "InputError",
    "checked_collect_from",
    "count_of_rows",
    "mesh_of_file",
    "mesh_of_sizes",
    "names_in",
    "read_data",
    "side_of_words",
]

#: Options of the command that are sizes, by the keyword of `DeviceMesh.from_sizes` that they are.
SIZES = ("dp", "fsdp", "tp", "pp", "cp", "ulysses", "ep", "etp", "ep_fsdp")


class InputError(TwinkleError, ValueError):
    """Input that cannot be read: a file that is not there, text that is not what it should be."""


def names_in(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def mesh_of_sizes(sizes: Mapping[str, int | None], order: str | None, world_size: int | None) -> DeviceMesh:
    """The mesh of `--dp 2 --tp 4 ...`."""
    from twinkle.mesh import DeviceMesh

    given = {f"{name}_size": size for name, size in sizes.items() if size is not None}
    if not given and world_size is None:
        options = " ".join(f"--{name.replace('_', '-')}" for name in SIZES)
        raise InputError(f"no mesh is given: give sizes ({options} --world-size) or --mesh FILE")
    arrangement = names_in(order) if order is not None and "," in order else order
    return DeviceMesh.from_sizes(world_size=world_size, order=arrangement, **given)  # type: ignore[arg-type]


def side_of_words(text: str, what: str) -> Side:
    """The mesh of `pp=2,dp=2,tp=2`, outermost first, or of a file, and how many devices a worker has.

    Options are written as keywords, `ulysses_size=2`, and so is `gpus_per_worker=2`.
    """
    from twinkle.mesh import DeviceMesh
    from twinkle.show.flow import Side

    if not text.strip():
        raise InputError(f"{what} is empty; give axes and sizes, such as dp=4,tp=2, or a file")
    if "=" not in text:
        return Side(mesh_of_file(text))
    sizes: dict[str, int] = {}
    options: dict[str, int] = {}
    for word in names_in(text):
        name, sign, number = (part.strip() for part in word.partition("="))
        if not sign or not number.isdecimal():
            raise InputError(f"{what} {text!r}: {word!r} is not an axis and its size, such as dp=4")
        into = options if name.endswith("_size") or name == "gpus_per_worker" else sizes
        if name in into:
            raise InputError(f"{what} {text!r}: {name} is given twice")
        into[name] = int(number)
    width = options.pop("gpus_per_worker", 1)
    return Side(DeviceMesh.from_axes(sizes, **options), width)


def checked_collect_from(text: str) -> CollectFrom:
    """A way to collect, refused where it is none."""
    known: tuple[CollectFrom, ...] = ("pp_last", "pp_first", "any", "all")
    for way in known:
        if way == text:
            return way
    raise InputError(f"--collect-from is one of {', '.join(known)}, not {text!r}")


def count_of_rows(batch: int) -> int:
    """A number of rows, refused below 0."""
    if batch < 0:
        raise InputError(f"--batch is a number of rows of 0 or more, not {batch}")
    return batch


def mesh_of_file(name: str, axes: str | None = None) -> DeviceMesh:
    """The mesh in a file: a table of ranks, the fields of `DeviceMesh`, what `to_dict` wrote, or sizes."""
    from twinkle.mesh import DeviceMesh

    data = read_data(name)
    names = None if axes is None else names_in(axes)
    if not isinstance(data, Mapping):
        return DeviceMesh(data, names)
    if names is not None:
        raise InputError(f"{name} names its own axes; --names is for a bare table of ranks")
    keys = {str(key) for key in data}
    build: Callable[..., DeviceMesh]
    if "axes" in keys:
        return DeviceMesh.from_dict(data)
    build, fields = (DeviceMesh, data) if "mesh" in keys else (DeviceMesh.from_sizes, _sizes(data))
    try:
        return build(**fields)
    except TypeError as error:
        raise InputError(f"{name} describes no mesh: {_words(error)}") from None


def _sizes(data: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of `from_sizes`, with `dp` for `dp_size`."""
    return {f"{key}_size" if key in SIZES else str(key): value for key, value in data.items()}


def _words(error: TypeError) -> str:
    """Python's sentence about a wrong keyword, without the name of the function."""
    return str(error).partition(") ")[2] or str(error)


def read_data(name: str) -> Any:
    """The data of a .json, .yaml or .npy file."""
    path = Path(name)
    readers = {".json": _read_json, ".yaml": _read_yaml, ".yml": _read_yaml, ".npy": _read_array}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{name}: a file is named .json, .yaml, .yml or .npy")
    try:
        return reader(path)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{name} is not readable: {error}") from None


def _read_json(path: Path) -> Any:
    import json

    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is not JSON: {error}") from None


def _read_yaml(path: Path) -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise InputError(f"{path}: reading YAML needs PyYAML: pip install 'twinkle-mesh[cli]'") from None
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from None


def _read_array(path: Path) -> Any:
    import numpy as np

    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise MeshError(f"{path} holds no array of ranks: {error}") from None
