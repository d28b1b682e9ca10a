"""Attributes of components: a class keeps its own ways to them where its object lives, and the driver has none."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, fields, replace
from typing import Any

import pytest
import torch

import twinkle
from twinkle import remote_class, remote_function
from twinkle.errors import PlanError, RemoteCallError
from twinkle.remote.elsewhere import guard_reading, unguard_reading


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


class Base:
    depth = 2


@remote_class()
class Settled(Base):
    """Has data in the class itself, some of which its objects change."""

    Kind = int
    MOST_ROWS = 9
    rate = 3
    limits: dict[str, int] = {}  # noqa: RUF012 - what a class of a user has
    device_mesh: Any = None

    def __init__(self, rate: int = 3) -> None:
        self.rate = rate
        self.depth = 5

    @property
    def doubled(self) -> Any:
        return [2 * rate for rate in self.rates()]

    @staticmethod
    def word() -> str:
        return "word"

    @classmethod
    def made(cls) -> Any:
        return cls.rate

    @remote_function()
    def rates(self) -> Any:
        return self.rate


@remote_class()
@dataclass
class Planned:
    """Keeps its fields as a dataclass does, which has their defaults in the class."""

    steps: int = 1
    name: str = "plan"

    @remote_function()
    def told(self, value: Any = None) -> Any:
        return self.steps, self.name, repr(self), value


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


def test_data_of_the_class_is_not_taken_for_that_of_an_object_elsewhere(job: None) -> None:
    settled: Any = Settled(7, remote_group="cpu2")  # type: ignore[call-arg]
    here: Any = Settled(8)
    for name in ("rate", "limits", "depth"):
        words = (
            rf"'Settled' object lives in remote group 'cpu2', and so does its '{name}': read it through a method "
            rf"decorated with @remote_function\(\), or as Settled.{name} where that of the class is meant"
        )
        with pytest.raises(AttributeError, match=words):
            getattr(settled, name)
        assert not hasattr(settled, name)
        assert hasattr(here, name)
    assert (Settled.rate, Settled.limits, Settled.depth, settled.made(), settled.word()) == (3, {}, 2, 3, "word")
    assert (settled.rates(), settled.doubled, settled.Kind) == ([7, 7], [14, 14], int)
    assert settled.device_mesh.world_size == 2
    assert settled.MOST_ROWS == 9
    assert (here.rate, here.depth, here.limits is Settled.limits) == (8, 5, True)
    Settled.late = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="so does its 'late'"):
        settled.late  # noqa: B018 - refused
    for probe in (lambda: copy.copy(settled), lambda: pickle.dumps(settled)):
        with pytest.raises(PlanError, match="does not travel"):
            probe()


def test_a_dataclass_does_not_give_its_defaults_for_the_fields_of_an_object_elsewhere(job: None) -> None:
    plan, other = (Planned(steps, remote_group="cpu2") for steps in (4, 5))  # type: ignore[call-arg]
    for asked in (
        lambda: plan.steps,
        lambda: plan == other,
        lambda: asdict(plan),
        lambda: astuple(plan),
        lambda: replace(plan, name="x"),
    ):
        with pytest.raises(AttributeError, match=r"lives in remote group 'cpu2', and so does its '(steps|name)': read"):
            asked()
    assert repr(plan) == "<Planned in remote group 'cpu2'>"
    assert plan in [other, plan][1:]
    assert [field.name for field in fields(plan)] == ["steps", "name"]
    assert plan.told()[1][:2] == (4, "plan")
    with pytest.raises(PlanError, match=r"^Planned.told: value: Planned is a component of group 'cpu2', and does not"):
        other.told(plan)
    here = Planned(4)
    assert (here, asdict(here)) == (Planned(4), {"steps": 4, "name": "plan"})
    assert repr(here).endswith("Planned(steps=4, name='plan')")


def test_what_the_driver_does_with_attributes_does_not_travel() -> None:
    guarded = type("Guarded", (), {"rate": 3})
    guard_reading(guarded)
    assert "__getattribute__" in vars(guarded)
    unguard_reading(type("Further", (guarded,), {}))
    assert "__getattribute__" not in vars(guarded)

    class Asked:
        def __getattribute__(self, name: str) -> Any:
            return f"asked {name}"

    own = Asked.__getattribute__
    for _ in range(2):
        guard_reading(Asked)
        assert Asked().rate == "asked rate"
    unguard_reading(Asked)
    assert Asked.__getattribute__ is own
