"""Calls on components that live in this process, alone or as one of the processes of a launcher.

The same declarations hold as on Ray. Under a launcher every rank makes the same calls: rows go from rank to rank by one
all-to-all per handle, results are joined on every rank, and ranks outside a component's mesh take part with empty
hands. Inside a method this process is a worker, as on Ray: its own remote methods are plain methods there.
"""

from __future__ import annotations

import pickle
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError, RemoteCallError
from twinkle.plan import Layout, route
from twinkle.platform import Platform
from twinkle.remote import rows as row_tools
from twinkle.remote.arguments import Part, Prepared, dispatched, filled, prepare
from twinkle.remote.brought import Brought, inner_part, is_own
from twinkle.remote.counting import traffic
from twinkle.remote.exchange import Exchange, UnreadableError, exchange
from twinkle.remote.graphs import Known, without_graphs
from twinkle.remote.handle import Sharded, Store
from twinkle.remote.handover import hand_over
from twinkle.remote.keeping import Keeper, check_ranks, described, key_of
from twinkle.remote.lookups import Leaf, check_alike
from twinkle.remote.masking import Delivery
from twinkle.remote.messages import Reply, Request
from twinkle.remote.results import combined
from twinkle.remote.seeding import Generators
from twinkle.remote.session import current_session
from twinkle.remote.signature import method_of
from twinkle.remote.split import alike, end_to_end, layout_of
from twinkle.remote.turns import turn
from twinkle.remote.waiting import Deadline, raise_told, rows_told, told_by
from twinkle.remote.worker import run
from twinkle.runtime import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from twinkle.mesh import DeviceMesh
    from twinkle.remote.signature import Declaration

__all__ = ["LocalComponent"]


