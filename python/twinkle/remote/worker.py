"""The process of one worker of a device group: it holds component objects and runs their methods on rows it is handed.

Ray makes one actor of `Host` per worker. Nothing here imports torch: only the user's classes do, after the
environment of the worker is set.
"""

from __future__ import annotations

import os
import pickle
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError
from twinkle.remote import rows
from twinkle.remote.arguments import check_travels, filled
from twinkle.remote.drawing import drawing
from twinkle.remote.failing import sendable_errors
from twinkle.remote.lookups import Leaf
from twinkle.remote.masking import Delivery
from twinkle.remote.messages import Fill, Reply, Request
from twinkle.remote.ownership import copied
from twinkle.remote.parcels import digest_of
from twinkle.remote.pickling import Packed, light, stuck, travelling
from twinkle.remote.results import Cut, split_result
from twinkle.remote.seeding import Generators, seed_loaded
from twinkle.remote.shares import Share, set_share
from twinkle.remote.signature import method_of
from twinkle.remote.trees import SCALARS
from twinkle.runtime import current

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinkle.mesh import DeviceMesh
    from twinkle.remote.handover import Cuts
    from twinkle.remote.signature import Declaration

__all__ = ["Host", "Stored", "run"]


#: What a reply may say that nobody's class is in.
_BARE = SCALARS | {Leaf}


@dataclass(frozen=True, eq=False)
class Stored:
    """The rows of one shard of one result, as they lie in the object store."""

    identity: int
    shard: int
    leaves: list[Packed]
    rows: int


def stored(identity: int, shard: int, leaves: Sequence[Any]) -> Stored:
    """Rows as they are put into the object store."""
    counts = [rows.count(leaf) or 0 for leaf in leaves]
    return Stored(identity, shard, list(map(Packed, leaves)), max(counts, default=0))


@dataclass(frozen=True, eq=False)
class _Component:
    instance: Any
    positions: tuple[int, ...]
    mesh: DeviceMesh
    #: What it draws from; None where nothing is seeded.
    generators: Generators | None = None
    #: Its methods that were called before, each with what it declares.
    methods: dict[str, tuple[Declaration, Any]] = field(default_factory=dict)


