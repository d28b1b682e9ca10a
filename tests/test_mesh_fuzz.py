"""Arbitrary values at every public question of a mesh: an answer or a typed refusal, within bounded memory."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mesh_odd import BY_KEYWORD, ENORMOUS, METHODS, ODD, PROPERTIES, QUESTIONS, SLOW, SMALL, ask
from tests.support import LIMIT, run_python
from twinkle import DeviceMesh
from twinkle.errors import AxisError, MeshError

#: What needs torch, or a job.
TORCH = {
    *("to_torch_device_mesh", "from_torch", "fsdp_mesh", "make_groups", "create_process_group", "get_dim_group"),
    *("release_groups", "bind"),
}
PLAUSIBLE = st.one_of(
    st.integers(-2, 9),
    st.sampled_from(["dp", "tp", "pp", "fsdp", "data", "ulysses", "ep", "x", "tp-dp", "cpu", "npu", "megatron", "any"]),
    st.lists(st.sampled_from(["dp", "tp", "pp", "fsdp", "x"]), max_size=3),
    st.lists(st.integers(0, 8), max_size=5),
    st.dictionaries(st.sampled_from(["dp", "tp", "pp", "x", "a"]), st.integers(0, 4), max_size=3),
)
VALUES = st.one_of(
    PLAUSIBLE,
    st.sampled_from(ODD).map(lambda make: make()),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    ),
)


def test_every_public_name_is_asked() -> None:
    public = {name for name in dir(DeviceMesh) if not name.startswith("_")}
    assert public - TORCH == {name for name in (*METHODS, *BY_KEYWORD, *PROPERTIES) if not name.startswith("_")} - TORCH


@given(st.sampled_from(sorted(QUESTIONS)), st.sampled_from(SMALL + ENORMOUS), st.lists(VALUES, min_size=3, max_size=3))
def test_a_question_is_answered_or_refused_in_our_words(name: str, make: object, values: list[object]) -> None:
    assert callable(make)
    ask(name, make(), values[: QUESTIONS[name][0]])


def test_a_sequence_without_an_end_is_refused() -> None:
    for make in SLOW:
        with pytest.raises(MeshError, match=f"{2**24 + 1} ranks, more than the {2**24} that are accepted"):
            DeviceMesh(make())
        with pytest.raises(AxisError, match="axes are a name or a sequence of names"):
            SMALL[1]().groups(make())


def test_enormous_meshes_answer_every_odd_question_within_two_gigabytes() -> None:
    on_each = hypothesis.settings.get_current_profile_name() == "long"
    code = f"""
import resource
import numpy
from tests.mesh_odd import everything
# What is mapped already, the libraries of NumPy among it, counts too.
resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))
print(everything(on_each={on_each}))
"""
    assert int(run_python(code, timeout=3000 if on_each else LIMIT)) > 5_000
