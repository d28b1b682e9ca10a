"""What a class may declare: checked when it is written, each refusal naming what is accepted."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import pytest

import twinkle
from tests.remote import feeding
from tests.remote.inline import component, inline_ray
from twinkle import DeviceMesh, remote_class, remote_function
from twinkle.errors import PlanError
from twinkle.remote.signature import Declaration, declared


def test_the_first_value_of_each_option_is_its_default() -> None:
    made = declared({})
    assert (made.dispatch, made.execute, made.collect) == ("all", "all", "none")
    assert (made.collect_from, made.split, made.fan_out) == ("pp_last", "even", "all")
    assert made.on_error == "leave"
    assert not made.cuts
    assert made == Declaration()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dispatch": "scatter"}, "dispatch must be one of all, slice, slice_dp, or a function, not 'scatter'"),
        ({"execute": "last"}, "execute must be one of all, first, peer, not 'last'"),
        ({"collect": "concat"}, "collect must be one of none, flatten, mean, avg, sum, first, last_pp, last_pp_first"),
        ({"collect_from": "lead"}, "collect_from must be one of pp_last, pp_first, any, all"),
        ({"split": "odd", "dispatch": "slice"}, "split must be one of even, pad, or a function"),
        ({"fan_out": "some"}, "fan_out must be one of all, lead"),
        ({"colect": "mean"}, "no option 'colect', did you mean collect"),
        ({"rows": ("x",)}, "needs dispatch='slice_dp' or 'slice'"),
        ({"rows": 3, "dispatch": "slice"}, "rows must be names of parameters, not 3"),
        ({"group": 0, "dispatch": "slice"}, "group must be a whole number of rows from 1, not 0"),
        ({"group": True, "dispatch": "slice"}, "group must be a whole number"),
        ({"group": 2}, "group is about rows"),
        ({"allow_empty": True}, "allow_empty is about rows"),
        ({"loss_mask": "labels"}, "loss_mask is about rows"),
        ({"split": "pad"}, "split is about rows"),
        ({"timeout": 0}, "timeout must be seconds above 0"),
        ({"timeout": True}, "timeout must be seconds above 0"),
        ({"timeout": float("inf")}, "timeout must be seconds above 0, or None to wait, not inf"),
        ({"on_error": "kill"}, "on_error must be one of leave, kill_group, not 'kill'"),
        ({"sync": 1}, "sync must be True or False"),
        ({"lazy_collect": "no"}, "lazy_collect must be None, True or False"),
        ({"collect_from": "all", "collect": "flatten"}, "collect_from='all' returns every worker's result"),
        (
            {"result_rows": {"loss": "median"}},
            r"result_rows\['loss'\] must be one of rows, list, mean, sum, first, max",
        ),
        ({"result_rows": 1.5}, "result_rows must be keys of the result"),
        ({"loss_mask": 3, "dispatch": "slice"}, "loss_mask must be the key that masks a row"),
        ({"pad_values": 0}, "pad_values must map keys or dtypes to values"),
    ],
)
def test_what_is_not_accepted_is_refused_by_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        remote_function(**options)


def test_rows_must_be_parameters_of_the_method() -> None:
    with pytest.raises(PlanError, match="rows='advantages' is no parameter; it has inputs"):

        @remote_function(dispatch="slice_dp", rows=("inputs", "advantages"))
        def forward(self: Any, inputs: Any) -> None: ...


def test_decorators_are_called_with_their_options() -> None:
    with pytest.raises(PlanError, match=r"write @remote_function\(\)"):

        @remote_function
        def forward(self: Any) -> None: ...

    with pytest.raises(PlanError, match=r"write @remote_class\(\)"):
        remote_class(dict)  # type: ignore[arg-type]

    with pytest.raises(PlanError, match="plain methods"):

        @remote_function()
        async def later(self: Any) -> None: ...


def test_a_base_class_builds_its_part_of_a_component() -> None:
    @remote_class()
    class Base:
        def __init__(self, size: int) -> None:
            self.size = size

    @remote_class()
    class Derived(Base):
        def __init__(self, size: int) -> None:
            super().__init__(size + 1)

        @remote_function()
        def doubled(self) -> int:
            return self.size * 2

    assert Derived(1).doubled() == 4

    class Undecorated(Base):
        def __init__(self) -> None:
            super().__init__(1)

    for options in ({}, {"remote_group": "any"}, {"device_mesh": None}):
        undecorated: Any = Undecorated
        with pytest.raises(
            PlanError, match=r"Undecorated has a constructor of its own: decorate it with @remote_class"
        ):
            undecorated(**options)
    assert list(inspect.signature(Base).parameters) == ["size"]


@pytest.mark.parametrize("wrapper", [staticmethod, classmethod, property])
def test_only_plain_methods_are_remote_whichever_decorator_comes_first(wrapper: Any) -> None:
    def method(self: Any) -> None: ...

    with pytest.raises(PlanError, match="remote_function takes plain methods, not"):
        remote_function()(wrapper(method))
    with pytest.raises(PlanError, match=rf"Wrapped.made: a {wrapper.__name__} is no remote method, since it is not"):
        remote_class()(type("Wrapped", (), {"made": wrapper(remote_function()(method))}))


def test_a_remote_method_under_another_name_is_refused_when_the_class_is_written() -> None:
    def forward(self: Any) -> None: ...

    for method, name in ((forward, "forward"), (lambda self: None, "<lambda>")):
        with pytest.raises(PlanError, match=rf"Kind.alias is .*{name} under another name.*write `def alias\(self"):
            remote_class()(type("Kind", (), {"forward": forward, "alias": remote_function()(method)}))
    remote_class()(type("Kind", (), {"forward": remote_function()(forward)}))


def test_a_remote_method_keeps_its_name_and_doc() -> None:
    class Component:
        @remote_function(dispatch="slice_dp")
        def forward(self, inputs: Any) -> Any:
            """Runs."""
            return inputs

    assert (Component.forward.__name__, Component.forward.__doc__) == ("forward", "Runs.")
    assert Component().forward([1]) == [1]


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (5, "5"),
        (None, "None"),
        ("ab", "'ab'"),
        (((1,),), r"\(\(1,\),\)"),
        ((1, {}), r"\(1, \{\}\)"),
        (("ab", {}), r"\('ab', \{\}\)"),
        (((1,), [2]), r"\(\(1,\), \[2\]\)"),
        (((1,), {2: 3}), r"\(\(1,\), \{2: 3\}\)"),
    ],
)
def test_a_function_that_dispatches_returns_the_arguments_of_a_worker(returned: Any, told: str) -> None:
    words = (
        rf"Model.dispatched: dispatch\(\d, 0, args, kwargs, device_mesh\) returned {told}: it returns the arguments of "
        r"that worker as a pair, \(args, kwargs\): a list or tuple, and a mapping with names as keys"
    )
    model: Any = feeding.Model
    with inline_ray():
        two = component(model, DeviceMesh.from_sizes(dp_size=2))
        with pytest.raises(PlanError, match=words):
            two.dispatched(returned)
        assert two.dispatched([[1], {"x": 2}]) == [((1,), {"x": 2})] * 2
    twinkle.initialize("local")
    try:
        with pytest.raises(PlanError, match=words):
            model().dispatched(returned)
    finally:
        twinkle.shutdown()


def test_a_class_says_what_ends_its_constructors_in_the_same_words() -> None:
    with pytest.raises(PlanError, match="on_error must be one of leave, kill_group, not 'kill'"):
        remote_class(on_error="kill")
    with pytest.raises(PlanError, match="timeout must be seconds above 0, or None to wait, not 0"):
        remote_class(timeout=0)


def test_a_plain_override_of_a_remote_method_is_refused_when_the_class_is_written() -> None:
    class Base:
        @remote_function()
        def step(self) -> None: ...

        @remote_function()
        def other(self) -> None: ...

    class Between(Base):
        def step(self) -> None: ...

    class Mixed:
        @property
        def other(self) -> None: ...

    for bases, name, words in (
        ((Base,), "Derived", "Derived.step overrides the remote method .*Base.step without @remote_function"),
        ((Between,), "Inherits", "Between.step overrides the remote method .*Base.step without @remote_function"),
        ((Mixed, Base), "Mixes", "Mixed.other overrides the remote method .*Base.other without @remote_function"),
    ):
        own = {"step": lambda self: None} if name == "Derived" else {}
        with pytest.raises(PlanError, match=rf"{words}\(\): it would run on the driver"):
            remote_class()(type(name, bases, own))
    remote_class()(type("Without", (Base,), {"other": None}))


def test_a_dataclass_is_made_before_it_is_a_component() -> None:
    @dataclass
    @remote_class()
    class Wrong:
        size: int = 1

    wrong: Any = Wrong
    for options in ({}, {"remote_group": "any"}):
        with pytest.raises(PlanError, match=r"Wrong became a dataclass after it became a component: write @remote_cl"):
            wrong(3, **options)

    @remote_class()
    @dataclass
    class Right:
        size: int = 1

    assert Right(3).size == 3

    @dataclass
    @remote_class()
    class Itself:
        size: int

        def __init__(self) -> None:
            self.size = 4

    assert Itself().size == 4