class LocalComponent:
    """One component object of this process."""

    def __init__(self, instance: Any, mesh: DeviceMesh | None, execute: str, *, lazy: bool) -> None:
        from twinkle.mesh import DeviceMesh

        self.instance, self.execute, self.lazy, self.session = instance, execute, lazy, current_session()
        world = Platform.get_world_size() if Platform.get_rank() >= 0 else 1
        self.peers = world > 1 and mesh is not None
        if mesh is None or not self.peers:
            # Alone, this process holds every row of every mesh.
            mesh = DeviceMesh.from_sizes(dp_size=1)
        else:
            check_ranks(mesh, type(instance).__qualname__)
        self.mesh = mesh if execute == "all" else DeviceMesh.from_axes({"dp": 1}, offset=mesh.rank_at(0))
        self.rank = Platform.get_rank() if self.peers else 0
        self.position = self.mesh.position_of(self.rank)
        #: Which component of the job it is, the same number on every rank.
        self.number = 0
        seed = None if self.session is None else self.session.seed
        self.generators: Generators | None = None
        if self.session is not None and seed is not None:
            self.generators = Generators(seed, self.session.next_number(), self.mesh.data_rank_of(self.rank) or 0)

    def build(self, make: Callable[[], Any]) -> None:
        """Makes the object where it has a place; under a launcher what is raised on one rank is raised on all."""
        failure, name = None, type(self.instance).__qualname__
        try:
            if self.position is not None:
                with (
                    self.inside(name, f"makes {name}"),
                    self.generators.building() if self.generators else nullcontext(),
                ):
                    make()
        except BaseException as error:
            if not self.peers:
                raise
            failure = error
        peers = exchange() if self.peers else None
        if peers is None:
            return
        with peers.during(name, None, f"makes {name}"):
            self.number = peers.count
            told = peers.gathered(told_by(failure))
        raise_told(f"{name}.__init__", told, failure, self.rank, lambda rank: _place(self.mesh, rank))

    def call(self, declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs one method here, and joins its results with those of the other ranks."""
        if self.peers and current_session() is not self.session:
            raise RemoteCallError(
                f"{declaration.name}: the job that the component belongs to was shut down", method=declaration.name
            )
        peers = exchange() if self.peers else None
        if peers is not None:
            doing = f"calls {declaration.name} (component {self.number})"
            with peers.during(declaration.name, declaration.timeout, doing):
                return _Call(self, declaration, peers).run(args, kwargs)
        deadline = Deadline(declaration.timeout)
        result = _Call(self, declaration, None).run(args, kwargs)
        if deadline.left == 0:
            # Nobody else could end the method in time; what comes too late counts as little as anywhere.
            raise RemoteCallError(
                f"{declaration.name} was not done after {deadline.seconds} s",
                method=declaration.name,
                timeout=deadline.seconds,
            )
        return result

    @contextmanager
    def inside(self, name: str, doing: str) -> Iterator[None]:
        """While a method or the constructor runs, this process is a worker of the component, as it is on Ray.

        Refused while another thread is in a component; `doing` says in words what this one does.
        """
        with turn(name, doing):
            before = current.device_mesh, current.positions, current.positions_mesh
            mode, thread = current.mode, current.thread
            current.thread, current.mode = threading.get_ident(), "worker"
            if self.position is not None and (self.peers or self.execute == "first"):
                # Alone, one process stands for all positions of a mesh of any size, and has none of its own.
                current.device_mesh = current.positions_mesh = self.mesh
                current.positions = (self.position,)
            try:
                yield
            finally:
                current.device_mesh, current.positions, current.positions_mesh = before
                current.mode, current.thread = mode, thread


class _Call:
    def __init__(self, component: LocalComponent, declaration: Declaration, peers: Exchange | None) -> None:
        self.component, self.declaration, self.peers = component, declaration, peers
        from twinkle.mesh import DeviceMesh

        self.mesh = component.mesh
        if declaration.execute == "first":
            self.mesh = DeviceMesh.from_axes({"dp": 1}, offset=self.mesh.rank_at(0))
        size = self.mesh.world_size
        placed = DeviceMesh.from_sizes(dp_size=size) if declaration.dispatch == "slice" else self.mesh
        self.placement = placed.placement(1, None, declaration.holders)
        self.ranks = [self.mesh.rank_at(position) for position in range(size)]
        self.shard_of = self.placement.shard_of_worker.tolist()
        self.position = self.mesh.position_of(component.rank)
        self.shard = None if self.position is None else self.shard_of[self.position]
        self.delivery = Delivery(declaration)
        self._known: Known = {}
        #: What went wrong on this rank while the others went on, who hear of it with the results.
        self.failure: BaseException | None = None

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        declaration = self.declaration
        prepared = self._prepared(args, kwargs)
        layout = self._layout(prepared)
        values = [self._value(part, layout) for part in prepared.parts]
        try:
            self.delivery.settled()
        except PlanError as error:
            self._note(error)
        if (
            declaration.fan_out == "lead"
            and self.shard is not None
            and self.placement.lead[self.shard] != self.position
        ):
            # The lead hands them on itself.
            values = [value if part.whole else None for part, value in zip(prepared.parts, values, strict=True)]
        reply = None if self.position is None or self.failure else self._tried(prepared, values, layout)
        return self._collected(reply, layout)

    def _prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Prepared:
        declaration = self.declaration
        try:
            if callable(declaration.dispatch):
                workers, worker = self.mesh.world_size, self.position or 0
                args, kwargs = dispatched(declaration, workers, worker, args, kwargs, self.mesh)
            return prepare(declaration, args, kwargs, mine=self.peers is not None)
        except Exception as error:
            # The others may have been given what can be called.
            if self.peers is not None:
                self.peers.refuse(error)
            raise

    @property
    def takes_all(self) -> bool:
        """Whether every worker's result is collected, not one per shard."""
        collect = self.declaration.collect
        return callable(collect) or collect == "none" or self.declaration.collect_from == "all"

    def _tried(self, prepared: Prepared, values: list[Any], layout: Layout | None) -> Reply | None:
        declaration = self.declaration
        shard = self.shard or 0
        reader = self.position in self.placement.holders(shard).tolist()
        request = Request(
            "",
            declaration.name,
            (),
            shard,
            None if layout is None else pickle.dumps(layout),
            True if reader or self.takes_all else None,
            0,
            (),
            declaration.verify_replicas,
        )
        _, method = method_of(type(self.component.instance), declaration.name)
        args, kwargs = filled(prepared.args, values), filled(prepared.kwargs, values)
        try:
            generators, name = self.component.generators, declaration.name
            with self.component.inside(name, f"calls {name}"), generators.drawing() if generators else nullcontext():
                reply = run(self.component.instance, method, declaration, args, kwargs, request)
            known: Known = {}
            return replace(reply, rows=reply.rows and [without_graphs(rows, known) for rows in reply.rows])
        except BaseException as error:  # an interrupt as well: the others wait for this rank
            self._note(error)
            return None

    def _note(self, error: BaseException) -> None:
        """Keeps an error until the others can be told of it; alone it is raised as it is."""
        if self.peers is None:
            raise error
        self.failure = self.failure or error

    # Rows on their way to this rank.

    def _layout(self, prepared: Prepared) -> Layout | None:
        if not prepared.cut:
            return None
        if self.peers is not None:
            brought = Brought(self.declaration, self.peers, self.placement, self.ranks)
            sizes = brought.sizes(prepared.cut, inside=self.position is not None)
            if sizes is not None:
                return self._own_rows(sizes, prepared.cut)
        try:
            return layout_of(self.declaration, prepared.cut[0].rows, self.placement.shards)
        except Exception as error:
            # A split of the user's own may fail here alone.
            if self.peers is not None:
                self.peers.refuse(error)
            raise

    def _own_rows(self, sizes: list[int], cut: list[Part]) -> Layout:
        """The layout of rows that every rank brings itself."""
        layout = end_to_end(sizes)
        mine = next(part for part in cut if is_own(part))
        for part in cut:
            if not is_own(part) and part.rows != layout.n:
                raise PlanError(
                    f"{self.declaration.name}: all ranks together brought {layout.n} rows of {mine.name}, and "
                    f"{part.name} has {part.rows}",
                    lengths=[layout.n, part.rows],
                )
        if not self.declaration.allow_empty:
            layout.require_rows()
        return layout

    def _value(self, part: Part, layout: Layout | None) -> Any:
        if part.kind == "zip":
            inner = [self._value(inner_part(part, value), layout) for value in part.value.parts]
            # Ranks outside the mesh, and those where it has failed, took part in the hand-over and have nothing.
            if self.failure or (layout is not None and self.shard is None):
                return None
            return list(zip(*map(row_tools.each, inner), strict=True))
        if part.kind == "handle":
            part = replace(part, value=part.value.given_as(part.name, self.declaration.pad_values))
            return part.value.gather() if part.whole else self._handed(part, layout)
        if layout is None or self.shard is None:
            return part.value
        if self.peers is not None and not part.everybody:
            return self._given(lambda: part.value, part.name)
        if part.kind == "single":
            sizes, real = layout.sizes[self.shard], int(layout.real_sizes[self.shard])
            return self._given(lambda: part.value if sizes else [], part.name, real)
        if self.peers is None and not isinstance(part.value, (list, tuple)) and layout.real_sizes[0] == layout.sizes[0]:
            # Alone, the caller's array is the method's as well.
            return row_tools.leaf(layout.take(part.value, 0))
        return self._cut(part.name, part.value, layout)

    def _cut(self, name: str, rows: Any, layout: Layout) -> Any:
        """This rank's rows out of all."""
        shard = self.shard or 0
        return self._given(lambda: layout.take(rows, shard), name, int(layout.real_sizes[shard]))

    def _given(self, take: Callable[[], Any], name: str, real: int | None = None) -> Any:
        """Rows that are taken of what this process has, as the method is given them."""
        try:
            return self.delivery.rows(without_graphs(take(), self._known), name, real)
        except Exception as error:  # as what a user's rows raise when they are copied; the others go on to the results
            self._note(error)
            return None

    def _handed(self, part: Part, layout: Layout | None) -> Any:
        """This rank's rows of a handle."""
        handle: Sharded = part.value
        if layout is None:
            return handle.gather()
        stores = list(dict.fromkeys(piece.store for piece in handle.pieces))
        if self.peers is None or any(store.keeper.peers is None for store in stores):
            return self._cut(part.name, handle.gather(), layout)
        pads = hand_over(handle.layout, layout).pads
        import numpy

        moves = numpy.concatenate([handle.layout.reshard(layout), handle.layout.pad_moves(layout)])
        outgoing: list[list[Any]] = [[] for _ in range(self.peers.size)]
        me = self.component.rank
        for store, leaf in dict.fromkeys((piece.store, piece.leaf) for piece in handle.pieces):
            keeper: Keeper = store.keeper
            places = {rank: worker for worker, rank in enumerate(keeper.ranks)}
            same = [places.get(rank, -1) for rank in self.ranks]
            shards = [piece.shard if (piece.store, piece.leaf) == (store, leaf) else -1 for piece in handle.pieces]
            own = moves.copy()
            own[:, 0] = numpy.array(shards)[moves[:, 0]]
            for worker, start, to, at, length in route(
                own[own[:, 0] >= 0], keeper.placement, self.placement, same
            ).tolist():
                if keeper.ranks[worker] == me:
                    leaves = store.holders[keeper.shard_of[worker]][0][1]
                    rows = row_tools.take(leaves[leaf], [(start, start + length)])
                    # A pad may be several rows in one move; each is a piece of its own.
                    outgoing[self.ranks[to]] += _singles(at, rows, int(layout.real_sizes[self.shard_of[to]]))
        empty = self._empty(handle)
        try:
            incoming = self.peers.swapped(
                [(pieces, empty) for pieces in outgoing],
                f"rows of {part.name}",
                f"hands over as {part.name} {described(handle.pieces)}",
                (key_of(handle.pieces), handle.layout.id, layout.id),
            )
        except UnreadableError as error:
            self._note(error)
            return None
        if self.shard is None:
            return None
        pieces = sorted((piece for found, _ in incoming for piece in found), key=lambda piece: piece[0])
        traffic.moved_rows += sum(row_tools.count(piece) or 0 for _, piece in pieces)
        if not pieces:
            return next(one for _, one in incoming if one is not None)
        try:
            return self._joined(part, pieces, pads[self.shard], int(layout.real_sizes[self.shard]))
        except Exception as error:  # the others have their rows and go on to the results
            self._note(error)
            return None

    def _joined(self, part: Part, pieces: list[tuple[int, Any]], pads: list[Any], real: int) -> Any:
        """The rows and pads of this shard out of the pieces that arrived, each with the local row it begins at."""
        rule = part.value.pad_values, part.value.name
        found = [piece for at, piece in pieces if at < real]
        fetched = iter([piece for at, piece in pieces if at >= real])
        value = row_tools.join(found, *rule) if found else None
        if pads:
            made = [row_tools.take(value, [(pad, pad + 1)]) if isinstance(pad, int) else next(fetched) for pad in pads]
            value = row_tools.join([*found, *made], *rule)
        return self.delivery.rows(value, part.name, real)

    @staticmethod
    def _empty(handle: Sharded) -> Any:
        for store, shard, leaf in handle.pieces:
            leaves = store.holders[shard][0][1]
            if leaves is not None:
                return row_tools.take(leaves[leaf], [(0, 0)])
        return None

    # Results on their way back.

    def _collected(self, reply: Reply | None, layout: Layout | None) -> Any:
        leaves = None if reply is None else reply.rows
        told = self._told(reply, layout)
        if self.declaration.verify_replicas:
            self._compare(told)
        if self.takes_all:
            found, weights = list(range(self.mesh.world_size)), [self._weight(layout, shard) for shard in self.shard_of]
        else:
            found = [self.placement.holders(shard).tolist()[0] for shard in range(self.placement.shards)]
            weights = [self._weight(layout, shard) for shard in range(self.placement.shards)]
        bare = [told[self.ranks[worker] if self.peers is not None else 0][0] for worker in found]
        rests, collect = [reply.rest for reply in bare], self.declaration.collect
        if callable(collect):
            return collect(rests, self.component.mesh)
        if collect == "none":
            return rests

        def rows_of(leaf: Leaf) -> Any:
            return self._rows(leaf, bare, leaves, layout, found)

        return combined(rests, weights, self.declaration, rows_of, found)

    def _told(self, reply: Reply | None, layout: Layout | None) -> list[Any]:
        """What every rank has to say but for its rows, in rank order: its reply, and the digest of its result."""
        mine = None if reply is None else _bare(reply)
        digest = None if reply is None else reply.digest
        if self.peers is None:
            return [(mine, digest)]
        failure = self.failure
        about = "nothing" if mine is None else f"its result, a {type(mine.rest).__name__}"
        # A split of the user's own may have cut otherwise elsewhere.
        key = 0 if layout is None else layout.id
        told = self.peers.gathered((told_by(failure), mine, digest), about, "tells its results", key)

        def place(rank: int) -> dict[str, Any]:
            found = _place(self.mesh, rank)
            if layout is not None and found["worker"] is not None:
                found |= rows_told(layout.rows(self.shard_of[found["worker"]]).tolist())
            return found

        raise_told(self.declaration.name, [text for text, *_ in told], failure, self.component.rank, place)
        others = [said[1:] for said in told]
        # One's own result is the object itself.
        others[self.peers.rank] = mine, digest
        return others

    def _rows(self, leaf: Leaf, bare: Sequence[Reply], leaves: Any, layout: Layout | None, found: list[int]) -> Any:
        counts = [reply.counts[leaf.index] for reply in bare]
        told = {worker: bare[at].kinds[leaf.index] for at, worker in enumerate(found) if counts[at]}
        check_alike(self.declaration.name, leaf.name, told)
        if layout is None:
            made = end_to_end([count or 0 for count in counts])
        else:
            for shard, (count, expected) in enumerate(zip(counts, layout.sizes.tolist(), strict=True)):
                if count != expected:
                    raise PlanError(
                        f"{self.declaration.name}: the worker of shard {shard} returned {count} rows at {leaf.name!r}, "
                        f"expected {expected}, one for each row it was given",
                        shard=shard,
                        key=leaf.name,
                        expected=expected,
                        found=count,
                    )
            made = layout.settled()
        holders = tuple(((None, leaves if shard == self.shard else None),) for shard in range(made.shards))
        lengths = tuple(tuple(reply.lengths[at] for reply in bare) for at in range(len(bare[0].counts)))
        lazy = self.declaration.lazy_collect
        keep = not self.declaration.sync and (self.component.lazy if lazy is None else lazy)
        keeper = Keeper(lambda: self.peers, self.placement, self.ranks, self.declaration.name, last=not keep)
        kinds = next((reply.kinds for reply in bare if any(reply.counts)), bare[0].kinds)
        number = 0 if self.peers is None else self.peers.count
        pieces = Store(keeper, holders, number, lengths, kinds).pieces(leaf.index)
        handle = Sharded(made, pieces, leaf.name, self.declaration.pad_values)
        return handle if keep else handle.gather()

    def _compare(self, told: list[Any]) -> None:
        for shard in range(self.placement.shards):
            holders = self.placement.holders(shard).tolist()
            members = alike(self.mesh, self.placement.members(shard).tolist(), holders, 1)
            for member in members[1:]:
                ranks = [self.ranks[members[0]], self.ranks[member]]
                if told[ranks[0]][1] != told[ranks[1]][1]:
                    raise PlanError(
                        f"{self.declaration.name}: ranks {ranks[0]} and {ranks[1]} are replicas of shard {shard} and "
                        "returned different results",
                        shard=shard,
                        ranks=ranks,
                    )

    @staticmethod
    def _weight(layout: Layout | None, shard: int) -> float:
        return 1.0 if layout is None else float(layout.real_sizes[shard])


def _singles(at: int, piece: Any, real: int) -> list[tuple[int, Any]]:
    """A piece, or where it holds pads its rows one by one."""
    if at < real:
        return [(at, piece)]
    return [(at + step, row_tools.take(piece, [(step, step + 1)])) for step in range(row_tools.count(piece) or 0)]


def _bare(reply: Reply) -> Reply:
    """A reply without its rows."""
    return replace(reply, rows=None, digest=None, received=0)


def _place(mesh: DeviceMesh, rank: int) -> dict[str, Any]:
    """Who a rank is, for the words of an error."""
    worker = mesh.position_of(rank)
    coordinates = None if worker is None else mesh.coordinates(rank)
    return {"worker": worker, "coordinates": coordinates, "rank": rank, "node": None, "rows": None}
