"""Where a call on Ray finds the rows of a handle: kept pieces, and the holder nearest to each reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinkle.plan import route
from twinkle.remote.counting import traffic
from twinkle.remote.drawing import seeds_of_map
from twinkle.remote.handle import Piece, Store, replaced
from twinkle.remote.handover import Cuts, hand_over
from twinkle.remote.messages import Fill
from twinkle.remote.pickling import packed, travelling
from twinkle.remote.waiting import Deadline, results_of
from twinkle.remote.widening import rule_as_given

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.plan import Layout, Placement
    from twinkle.remote.engine_ray import RayComponent
    from twinkle.remote.handle import Sharded
    from twinkle.remote.handover import Read

__all__ = ["Keeper", "Plan", "Sources", "cut_at_source"]


class Keeper:
    """Reads what the workers of one call have kept."""

    def __init__(self, component: RayComponent, placement: Placement | None, shards: tuple[int, ...]) -> None:
        self.component, self.placement, self.shards = component, placement, shards

    @staticmethod
    def read(asked: Sequence[tuple[Piece, Cuts]], timeout: float | None = None) -> list[Any]:
        """Pulls rows of some pieces, of one call or of several, into this process."""
        wanted = [(piece, piece.store.holders[piece.shard][0], cuts) for piece, cuts in asked]
        found = [one.opened() for one in _asked(wanted, Deadline(timeout), "reading rows", put=False)]
        traffic.driver_rows += sum(stop - start for _, cuts in asked for start, stop in cuts)
        return found

    @staticmethod
    def mapped(asked: Sequence[tuple[Piece, Cuts]], function: Any, timeout: float | None = None) -> list[Piece]:
        """Applies a function to rows of some pieces, where they are; what it made is stored there as new pieces."""
        deadline = Deadline(timeout)
        with travelling(function, "map", "the function"):
            blob = packed(function)
        pieces = [piece for piece, _ in asked]
        calls = [(piece, cuts, *holder) for piece, cuts in asked for holder in piece.store.holders[piece.shard]]
        # Replicas draw alike, by the number of their piece.
        places = [at for at, piece in enumerate(pieces) for _ in piece.store.holders[piece.shard]]
        script = pieces[0].store.keeper.component.group.seed
        seeds = None if script is None else seeds_of_map(script)
        references = [
            _host(piece, worker, "map").mapped.remote(
                reference, piece.leaf, cuts, blob, _expected(piece), None if seeds is None else seeds(at)
            )
            for (piece, cuts, worker, reference), at in zip(calls, places, strict=True)
        ]
        found = results_of(references, deadline, "map", lambda at: _told(calls[at][0], calls[at][2]))
        holders: dict[Piece, list[tuple[int, Any]]] = {}
        lengths: dict[Piece, list[int] | None] = {}
        for (piece, _, worker, _), ((reference,), known) in zip(calls, found, strict=True):
            holders.setdefault(piece, []).append((worker, reference))
            lengths[piece] = known
        return replaced(pieces, [tuple(holders[piece]) for piece in pieces], [lengths[piece] for piece in pieces])


def _host(piece: Piece, worker: int, method: str) -> Any:
    group = piece.store.keeper.component.group
    group.check_alive(method)
    return group.hosts[worker]


def _expected(piece: Piece) -> tuple[int, int]:
    """What a stored piece says of itself, where it is the right one: its layout and its shard of that."""
    return piece.store.identity, piece.store.keeper.shards[piece.shard]


def _told(piece: Piece, worker: int) -> dict[str, Any]:
    """What a failure says about who was asked for a piece."""
    node = piece.store.keeper.component.group.node_of(worker)
    return {"worker": worker, "node": node, "rows_text": f"shard {piece.shard}"}


def _asked(
    wanted: Sequence[tuple[Piece, tuple[int, Any], Cuts]], deadline: Deadline, method: str, *, put: bool
) -> list[Any]:
    """Has holders cut bundles of their pieces, all at once; one call for each piece of each holder."""
    calls: dict[tuple[Piece, int], list[int]] = {}
    for at, (piece, (worker, _), _) in enumerate(wanted):
        calls.setdefault((piece, worker), []).append(at)
    references: list[Any] = []
    for (piece, worker), places in calls.items():
        reference, bundles = wanted[places[0]][1][1], [wanted[at][2] for at in places]
        remote = _host(piece, worker, method).pieces.remote
        references.append(remote(reference, piece.leaf, bundles, _expected(piece), put=put))
    asked = list(calls)
    found = results_of(references, deadline, method, lambda at: _told(*asked[at]))
    made: list[Any] = [None] * len(wanted)
    for places, values in zip(calls.values(), found, strict=True):
        for at, value in zip(places, values, strict=True):
            made[at] = value
    return made


class Sources:
    """The objects that one call of one worker is handed, each once."""

    def __init__(self, component: RayComponent, worker: int) -> None:
        self.component, self.worker = component, worker
        self.references: list[Any] = []
        self.expected: list[tuple[int, int]] = []
        self._places: dict[Any, int] = {}
        self._makers: list[tuple[Piece, int]] = []

    def place(self, reference: Any, expected: tuple[int, int], piece: Piece, holder: int) -> int:
        """The number of an object among those handed over; `holder` is the worker that has put it there."""
        if reference not in self._places:
            self._places[reference] = len(self.references)
            self.references.append(reference)
            self.expected.append(expected)
            self._makers.append((piece, holder))
        return self._places[reference]

    def maker(self, number: str) -> dict[str, Any] | None:
        """Who has put an object there, by the number that Ray gives it; None where it was not handed over."""
        for reference, (piece, holder) in zip(self.references, self._makers, strict=True):
            if reference.hex() == number:
                group = piece.store.keeper.component.group
                return {
                    "worker": holder,
                    "group": group.name,
                    "node": group.node_of(holder),
                    "shard": piece.store.keeper.shards[piece.shard],
                }
        return None


class Plan:
    """The hand-over of one handle in one call.

    Every worker gets exactly the rows it needs: a piece that is needed whole as it is, of any other a bundle that the
    nearest holder cuts.
    """

    def __init__(self, call: Any, handle: Sharded, layout: Layout) -> None:
        self.handle, self.over = handle, hand_over(handle.layout, layout)
        self.declared = call.declaration.pad_values
        self.stored = handle.layout.stored_sizes.tolist()
        self.nearest: dict[tuple[int, int], int] = {}
        for store in dict.fromkeys(piece.store for piece in handle.pieces):
            store.keeper.component.group.check_alive(call.declaration.name)
            self._find_nearest(call, store, layout)
        #: What has been cut, by piece, holder and cuts.
        self.cut: dict[tuple[int, int, Cuts], Any] = {}

    def wanted(self, worker: int, shard: int) -> list[tuple[int, int, Cuts]]:
        """The bundles that have to be cut for one worker of a target shard: by piece, holder and cuts."""
        bundles = self.over.bundles[shard].items()
        return [(at, self.holder(at, worker)[0], cuts) for at, cuts in bundles if not self._is_whole(at, cuts)]

    def fill(self, name: str, worker: int, shard: int, sources: Sources) -> Fill:
        """How one worker puts its rows together."""
        origins: dict[int, tuple[int, int]] = {}
        for at, cuts in self.over.bundles[shard].items():
            piece, (holder, reference) = self.handle.pieces[at], self.holder(at, worker)
            leaf = piece.leaf
            if not self._is_whole(at, cuts):
                reference, leaf = self.cut[at, holder, cuts], 0
            origins[at] = (sources.place(reference, _expected(piece), piece, holder), leaf)

        def located(read: Read) -> tuple[int, int, tuple[int, int]]:
            at, start, stop = read
            return *origins[at], (start, stop)

        pieces = tuple(map(located, self.over.reads[shard]))
        pads = tuple(pad if isinstance(pad, int) else located(pad) for pad in self.over.pads[shard])
        rule = rule_as_given(self.handle.name, self.handle.pad_values, name, self.declared)
        return Fill(name, pieces=pieces, pads=pads, rule=rule)

    def holder(self, at: int, worker: int) -> tuple[int, Any]:
        """Who hands a piece to a worker: its number and its reference."""
        piece = self.handle.pieces[at]
        those: Sequence[tuple[int, Any]] = piece.store.holders[piece.shard]
        chosen = self.nearest.get((at, worker))
        return next((holder for holder in those if holder[0] == chosen), those[0])

    def _is_whole(self, at: int, cuts: Cuts) -> bool:
        return cuts == ((0, self.stored[at]),)

    def _find_nearest(self, call: Any, store: Store, layout: Layout) -> None:
        """Where a shard of one store has several holders, the one that each worker reads from."""
        import numpy

        source, target = store.keeper.placement, call.target.placement
        if source is None or target is None or all(len(those) == 1 for those in store.holders):
            return
        if layout.shards != target.shards:
            return
        here, there = store.keeper.component, call.component
        same = here.group is there.group
        processes = [worker if same and worker < source.workers else -1 for worker in range(target.workers)]
        nodes = [[c.group.node_of(worker) for worker in range(p.workers)] for c, p in ((here, source), (there, target))]
        moves = numpy.concatenate([self.handle.layout.reshard(layout), self.handle.layout.pad_moves(layout)])
        shards = [store.keeper.shards[p.shard] if p.store is store else -1 for p in self.handle.pieces]
        moves[:, 0] = numpy.array(shards)[moves[:, 0]]
        routed = route(moves[moves[:, 0] >= 0], source, target, processes, nodes[0], nodes[1]).tolist()
        shard_of = source.shard_of_worker.tolist()
        chosen = {(shard_of[worker], to): worker for worker, _, to, _, _ in reversed(routed)}
        for at, shard in enumerate(shards):
            found = {(at, to): chosen[shard, to] for to in range(target.workers) if (shard, to) in chosen}
            self.nearest |= found


def cut_at_source(call: Any, readers: Sequence[tuple[Plan, int, int]]) -> None:
    """Has the holders cut what these readers need, each bundle once, and waits for all of them together.

    A reader is a plan, a worker and its target shard. What comes back are references to objects of the holders: a cut
    that were returned itself would travel through the driver's memory when it is small.
    """
    wanted: dict[tuple[Plan, tuple[int, int, Cuts]], tuple[Piece, tuple[int, Any], Cuts]] = {}
    for plan, worker, shard in readers:
        for key in plan.wanted(worker, shard):
            wanted[plan, key] = (plan.handle.pieces[key[0]], plan.holder(key[0], worker), key[2])
    found = _asked(list(wanted.values()), call.deadline, f"cutting rows for {call.declaration.name}", put=True)
    for (plan, key), reference in zip(wanted, found, strict=True):
        plan.cut[key] = reference
