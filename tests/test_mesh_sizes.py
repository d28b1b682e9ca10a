"""`from_sizes` and `from_axes`: what is inferred, in which order the axes stand, and what does not fit."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinkle import DeviceMesh
from twinkle.errors import AxisError, MeshError

SIZES = ("fsdp", "pp", "dp", "cp", "tp")


@given(st.dictionaries(st.sampled_from(SIZES), st.integers(1, 4)))
def test_axes_stand_as_megatron_reads_them_backwards_with_dp_always(sizes: dict[str, int]) -> None:
    given: dict[str, Any] = {f"{name}_size": size for name, size in sizes.items()}
    mesh = DeviceMesh.from_sizes(**given)
    declared = [name for name in SIZES if name in sizes or name == "dp"]
    assert mesh.mesh_dim_names == tuple(declared)
    assert mesh.shape == tuple(sizes.get(name, 1) for name in declared)
    assert mesh.strides == DeviceMesh(np.arange(mesh.world_size).reshape(mesh.shape), declared).strides
    assert mesh == DeviceMesh.from_axes({name: sizes.get(name, 1) for name in declared})


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ({"world_size": 16, "tp_size": 2, "pp_size": 2}, {"pp": 2, "dp": 4, "tp": 2}),
        ({"world_size": 12, "fsdp_size": -1, "tp_size": 2}, {"fsdp": 6, "dp": 1, "tp": 2}),
        ({"world_size": 12, "dp_size": -1, "tp_size": 3}, {"dp": 4, "tp": 3}),
        ({"world_size": 12, "dp_size": 3, "cp_size": -1}, {"dp": 3, "cp": 4}),
        ({"world_size": 12, "fsdp_size": 12}, {"fsdp": 12, "dp": 1}),
        ({"world_size": 7}, {"dp": 7}),
        ({"fsdp_size": 4}, {"fsdp": 4, "dp": 1}),
        ({}, {"dp": 1}),
    ],
)
def test_what_is_left_open_is_worked_out(sizes: dict[str, Any], shape: dict[str, int]) -> None:
    assert DeviceMesh.from_sizes(**sizes) == DeviceMesh.from_axes(shape)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"world_size": 8, "dp_size": 2}, ("world_size is 8", "dp=2 = 2")),
        ({"world_size": 16, "dp_size": 1, "fsdp_size": 8}, ("world_size is 16", "fsdp=8 * dp=1 = 8")),
        ({"world_size": 8, "tp_size": 2, "pp_size": 3}, ("world_size 8", "6", "pp=3 * tp=2", "dp_size")),
        ({"world_size": 16, "fsdp_size": 6}, ("world_size 16", "6")),
        ({"world_size": 8, "dp_size": -1, "tp_size": -1}, ("dp_size", "tp_size", "-1", "only one")),
        ({"dp_size": -1}, ("dp_size is -1", "give world_size")),
        ({"tp_size": 0}, ("tp_size is 0", "at least 1")),
        ({"world_size": 0}, ("world_size is 0", "at least 1")),
        ({"world_size": -1}, ("world_size is -1", "at least 1")),
        ({"cp_size": -2}, ("cp_size is -2", "at least 1")),
        ({"pp_size": 2**63}, (f"pp_size is {2**63}", "below 2**63")),
        ({"pp_size": 2**40, "dp_size": 2**40}, ("2**63 places or more", str(2**40))),
        ({"world_size": 1, "dp_size": 8}, ("world_size is 1", "8")),
        ({"dp_size": 8, "ulysses_size": 3}, ("ulysses_size 3", "8 * 1 = 8", "overlay")),
        ({"dp_size": 8, "ep_size": 3}, ("1 * 3 * 1 = 3", "8")),
        ({"dp_size": 4, "pp_size": 2, "ep_size": 8}, ("2 * 8 * 1 = 16", "8")),
        ({"dp_size": 4, "vpp_size": 2}, ("vpp_size 2", "pp_size is 1")),
        ({"dp_size": 8, "ep_size": 2, "ep_fsdp_size": 2}, ("2 * 2 = 4", "8", "ep_fsdp")),
        ({"dp_size": 8, "ep_fsdp_size": 4}, ("1 * 4 = 4", "8")),
        ({"dp_size": 4, "ulysses_size": -1}, ("ulysses_size is -1",)),
        ({"dp_size": 4, "etp_size": 0}, ("etp_size is 0",)),
        ({"dp_size": 4, "ep_fsdp_size": 0}, ("ep_fsdp_size is 0",)),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_every_number(sizes: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(MeshError) as refusal:
        DeviceMesh.from_sizes(**sizes)
    for word in words:
        assert word in str(refusal.value)


@pytest.mark.parametrize("name", ["world_size", *(f"{name}_size" for name in SIZES), "ulysses_size", "ep_size"])
@pytest.mark.parametrize("value", [True, False, 2.0, "2", [2], float("nan"), np.True_])
def test_a_size_of_another_kind_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(MeshError, match=f"{name} must be a whole number"):
        DeviceMesh.from_sizes(**{name: value})


@pytest.mark.parametrize(
    ("sizes", "call"),
    [
        ({"world_size": 8, "dp_size": 2, "ulysses_size": 4}, "from_sizes(world_size=8, dp_size=8, ulysses_size=4)"),
        ({"world_size": 16, "dp_size": 2, "tp_size": 2, "ulysses_size": 4}, "dp_size=8, tp_size=2, ulysses_size=4"),
        ({"world_size": 8, "fsdp_size": 2, "dp_size": 1, "ulysses_size": 4}, "fsdp_size=8, ulysses_size=4"),
        ({"world_size": 8, "dp_size": 2, "ep_size": 4}, "from_sizes(world_size=8, dp_size=8, ep_size=4)"),
    ],
)
def test_a_missing_factor_that_overlays_is_explained_by_the_call_that_works(sizes: dict[str, Any], call: str) -> None:
    # D11.
    with pytest.raises(MeshError, match=r"overlay dp \* fsdp") as refusal:
        DeviceMesh.from_sizes(**sizes)
    assert call in str(refusal.value)
    shown = str(refusal.value).split("from_sizes(")[1].split(")")[0]
    assert DeviceMesh.from_sizes(**eval(f"dict({shown})")).world_size == sizes["world_size"]


def test_cp_is_counted_and_the_refusal_says_so() -> None:
    with pytest.raises(MeshError, match="cp ranks are counted in the product, unlike ulysses ranks"):
        DeviceMesh.from_sizes(world_size=8, dp_size=8, cp_size=8)


def test_options_that_mean_off_are_none() -> None:
    plain = DeviceMesh.from_sizes(dp_size=4, pp_size=2)
    for off in (0, 1):
        mesh = DeviceMesh.from_sizes(dp_size=4, pp_size=2, vpp_size=off, ep_size=off, ulysses_size=off)
        assert mesh == plain
        assert (mesh.vpp_size, mesh.ep_size, mesh.ulysses_size) == (None, None, None)


def test_an_open_etp_is_one_here_and_follows_tp_elsewhere() -> None:
    assert DeviceMesh.from_sizes(tp_size=2, dp_size=4, ep_size=2).etp_size == 1
    assert DeviceMesh.from_sizes(tp_size=2, dp_size=4, ep_size=2).etp_world_size == 1
    assert DeviceMesh.from_sizes(tp_size=2, dp_size=4).etp_size is None
    direct = DeviceMesh(np.arange(8).reshape(4, 2), ["dp", "tp"], ep_size=2)
    assert (direct.etp_size, direct.etp_world_size) == (None, 2)
    replaced = DeviceMesh.from_sizes(tp_size=2, dp_size=4).replace(ep_size=2)
    assert (replaced.etp_size, replaced.etp_world_size) == (None, 2)


def test_an_open_ep_fsdp_reads_as_what_is_left_and_stays_open() -> None:
    mesh = DeviceMesh.from_sizes(dp_size=8, ep_size=4)
    assert mesh.ep_fsdp_size == 2
    assert "ep_fsdp_size" not in mesh.to_dict()
    assert mesh != DeviceMesh.from_sizes(dp_size=8, ep_size=4, ep_fsdp_size=2)
    assert mesh.replace(ep_size=2).ep_fsdp_size == 4
    assert DeviceMesh(np.arange(8), ep_size=2).ep_fsdp_size == 4
    assert DeviceMesh.from_sizes(dp_size=8).ep_fsdp_size is None


@pytest.mark.parametrize("names", [*permutations(("dp", "pp", "tp"))])
def test_an_order_is_names_outermost_first_or_a_string_fastest_first(names: tuple[str, ...]) -> None:
    sizes = {"dp": 2, "pp": 3, "tp": 4}
    given: dict[str, Any] = {f"{name}_size": size for name, size in sizes.items()}
    expected = DeviceMesh.from_axes({name: sizes[name] for name in names})
    assert DeviceMesh.from_sizes(**given, order=names) == expected
    assert DeviceMesh.from_sizes(**given, order=["cp", *names, "fsdp"]) == expected
    assert DeviceMesh.from_sizes(**given, order="-".join(reversed(names))) == expected
    assert DeviceMesh.from_sizes(**given, order=list(map(str, names))) == expected


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (("dp", "tp"), ("pp_size is 2", "does not name pp")),
        ("tp-dp", ("pp_size is 2", "does not name pp")),
        (("dp", "pp", "tp", "dp"), ('"dp" is named twice',)),
        ("tp-dp-ddp-pp", ('"dp" is named twice',)),
        ("tp-xp-dp-pp", ('unknown axis "xp"',)),
        ("", ('unknown axis ""',)),
        ("tp,dp,pp", ("unknown axis",)),
        ({"dp", "pp", "tp"}, ("sequence of names",)),
        (5, ("sequence of names",)),
        (["dp", 5], ("sequence of names",)),
    ],
)
def test_an_order_that_is_none_is_refused(order: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(AxisError) as refusal:
        DeviceMesh.from_sizes(tp_size=2, dp_size=2, pp_size=2, order=order)
    for word in words:
        assert word in str(refusal.value)


def test_the_llama_layouts_answer_as_published() -> None:
    small = DeviceMesh.from_sizes(tp_size=8, cp_size=1, pp_size=16, dp_size=64)
    assert (small.world_size, small.shape) == (8192, (16, 64, 1, 8))
    assert DeviceMesh.from_sizes(tp_size=8, pp_size=16, dp_size=128).world_size == 16384
    large = DeviceMesh.from_axes({"dp": 8, "pp": 16, "cp": 16, "tp": 8})
    assert (large.world_size, large.strides) == (16384, (2048, 128, 8, 1))
    tiny = DeviceMesh.from_axes({"dp": 2, "pp": 2, "cp": 2, "tp": 2})
    others = {axis: list(tiny.group_of(axis, 0)) for axis in ("tp", "cp", "pp", "dp")}
    assert others == {"tp": [0, 1], "cp": [0, 2], "pp": [0, 4], "dp": [0, 8]}


def test_from_axes_counts_from_an_offset() -> None:
    mesh = DeviceMesh.from_axes({"pp": 2, "tp": 4}, offset=8, device_type="cpu", sequence_parallel=True)
    assert (mesh.offset, mesh.rank_at(7), mesh.sequence_parallel, mesh.device_type) == (8, 15, True, "cpu")
    assert mesh.mesh.tolist() == [[8, 9, 10, 11], [12, 13, 14, 15]]  # type: ignore[union-attr]
    assert DeviceMesh.from_axes({"ddp": 2}).mesh_dim_names == ("dp",)
    assert DeviceMesh.from_axes({"dp": 1}, offset=2**63 - 1).rank_at(0) == 2**63 - 1


@pytest.mark.parametrize(
    ("sizes", "options", "kind", "words"),
    [
        ({}, {}, MeshError, "1 to 16 axes, not 0"),
        ([("dp", 2)], {}, MeshError, "must map axis names to sizes"),
        ({"dp": 0}, {}, MeshError, "dp is 0"),
        ({"dp": True}, {}, MeshError, "the size of dp must be a whole number"),
        ({"dp": 2.5}, {}, MeshError, "the size of dp must be a whole number"),
        ({1: 2}, {}, AxisError, "axes are a name"),
        ({"rows": 2}, {}, AxisError, 'unknown axis "rows"'),
        ({"dp": 2, "ddp": 2}, {}, AxisError, "named twice"),
        ({"dp": 2}, {"offset": -1}, MeshError, "offset is -1"),
        ({"dp": 2}, {"offset": 2**63 - 1}, MeshError, rf"offset is {2**63 - 1}"),
        ({"dp": 2}, {"offset": True}, MeshError, "offset must be a whole number"),
        ({"dp": 2**62, "tp": 2}, {}, MeshError, r"2\*\*63 places or more"),
        ({"dp": 2}, {"mesh": [1]}, MeshError, 'no option "mesh"'),
        ({"dp": 2}, {"sequence_parallel": 1}, MeshError, "must be True or False"),
        ({"dp": 2, "ep": 2}, {"ep_size": 4}, MeshError, "declared as an axis of size 2"),
        ({"dp": 2, "sp": 2}, {"ulysses_size": 2}, MeshError, "must be left out"),
    ],
)
def test_axes_that_make_no_mesh_are_refused(sizes: Any, options: Any, kind: type[MeshError], words: str) -> None:
    with pytest.raises(kind, match=words):
        DeviceMesh.from_axes(sizes, **options)
