"""Attributes of components: a class keeps its own ways to them where its object lives, and the driver has none."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import twinkle
from twinkle import remote_class, remote_function
from twinkle.errors import PlanError, RemoteCallError


@remote_class()
class Net(torch.nn.Module):
    """Finds its parts by the `__getattr__` of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    @remote_function(dispatch="slice_dp", collect="flatten")
    def forward(self, rows: Any) -> Any:
        return self.linear(rows).detach()

    @remote_function()
    def names(self) -> list[str]:
        return [name for name, _ in self.named_parameters()]

    @remote_function()
    def missing(self) -> Any:
        return self.nowhere


class Delegating:
    """Asks another object for what it has not, from its first attribute on."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Inner:
    word = "inner"


@remote_class()
class Wrapped(Delegating):
    """Has a base that delegates."""

    def __init__(self) -> None:
        self.inner = Inner()

    @remote_function()
    def asked(self) -> Any:
        return self.word


@remote_class()
class Own:
    """Has ways of its own to get and to set."""

    def __init__(self) -> None:
        self.__dict__["parts"] = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["parts"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["parts"][name] = value

    @remote_function()
    def kept(self, value: Any) -> Any:
        self.value = value
        return self.value, sorted(self.__dict__["parts"])


@remote_class()
class Noted:
    """Keeps what it is told under a name that is its own affair."""

    def set_rate(self, rate: float) -> None:
        self._rate = rate

    @remote_function()
    def rate(self) -> Any:
        return getattr(self, "_rate", None)

    @remote_function()
    def holds(self, value: Any, config: Any = None) -> Any:
        return value, config

    @remote_function(dispatch="slice_dp", collect="flatten")
    def same(self, rows: Any) -> Any:
        return rows


NAMES: Any = ["linear.weight", "linear.bias"]
KINDS: tuple[Any, ...] = (Net, Wrapped, Own)


def check_all(options: dict[str, Any]) -> None:
    net, wrapped, own = (kind(**options) for kind in KINDS)
    assert wrapped.asked() in ("inner", ["inner"], ["inner", "inner"])
    assert own.kept(3) in ((3, ["value"]), [(3, ["value"])], [(3, ["value"])] * 2)
    assert [tuple(row.shape) for row in net.forward(torch.ones(2, 2))] == [(2,), (2,)]
    assert net.names() in (NAMES, [NAMES], [NAMES, NAMES])
    with pytest.raises((AttributeError, RemoteCallError), match="'Net' object has no attribute 'nowhere'"):
        net.missing()


def test_what_a_property_misses_says_so_itself() -> None:
    @remote_class()
    class Config:
        @property
        def model(self) -> Any:
            return [].nowhere  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'list' object has no attribute 'nowhere'"):
        Config().model  # noqa: B018 - a property that raises


def test_without_initialize_classes_with_a_getattr_of_their_own_work() -> None:
    check_all({})


@pytest.fixture
def alone() -> Iterator[None]:
    twinkle.initialize("local")
    yield
    twinkle.shutdown()


def test_alone_classes_with_a_getattr_of_their_own_work(alone: None) -> None:
    net = Net()
    assert net.forward(torch.ones(2, 2)).gather().shape == (2, 2)
    assert net.linear is next(iter(net.children()))
    assert net.names() == [NAMES]
    wrapped: Any = Wrapped()
    assert (wrapped.asked(), wrapped.word) == (["inner"], "inner")
    own: Any = Own()
    assert own.kept(3) == [(3, ["value"])]
    own.other = 4
    assert own.other == 4
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nowhere'"):
        net.missing()


def test_on_ray_classes_with_a_getattr_of_their_own_work_and_the_driver_has_no_attributes(job: None) -> None:
    check_all({"remote_group": "cpu2"})
    for kind in KINDS:
        component = kind(remote_group="cpu2")
        for asked in (lambda: component.linear, lambda: component._private):  # noqa: B023
            with pytest.raises(AttributeError, match=r"lives in remote group 'cpu2', and so does its '\w+': read it"):
                asked()
        for name in ("linear", "_private"):
            with pytest.raises(AttributeError, match=rf"lives in remote group 'cpu2', and so does its '{name}': set"):
                setattr(component, name, 1)
        assert not hasattr(component, "__array__")


def test_a_private_attribute_of_the_driver_s_object_is_refused_too(job: None) -> None:
    noted: Any = Noted(remote_group="cpu2")  # type: ignore[call-arg]
    with pytest.raises(
        AttributeError, match="lives in remote group 'cpu2', and so does its '_rate': set it in a method"
    ):
        noted.set_rate(3)
    assert noted.rate() == [None, None]


def test_a_component_is_refused_wherever_it_would_travel(job: None) -> None:
    noted: Any = Noted(remote_group="cpu2")  # type: ignore[call-arg]
    here: Any = Noted()
    lives = "Noted is a component of group 'cpu2', and does not travel: pass handles of its rows, or make an object"
    for asked in (lambda: pickle.dumps(noted), lambda: copy.copy(noted), lambda: copy.deepcopy([noted])):
        with pytest.raises(PlanError, match=rf"^{lives}"):
            asked()
    with pytest.raises(PlanError, match=rf"^Noted.holds: value: {lives}"):
        noted.holds(noted)
    with pytest.raises(PlanError, match=rf"^Noted.holds: config\['actors'\]\[1\]: {lives}"):
        noted.holds(1, config={"actors": [None, noted]})
    with pytest.raises(PlanError, match=rf"^Noted.same: rows\[1\]: {lives}"):
        noted.same([1, noted])
    with pytest.raises(PlanError, match=rf"^map: the function: {lives}"):
        noted.same([1, 2]).map(lambda row: noted.holds(row, 1))
    with pytest.raises(PlanError, match=r"^Noted.holds: value: Noted is a component of this process, and does not"):
        noted.holds(here)
