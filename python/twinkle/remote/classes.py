"""`remote_class` and `remote_function`: the same class, in this process or in the workers of a device group."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from twinkle.errors import PlacementError, PlanError
from twinkle.remote.elsewhere import COMPONENT, guard, guard_reading, keep, kept, unguard_reading
from twinkle.remote.session import current_session
from twinkle.remote.signature import check_methods, declared
from twinkle.runtime import current

if TYPE_CHECKING:
    from twinkle.mesh import DeviceMesh
    from twinkle.remote.signature import Declaration

__all__ = ["construct", "remote_class", "remote_function"]

_Method = TypeVar("_Method", bound=Callable[..., Any])

#: Where an instance keeps that it is being built.
_BUILDING = "_twinkle_building"


def remote_function(  # noqa: PLR0917 - the contract's order
    dispatch: Any = "all",
    execute: str = "all",
    collect: Any = "none",
    rows: str | Sequence[str] | None = None,
    result_rows: str | int | Sequence[str | int] | Mapping[str, Any] | None = None,
    collect_from: str = "pp_last",
    split: Any = "even",
    group: int = 1,
    allow_empty: bool = False,  # noqa: FBT001, FBT002 - the contract's order
    loss_mask: str | Mapping[str, Any] | None = None,
    pad_values: Mapping[str, Any] | None = None,
    fan_out: str = "all",
    verify_replicas: bool = False,  # noqa: FBT001, FBT002
    sync: bool = False,  # noqa: FBT001, FBT002
    lazy_collect: bool | None = None,  # noqa: FBT001 - the contract's order
    timeout: float | None = None,
    on_error: str = "leave",
    **unknown: Any,
) -> Callable[[_Method], _Method]:
    """Declares how calls of a method reach the workers, and what becomes of their results.

    Where rows go: `dispatch` 'all' gives every worker everything, 'slice_dp' cuts rows into one shard per data rank,
    'slice' into one per worker, a function `(workers, worker, args, kwargs, device_mesh)` returns each worker's
    arguments. `rows` names the parameters that are rows, `*args` and `**kwargs` too; None is the first one, if it is
    a list, tuple or other sequence, an array, a tensor or a handle; a list of handles is the rows of each in turn.
    `split` is 'even', 'pad' (shards of one size, short ones repeating a row, which `loss_mask` masks) or a function
    `(n, shards)` that returns a Layout; `group` keeps that many neighbours together; shards without rows are refused
    unless `allow_empty`. `fan_out='lead'` gives rows to the first worker of each shard alone, the others get None.

    Who runs: `execute` 'all', 'first' (worker 0, with all rows), or 'peer' (this driver's share of the workers).

    What comes back: `collect` 'none' is a list with every worker's result, in local mode as well; 'flatten' and
    'last_pp' join rows in order, once per row; 'mean' (or 'avg', weighted by rows) and 'sum' fold numbers; 'first' and
    'last_pp_first' take the first shard's; a function `(outputs, device_mesh)` does what it likes. `result_rows` names
    the keys of a result that are rows, or maps keys to a rule: 'rows', 'list', 'mean', ('mean', weight key), 'sum',
    'first', 'max'.
    `collect_from` says which replicas have the result: 'pp_last', 'pp_first', 'any' (all of them alike), 'all' (every
    worker's is collected). `verify_replicas` compares them. `pad_values` widens columns whose rows differ in width.
    Rows stay with the workers, as a handle, where `lazy_collect` (None: as `initialize` says); `sync=True` always
    pulls them.

    What ends a call: `timeout` is one deadline in seconds for the whole call, and the first worker that fails ends it
    at once. With `on_error` 'leave' the other workers finish their method, however long that takes. With 'kill_group'
    that failure, the deadline, or an interrupt of the driver ends every process of the device group, so that none
    stays in a collective that its peers have left; whatever that group is asked afterwards is refused, until
    `shutdown` and another `initialize`. In local mode `timeout` ends the wait for other ranks, a method that runs is
    not interrupted, and the launcher ends processes.
    """
    options = {
        "dispatch": dispatch,
        "execute": execute,
        "collect": collect,
        "rows": rows,
        "result_rows": result_rows,
        "collect_from": collect_from,
        "split": split,
        "group": group,
        "allow_empty": allow_empty,
        "loss_mask": loss_mask,
        "pad_values": pad_values,
        "fan_out": fan_out,
        "verify_replicas": verify_replicas,
        "sync": sync,
        "lazy_collect": lazy_collect,
        "timeout": timeout,
        "on_error": on_error,
        **unknown,
    }
    declaration = declared(options)

    def decorate(method: _Method) -> _Method:
        wrapped = isinstance(method, (staticmethod, classmethod, type))
        if not callable(method) or wrapped or inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise PlanError(f"remote_function takes plain methods, not {method!r}")
        own = declaration.of(method)

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            component = kept(self, COMPONENT)
            if component is None or current.mode == "worker":
                # Inside a component its remote methods are plain methods.
                return method(self, *args, **kwargs)
            return component.call(own, args, kwargs)

        call.__twinkle__ = (own, method)  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def remote_class(
    execute: str = "all", *, on_error: str = "leave", timeout: float | None = None
) -> Callable[[type], Any]:
    """Makes a class a component, which takes the keywords `remote_group=None` and `device_mesh=None` beside its own.

    Without a `remote_group`, or in local mode, it is built in this process. With one, an object is built in every
    worker of that group, or with `execute='first'` in its first worker alone, which sees a mesh of one; what the
    caller holds then passes calls of its `remote_function` methods on, and has no attributes: data in the class itself
    and the fields of a dataclass are refused there as well, since the objects may have others. `device_mesh` has one
    position per worker or one per device; the object finds it as `self.device_mesh`, and its constructor gets it if it
    takes a parameter of that name.

    `on_error` and `timeout` say the same of the constructors as `remote_function` says of a method: with 'kill_group' a
    worker whose constructor fails does not leave its peers in a rendezvous, where whatever the group is asked later
    would wait behind them. `timeout` begins when the processes of the group are there, for which the first component
    of a group waits. In local mode neither has an effect.
    """
    if execute not in ("all", "first"):
        raise PlanError(f"remote_class: execute must be 'all' or 'first', not {execute!r}; write @remote_class()")
    making = declared({"on_error": on_error, "timeout": timeout})

    def decorate(kind: type) -> Any:
        if not isinstance(kind, type):
            raise PlanError(f"remote_class decorates a class, not {kind!r}")
        check_methods(kind)
        original = kind.__init__  # type: ignore[misc]
        makes_itself = "__init__" in kind.__dict__

        @functools.wraps(original)
        def init(
            self: Any, *args: Any, remote_group: str | None = None, device_mesh: Any = None, **kwargs: Any
        ) -> None:
            if kept(self, _BUILDING):
                # The constructor of a base class, called from one that is being built already.
                original(
                    self, *args, **kwargs, **_accepted(original, device_mesh=device_mesh, remote_group=remote_group)
                )
                return
            if type(self).__init__ is not init:
                raise _undecorated(type(self))
            if type(self) is not kind:
                check_methods(type(self))
            if not makes_itself and "__dataclass_fields__" in type(self).__dict__:
                raise PlanError(
                    f"{type(self).__qualname__} became a dataclass after it became a component: write @remote_class() "
                    "above @dataclass",
                    kind=type(self).__qualname__,
                )
            _begin(self, execute, making, args, kwargs, remote_group, device_mesh)

        init.__twinkle_init__ = original  # type: ignore[attr-defined]
        kind.__init__ = init  # type: ignore[misc]
        made: Any = kind
        if made.__new__ is object.__new__:
            made.__new__ = _new(original)
        guard(kind)
        return kind

    return decorate


def _new(constructor: Any) -> Any:
    """A `__new__` that hears of a subclass whose own constructor would not know what `remote_group` is."""

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        ours = {"remote_group", "device_mesh"} & kwargs.keys()
        if ours and not hasattr(cls.__init__, "__twinkle_init__"):
            known = inspect.signature(cls.__init__).parameters.values()
            if not any(entry.name in ours or entry.kind is inspect.Parameter.VAR_KEYWORD for entry in known):
                raise _undecorated(cls)
        return object.__new__(cls)

    # What the class is called with is what its constructor takes.
    new.__wrapped__ = constructor  # type: ignore[attr-defined]
    return staticmethod(new)


def _undecorated(kind: type) -> PlanError:
    return PlanError(
        f"{kind.__qualname__} has a constructor of its own: decorate it with @remote_class() as well",
        kind=kind.__qualname__,
    )


def construct(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any], offered: dict[str, Any]) -> Any:
    """Builds the object itself, in this process; of what is offered its constructor gets what it has parameters for."""
    unguard_reading(kind)
    mesh = offered["device_mesh"]
    maker: Any = kind
    instance = maker.__new__(kind)
    original: Any = getattr(kind.__init__, "__twinkle_init__", kind.__init__)  # type: ignore[misc]
    keep(instance, _BUILDING, True)
    keep(instance, "device_mesh", mesh if mesh is not None else current.device_mesh)
    original(instance, *args, **{**_accepted(original, **offered), **kwargs})
    return instance


def _begin(  # noqa: PLR0917 - what a constructor was called with
    self: Any,
    execute: str,
    making: Declaration,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    group: str | None,
    mesh: DeviceMesh | None,
) -> None:
    session = current_session()
    if session is None and (mesh is not None or group is not None) and not current.positions:
        what = "device_mesh" if mesh is not None else "remote_group"
        raise PlacementError(
            f"{type(self).__qualname__}: {what} was given before initialize(), so nothing could honour it; call "
            "twinkle.initialize(...) first",
            kind=type(self).__qualname__,
        )
    if current.positions and group is not None:
        raise PlacementError(f"{type(self).__qualname__}: a worker makes no remote components; make them on the driver")
    if session is not None and group is not None:
        session.check_group(group)
    if session is not None and session.mode == "ray" and group is not None:
        from twinkle.mesh import DeviceMesh

        owner = session.ray_groups[group]
        given = mesh is not None
        first = execute == "first"
        if first:
            own = DeviceMesh.from_sizes(dp_size=1)
        else:
            own = mesh or session.device_mesh or DeviceMesh.from_sizes(dp_size=owner.workers)
        if first and given:
            kwargs = {**kwargs, **_accepted(getattr(type(self).__init__, "__twinkle_init__"), device_mesh=mesh)}  # noqa: B009
        lazy = session.lazy_collect
        component = owner.component(
            type(self),
            args,
            kwargs,
            own,
            making,
            number=session.next_number(),
            first=first,
            given=given and not first,
            lazy=lazy,
        )
        keep(self, COMPONENT, component)
        keep(self, "device_mesh", own)
        guard_reading(type(self))
        return
    from twinkle.remote.engine_local import LocalComponent

    local: LocalComponent | None = None
    if session is not None and current.mode != "worker":
        own_mesh = mesh or (current.device_mesh if session.mode == "local" else None)
        local = LocalComponent(self, own_mesh, execute, lazy=session.lazy_collect)
    keep(self, _BUILDING, True)
    seen = local.mesh if local is not None and execute == "first" else mesh
    keep(self, "device_mesh", seen if seen is not None else current.device_mesh)
    original = type(self).__init__.__twinkle_init__
    build = functools.partial(
        original, self, *args, **_accepted(original, device_mesh=mesh, remote_group=group), **kwargs
    )
    if local is None:
        build()
    else:
        local.build(build)
        keep(self, COMPONENT, local)


def _accepted(function: Any, **offered: Any) -> dict[str, Any]:
    """What of the offered keywords a function has a parameter for, and was given or cannot do without."""
    parameters = inspect.signature(function).parameters
    return {
        name: value
        for name, value in offered.items()
        if name in parameters and (value is not None or parameters[name].default is inspect.Parameter.empty)
    }