class Host:
    """One worker: Ray makes an actor of this class."""

    def __init__(self) -> None:
        self.components: dict[str, _Component] = {}
        self.seed: int | None = None
        #: Whose generators are in place: those of the component that ran last, which mostly runs next.
        self.drawing: Generators | None = None

    def prepare(self, environment: Mapping[str, str], seed: int | None) -> dict[str, Any]:
        """Takes on the worker's environment, before any user class is loaded, and says who this is."""
        for name, value in environment.items():
            # What a person has set for the machine, such as a port range, is not overridden.
            if name.startswith("HCCL_") and name in os.environ:
                continue
            os.environ[name] = value
        current.positions, current.mode, self.seed = (), "worker", seed
        return {"pid": os.getpid(), "environment": dict(environment)}

    @sendable_errors
    def build(self, name: str, recipe: bytes, positions: tuple[int, ...], mesh: DeviceMesh, number: int = 0) -> None:
        """Makes one component object; `number` is that of the component in its job."""
        from twinkle.remote.classes import construct

        current.positions, current.positions_mesh, current.device_mesh = positions, mesh, mesh
        self._draw_from(None)
        seed_loaded(self.seed)
        kind, args, kwargs, offered = pickle.loads(recipe)
        generators = None
        if self.seed is not None:
            data_rank = mesh.data_rank_of(mesh.rank_at(positions[0])) or 0
            generators = Generators(self.seed, number, data_rank)
        with generators.building() if generators else nullcontext():
            instance = construct(kind, args, kwargs, offered)
        self.components[name] = _Component(instance, positions, mesh, generators)

    def drop(self, name: str) -> None:
        """Forgets a component."""
        self.components.pop(name, None)

    @sendable_errors
    def call(self, message: bytes, *given: Any) -> Any:
        """Runs one method; `given` are the arguments that were too large for the message, then the pieces."""
        asked, shared, apart = pickle.loads(message)
        request = Request.arrived(asked)
        for at, blob in zip(apart, given, strict=False):
            shared[at] = blob
        (template, plain, request.layout), pieces = shared, given[len(apart) :]
        component = self.components[request.component]
        current.positions, current.positions_mesh = component.positions, component.mesh
        current.device_mesh = component.mesh
        for piece, expected in zip(pieces, request.expected, strict=True):
            _check_piece(piece, expected)
        args, kwargs = (None, {}) if template is None else pickle.loads(template)
        found = None if plain is None else pickle.loads(plain)
        if request.method not in component.methods:
            component.methods[request.method] = method_of(type(component.instance), request.method)
        declaration, method = component.methods[request.method]
        delivery, opened = Delivery(declaration), _Opened(pieces)
        values = [_filled(fill, found, opened, delivery) for fill in request.fills]
        delivery.settled()
        args = tuple(values) if args is None else filled(args, values)
        kwargs = filled(kwargs, values) if kwargs else kwargs
        self._draw_from(component.generators)
        reply = run(component.instance, method, declaration, args, kwargs, request)
        reply.received = sum(piece.rows for piece in pieces) if pieces else 0
        return self._kept(request, reply) if request.keep and reply.rows is not None else _brought(request, reply)

    @staticmethod
    def _kept(request: Request, reply: Reply) -> Reply:
        """A reply whose rows stay in the object store, as one piece, or as one per shard for whom they are made."""
        import ray

        leaves = reply.rows
        reply.layout = layout = next((leaf.layout for leaf in leaves if isinstance(leaf, Cut)), None)
        with travelling(_by_name(reply), request.method):
            if layout is None:
                reply.rows = [ray.put(stored(request.identity, request.shard, leaves))]
            else:
                cut = [[layout.take(leaf.value, shard) for leaf in leaves] for shard in range(layout.shards)]
                reply.rows = [ray.put(stored(layout.id % 2**64, at, those)) for at, those in enumerate(cut)]
            if type(reply.rest) not in _BARE:
                reply.rest = Packed(reply.rest)
        return reply

    @sendable_errors
    def pieces(
        self, found: Stored, leaf: int, bundles: Sequence[Cuts], expected: tuple[int, int], *, put: bool
    ) -> list[Any]:
        """Rows of what is stored here, one value per bundle: as references to what stays here, or the rows."""
        import ray

        _check_piece(found, expected)
        # A view would carry the whole array it looks into.
        whole = found.leaves[leaf].opened(own=False)
        cut = [_own(rows.take(whole, cuts)) for cuts in bundles]
        if put:
            return [ray.put(stored(found.identity, found.shard, [piece])) for piece in cut]
        return list(map(Packed, cut))

    @sendable_errors
    def mapped(  # noqa: PLR0917 - one call, spelled out
        self, found: Stored, leaf: int, cuts: Cuts, function: bytes, expected: tuple[int, int], seed: int | None
    ) -> tuple[list[Any], list[int] | None]:
        """Applies a function, which draws by the seed, to stored rows and keeps the results here."""
        import ray

        _check_piece(found, expected)
        apply = pickle.loads(function)
        self._draw_from(None)
        own = copied(rows.take(found.leaves[leaf].opened(own=False), cuts))
        with nullcontext() if seed is None else drawing(self.seed or 0, seed):
            made = [apply(row) for row in rows.each(own)]
        with travelling(made, "map", "its result"):
            return [ray.put(stored(found.identity, found.shard, [made]))], rows.lengths(made)

    def _draw_from(self, generators: Generators | None) -> None:
        """Makes these the generators in place; None is those of the process."""
        if self.drawing is not generators:
            if self.drawing is not None:
                self.drawing.leave()
            if generators is not None:
                generators.enter()
            self.drawing = generators
        if generators is not None:
            generators.freshen()

    def port(self) -> tuple[str, int]:
        """An address of this node and a port that is free there now."""
        import socket

        import ray

        address = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        with socket.socket() as free:
            free.bind((address, 0))
            return address, int(free.getsockname()[1])


