"""Values that nobody should hand over, and every public question of a mesh that they are handed to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count, product, repeat
from typing import Any

import numpy as np

from twinkle import DeviceMesh
from twinkle.errors import TwinkleError


class IndexRaises:
    def __index__(self) -> int:
        raise ZeroDivisionError("no index")


class IndexIsText:
    def __index__(self) -> int:
        return "3"  # type: ignore[return-value]  # noqa: PLE0305 - the fault that is handed over


class IndexIsHuge:
    def __index__(self) -> int:
        return 2**500


class IndexIsSmall:
    def __index__(self) -> int:
        return 2


class Endless:
    def __iter__(self) -> Iterator[int]:
        return count()


class EndlessNames:
    def __iter__(self) -> Iterator[str]:
        return repeat("dp")


class IterationRaises:
    def __iter__(self) -> Iterator[str]:
        yield "dp"
        raise OSError("no more")


class ClaimsLength:
    def __len__(self) -> int:
        return 2**62

    def __getitem__(self, place: int) -> int:
        return place


class LengthRaises:
    def __len__(self) -> int:
        raise OverflowError("no length")

    def __getitem__(self, place: int) -> int:
        raise LookupError(place)


class ArrayRaises:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise KeyError("no array")


class ArrayIsHuge:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.broadcast_to(np.int64(0), (2**40,))


class ArrayOfObjects:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([object(), IndexRaises()], dtype=object)


class ReprRaises:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class ReprIsHuge:
    def __repr__(self) -> str:
        return "x" * 10**6


class EqualityRaises:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")


class AttributesRaise:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class EndlessMapping(Mapping[Any, Any]):
    def __iter__(self) -> Iterator[str]:
        return map("x{}".format, count())

    def __len__(self) -> int:
        return 2**62

    def __getitem__(self, key: Any) -> int:
        return 1


class MappingRaises(Mapping[Any, Any]):
    def __iter__(self) -> Iterator[str]:
        return iter(("axes", "offset", "strides"))

    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: Any) -> Any:
        raise OSError(key)


class Text(str):
    __slots__ = ()


class Number(int):
    pass


DTYPES = ("?", "i1", "u1", "i8", ">i8", "u8", "f2", "f8", "c16", "S3", "U3", "O", "M8[s]", "m8[s]", "V4", "i4,f8")
ENDLESS: list[Any] = []
ENDLESS += [ENDLESS, ENDLESS]

#: Made anew for each call, so that nothing is used up; cheap ones only, a few that take a second stand in `SLOW`.
ODD: list[Callable[[], Any]] = [
    lambda: None,
    lambda: True,
    lambda: 0.0,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: 1j,
    *[lambda number=number: number for number in (0, 1, -1, 2**31, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**200)],
    *[
        lambda text=text: text
        for text in ("", "dp", "tp", "data", "ulysses", "\ud800", "dp\0", "é", "tp-dp", "x" * 10**6)
    ],
    lambda: b"dp",
    lambda: bytearray(b"dp"),
    list,
    lambda: [[]],
    lambda: [None],
    lambda: ["dp", None],
    lambda: ["dp", "tp"],
    lambda: ("pp", "dp"),
    lambda: [1, 2.5],
    lambda: [[0, 1], [2]],
    lambda: [2**200],
    lambda: ["dp"] * 1000,
    lambda: ENDLESS,
    dict,
    lambda: {"dp": 2},
    lambda: {"dp": "2", 5: None},
    lambda: {"dp": 2**70},
    lambda: {"axes": {"dp": 2}, "offset": 0, "strides": [1]},
    lambda: {"axes": {"dp": 2}, "offset": 2**70, "strides": [IndexRaises()]},
    lambda: {"axes": EndlessMapping(), "ranks": [0]},
    lambda: {"axes": {"dp": 2}, "ranks": range(2**62)},
    lambda: {"axes": {"dp": 2}, "offset": 0, "strides": [1], "merged": repeat((0, "dp", 2, 2))},
    lambda: {"axes": {"dp": 2}, "offset": 0, "strides": [1], "merged": [(0, "dp", 2, 2**40)]},
    lambda: {"axes": {"dp": 2}, "offset": 0, "strides": count(), "ep_size": object()},
    lambda: {"dp", "tp"},
    lambda: frozenset({"dp"}),
    lambda: range(4),
    lambda: range(2**62),
    lambda: range(2**200),
    lambda: range(2**62, -(2**62), -1),
    *[lambda dtype=dtype: np.zeros(2, dtype) for dtype in DTYPES],
    *[lambda dtype=dtype: np.zeros((), dtype) for dtype in DTYPES],
    lambda: np.arange(8).reshape(2, 4),
    lambda: np.array([2**63], np.uint64),
    lambda: np.broadcast_to(np.int64(0), (2**20, 2**30)),
    lambda: np.zeros((1,) * 40, int),
    lambda: iter(("dp", "tp")),
    lambda: repeat("dp"),
    lambda: (name for name in (1, 2)),
    object,
    lambda: int,
    lambda: NotImplemented,
    lambda: lambda: 0,
    lambda: Text("dp"),
    lambda: Number(1),
    *(IndexRaises, IndexIsText, IndexIsHuge, IndexIsSmall, EndlessNames, IterationRaises, ClaimsLength, LengthRaises),
    *(ArrayRaises, ArrayIsHuge, ArrayOfObjects, ReprRaises, ReprIsHuge, EqualityRaises, AttributesRaise),
    *(EndlessMapping, MappingRaises),
]
SLOW: list[Callable[[], Any]] = [Endless, count]

#: Sizes whose answers are a few numbers or beyond every cap.
ENORMOUS: list[Callable[[], DeviceMesh]] = [
    lambda: DeviceMesh.from_axes({"dp": 4, "pp": 2, "tp": 2**40}),
    lambda: DeviceMesh.from_axes({"tp": 2, "fsdp": 2**30, "dp": 2**31}, ulysses_size=2**40),
    lambda: DeviceMesh.from_axes({"fsdp": 3 * 2**28, "pp": 2, "dp": 2**30}, ulysses_size=2**30, offset=2**61),
    lambda: DeviceMesh(range(2**62, 2**61, -1), "pp"),
    lambda: DeviceMesh.from_axes({"pp": 2**62, "dp": 1}, vpp_size=2**62),
    lambda: DeviceMesh.from_axes({"dp": 2**30, "cp": 2**30, "tp": 4}).flatten(("dp", "cp"), "x"),
    lambda: DeviceMesh.from_axes({"ep": 2**30, "ep_fsdp": 2**30}),
]
SMALL: list[Callable[[], DeviceMesh]] = [
    DeviceMesh.from_sizes,
    lambda: DeviceMesh.from_sizes(fsdp_size=4, dp_size=2, tp_size=2, ulysses_size=2),
    lambda: DeviceMesh([[7, 1], [2, 9]], ("pp", "dp")),
    lambda: DeviceMesh.from_sizes(dp_size=4, pp_size=2, ep_size=2).expert_mesh(),
    lambda: DeviceMesh.from_sizes(dp_size=2, tp_size=2, ulysses_size=2).flatten(("dp", "tp"), "x"),
]

FIELDS = (
    *("mesh", "mesh_dim_names", "ep_size", "etp_size", "ep_fsdp_size", "vpp_size", "ulysses_size"),
    *("sequence_parallel", "device_type"),
)
SIZES = (
    *("world_size", "dp_size", "fsdp_size", "tp_size", "pp_size", "ulysses_size", "cp_size", "ep_size", "etp_size"),
    *("ep_fsdp_size", "vpp_size", "device_type", "sequence_parallel", "order"),
)
#: Each public method and how many values it takes; keyword-only ones have questions of their own below.
METHODS = {
    "has_dim": 1, "get_dim_size": 1, "position_of": 1, "rank_at": 1, "coord_of": 1, "coordinates": 1, "coords_of": 1,
    "data_ranks": 0, "data_rank_of": 1, "get_data_rank_from_global_rank": 1, "index_in_group": 2, "group_of": 2,
    "groups": 1, "slices": 1, "get_slice": 2, "get_collect_ranks": 0, "get_tp_ranks": 0, "get_tp_last_ranks": 0,
    "get_pp_stage_ranks": 1, "get_pp_first_ranks": 0, "get_pp_last_ranks": 0, "is_tp_last_rank": 1,
    "is_pp_first_rank": 1, "is_pp_last_rank": 1, "explain": 1, "submesh": 2, "permute": 1, "flatten": 2, "split": 2,
    "expert_mesh": 1, "placement": 3, "to_dict": 0, "__contains__": 1, "__getitem__": 1, "__copy__": 0, "__repr__": 0,
    "__hash__": 0, "__reduce__": 0,
}  # fmt: skip
BY_KEYWORD = ("to_svg", "group_plan", "rank_of", "replace", "from_sizes", "from_axes", "from_dict")
PROPERTIES = (
    *FIELDS,
    *("world_size", "shape", "data_world_size", "strides", "offset", "order"),
    *(f"{axis}_world_size" for axis in ("dp", "fsdp", "tp", "pp", "cp", "ep", "etp")),
    *(f"{axis}_rank" for axis in ("dp", "fsdp", "tp", "pp", "cp", "ep", "data")),
    "is_single_process",
)
#: How many odd values each question takes, by its name.
QUESTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    **{name: (many, lambda mesh, *values, name=name: getattr(mesh, name)(*values)) for name, many in METHODS.items()},
    **{f"get {name}": (0, lambda mesh, name=name: getattr(mesh, name)) for name in PROPERTIES},
    **{f"set {name}": (1, lambda mesh, value, name=name: setattr(mesh, name, value)) for name in PROPERTIES},
    **{
        f"DeviceMesh({name})": (
            1,
            lambda mesh, value, name=name: DeviceMesh(**{"mesh": [0, 1, 2, 3], name: value}),
        )
        for name in FIELDS
    },
    **{
        f"from_sizes({name})": (
            2,
            lambda mesh, value, other, name=name: DeviceMesh.from_sizes(**{"dp_size": other, name: value}),
        )
        for name in SIZES
    },
    **{
        f"replace({name})": (1, lambda mesh, value, name=name: mesh.replace(**{name: value}))
        for name in (*FIELDS, "unheard_of")
    },
    "DeviceMesh(mesh, names)": (2, lambda mesh, ranks, names: DeviceMesh(ranks, names)),
    "from_axes(sizes)": (1, lambda mesh, sizes: DeviceMesh.from_axes(sizes)),
    "from_axes(dp, offset)": (2, lambda mesh, size, offset: DeviceMesh.from_axes({"dp": size}, offset=offset)),
    "from_axes(option)": (1, lambda mesh, value: DeviceMesh.from_axes({"dp": 4, "pp": 2}, ep_size=value)),
    "from_dict": (1, lambda mesh, data: DeviceMesh.from_dict(data)),
    "rank_of": (2, lambda mesh, dp, tp: mesh.rank_of(dp=dp, tp=tp)),
    "rank_of(unheard)": (1, lambda mesh, value: mesh.rank_of(**{"\ud800": value})),
    "to_svg(color_by)": (2, lambda mesh, axis, limit: mesh.to_svg(color_by=axis, limit=limit)),
    "to_svg(nproc_per_node)": (1, lambda mesh, many: mesh.to_svg(nproc_per_node=many)),
    "group_plan": (2, lambda mesh, *axes: mesh.group_plan(*axes)),
    "get_slice(data_rank)": (2, lambda mesh, total, rank: mesh.get_slice(total, data_rank=rank)),
    "get_slice(global_rank)": (2, lambda mesh, total, rank: mesh.get_slice(total, global_rank=rank)),
    "get_slice(both)": (2, lambda mesh, total, rank: mesh.get_slice(total, rank, global_rank=rank)),
}


def ask(name: str, mesh: DeviceMesh, values: list[Any]) -> None:
    """Asks one question: any answer is right, and any refusal of ours; whatever else is raised is a fault."""
    words = ""
    try:
        QUESTIONS[name][1](mesh, *values)
    except TwinkleError as refusal:
        words = str(refusal)
    except AttributeError:
        # A property without a setter says so in Python's own words.
        assert name.startswith("set ")
        assert name.removeprefix("set ") not in FIELDS
    assert len(words) < 2000, f"{name} is refused in {len(words)} letters"


def everything(*, on_each: bool) -> int:
    """Asks each question with each odd value at each place, of enormous meshes in turn or of all; returns how many."""
    asked = 0
    for name, (many, _) in QUESTIONS.items():
        for odd, place in product(ODD if many else ODD[:1], range(max(many, 1))):
            for make in ENORMOUS if on_each else [ENORMOUS[asked % len(ENORMOUS)]]:
                values: list[Any] = ([0, "dp", 1] if name == "get_slice" else ["dp", 0, 1])[:many]
                if many:
                    values[place] = odd()
                try:
                    ask(name, make(), values)
                except BaseException as error:
                    raise AssertionError(f"{name} on {make()} with {[type(value) for value in values]}") from error
                asked += 1
    return asked