def run(  # noqa: PLR0917 - one call, spelled out
    instance: Any,
    method: Any,
    declaration: Declaration,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    request: Request,
) -> Reply:
    """Calls a method with its share set, and takes the rows out of its result."""
    before = set_share(None if request.layout is None else Share(request.layout, request.shard))
    try:
        value = method(instance, *args, **kwargs)
    finally:
        set_share(before)

    def rows_given() -> int:
        return int(Share(request.layout or b"", request.shard).layout.sizes[request.shard])

    rest, leaves, names = split_result(value, declaration, rows_given if request.layout is not None else None)
    if request.component and request.keep is not None and type(rest) not in _BARE:
        check_travels(rest, declaration.name)
    digest = digest_of((rest, leaves)) if request.digest else None
    if request.keep is None:
        # Another worker has the result; this one's may be anything, None included.
        return Reply(None, [], [], [], None, digest, 0)
    plain = [leaf.value if isinstance(leaf, Cut) else leaf for leaf in leaves]
    counts = list(map(rows.count, plain))
    # Rows that come back say how long they are themselves.
    lengths = list(map(rows.lengths, plain)) if request.keep else []
    if not request.keep or not request.component:
        # Rows that come back, or stay in this very process, are not cut.
        leaves = plain
    kinds = tuple(map(rows.kind, plain))
    return Reply(rest, names, counts, lengths, leaves or None, digest, 0, None, kinds)


def _brought(request: Request, reply: Reply) -> Any:
    """A reply with its rows in it."""
    try:
        made = light(reply.told())
        if isinstance(made, Packed) and made.head is None:
            # There are references of Ray's in it, which it pickles itself: nothing else is left to it.
            reply.rest, reply.rows = Packed(reply.rest), reply.rows and list(map(Packed, reply.rows))
            return reply
    except Exception as error:
        refusal = stuck(error, _by_name(reply), request.method)
        raise refusal from refusal.__cause__
    return made


def _by_name(reply: Reply) -> dict[str, Any]:
    """What may not travel, by the names that a refusal gives it."""
    leaves = zip(reply.names, reply.rows or (), strict=False)
    return {**{f"its result {name!r}": leaf for name, leaf in leaves}, "its result": reply.rest}


class _Opened:
    """The pieces that one call was handed, each leaf opened once: the call's own rows, not those that are stored."""

    def __init__(self, pieces: Sequence[Stored]) -> None:
        self.pieces, self._found = pieces, dict[tuple[int, int], Any]()

    def __call__(self, piece: tuple[int, int, tuple[int, int]]) -> Any:
        which, leaf, cut = piece
        if (which, leaf) not in self._found:
            self._found[which, leaf] = self.pieces[which].leaves[leaf].opened()
        return rows.take(self._found[which, leaf], [cut])


def _filled(fill: Fill, plain: Any, opened: _Opened, delivery: Delivery) -> Any:
    if fill.absent:
        return None
    if fill.parts:
        parts = [_filled(part, plain, opened, delivery) for part in fill.parts]
        return list(zip(*map(rows.each, parts), strict=True))
    if fill.plain is not None:
        return delivery.rows(plain[fill.plain], fill.name, fill.real)
    found = [opened(piece) for piece in fill.pieces]
    key, pad_values = fill.rule
    value = rows.join(found, pad_values, key) if found else None
    real = rows.count(value) or 0
    if fill.pads:
        pads = [rows.take(value, [(pad, pad + 1)]) if isinstance(pad, int) else opened(pad) for pad in fill.pads]
        value = rows.join([value, *pads] if found else pads, pad_values, key)
    return delivery.rows(value, fill.name, real)


def _check_piece(found: Stored, expected: tuple[int, int]) -> None:
    if (found.identity, found.shard) != expected:
        raise PlanError(
            f"a piece of shard {found.shard} of layout {found.identity:x} arrived where shard "
            f"{expected[1]} of layout {expected[0]:x} was planned",
            shard=found.shard,
        )


def _own(piece: Any) -> Any:
    if hasattr(piece, "clone"):
        return piece.clone()
    return piece.copy() if hasattr(piece, "base") and piece.base is not None else piece
