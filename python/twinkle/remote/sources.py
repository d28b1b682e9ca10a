"""Where a call on Ray finds the rows of a handle: kept pieces, and the holder nearest to each reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinkle.plan import route
from twinkle.remote.counting import traffic
from twinkle.remote.handle import Store
from twinkle.remote.pickling import packed
from twinkle.remote.waiting import Deadline, Told, results_of
from twinkle.remote.worker import Fill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.plan import Layout, Placement
    from twinkle.remote.engine_ray import RayComponent
    from twinkle.remote.handle import Sharded
    from twinkle.remote.handover import HandOver, Read

__all__ = ["Keeper", "Plan", "Sources"]


class Keeper:
    """Reads what the workers of one call have kept."""

    def __init__(self, component: RayComponent, placement: Placement | None, shards: tuple[int, ...]) -> None:
        self.component, self.placement, self.shards = component, placement, shards

    def read(
        self, store: Store, leaf: int, wanted: dict[int, list[tuple[int, int]]], timeout: float | None = None
    ) -> dict[int, list[Any]]:
        """Pulls the named cuts of the named shards into this process."""
        deadline = Deadline(timeout)
        self.component.group.check_alive("reading rows")
        asked = list(wanted)
        references = []
        for shard in asked:
            worker, reference = store.holders[shard][0]
            host = self.component.group.hosts[worker]
            references.append(host.pieces.remote(reference, leaf, wanted[shard], put=False))
        found = results_of(references, deadline, "reading rows", lambda at: self._told(store, asked[at]))
        traffic.driver_rows += sum(stop - start for cuts in wanted.values() for start, stop in cuts)
        return dict(zip(asked, found, strict=True))

    def mapped(self, store: Store, leaf: int, function: Any, timeout: float | None = None) -> Store:
        """Applies a function to every stored row, where it is."""
        deadline = Deadline(timeout)
        self.component.group.check_alive("map")
        blob = packed(function)
        calls = [(shard, *holder) for shard, holders in enumerate(store.holders) for holder in holders]
        hosts = self.component.group.hosts
        references = [hosts[worker].mapped.remote(reference, leaf, blob) for _, worker, reference in calls]
        found = results_of(references, deadline, "map", lambda at: self._told(store, calls[at][0]))
        holders: list[list[Any]] = [[] for _ in store.holders]
        lengths: list[list[int] | None] = [None for _ in store.holders]
        for (shard, worker, _), (references_made, known) in zip(calls, found, strict=True):
            holders[shard].append((worker, references_made[0]))
            lengths[shard] = known
        return Store(self, tuple(map(tuple, holders)), store.identity, (tuple(lengths),))

    def _told(self, store: Store, shard: int) -> dict[str, Any]:
        worker = store.holders[shard][0][0]
        return {"worker": worker, "node": self.component.group.node_of(worker), "rows_text": f"shard {shard}"}


class Sources:
    """The objects that one call of one worker is handed, each once."""

    def __init__(self, component: RayComponent, worker: int) -> None:
        self.component, self.worker = component, worker
        self.references: list[Any] = []
        self.expected: list[tuple[int, int]] = []
        self._places: dict[Any, int] = {}

    def place(self, reference: Any, expected: tuple[int, int]) -> int:
        """The number of an object among those handed over."""
        if reference not in self._places:
            self._places[reference] = len(self.references)
            self.references.append(reference)
            self.expected.append(expected)
        return self._places[reference]


class Plan:
    """The hand-over of one handle in one call."""

    def __init__(self, call: Any, handle: Sharded, over: HandOver, layout: Layout) -> None:
        self.handle, self.over, self.store = handle, over, handle._store
        self.keeper: Keeper = self.store.keeper
        self.keeper.component.group.check_alive(call.declaration.name)
        self.nearest = self._nearest(call, layout)
        self.pieces: dict[Read, Any] = self._cut_at_source(call) if over.cut_at_source else {}

    def fill(self, name: str, worker: int, shard: int, sources: Sources) -> Fill:
        """How one worker puts its rows together."""
        reads: Sequence[Read] = self.over.reads[shard]
        pads = self.over.pads[shard]
        if not reads and not any(isinstance(pad, tuple) for pad in pads):
            # No rows, but of the right type: an empty piece.
            reads = [(0, 0, 0)]
        pieces = tuple(self._piece(read, worker, sources) for read in reads)
        settled = tuple(pad if isinstance(pad, int) else self._piece(pad, worker, sources) for pad in pads)
        return Fill(name, pieces=pieces, pads=settled)

    def _piece(self, read: Read, worker: int, sources: Sources) -> tuple[int, int, tuple[int, int] | None]:
        shard, start, stop = read
        expected = (self.store.identity, self.keeper.shards[shard])
        if read in self.pieces:
            return sources.place(self.pieces[read], expected), 0, None
        reference = self._holder(shard, worker)[1]
        return sources.place(reference, expected), self.handle._leaf, (start, stop)

    def _holder(self, shard: int, worker: int) -> tuple[int, Any]:
        chosen = self.nearest.get((shard, worker))
        those: Sequence[tuple[int, Any]] = self.store.holders[shard]
        return next((holder for holder in those if holder[0] == chosen), those[0])

    def _nearest(self, call: Any, layout: Layout) -> dict[tuple[int, int], int]:
        """Where a shard has several holders, the one that each worker reads from."""
        source, target = self.keeper.placement, call.target.placement
        if source is None or target is None or all(len(those) == 1 for those in self.store.holders):
            return {}
        if layout.shards != target.shards or self.keeper.shards != tuple(range(source.shards)):
            return {}
        here, there = self.keeper.component, call.component
        same = here.group is there.group
        processes = [worker if same and worker < source.workers else -1 for worker in range(target.workers)]
        moves = self.handle.layout.reshard(layout)
        shard_of = source.shard_of_worker.tolist()
        nodes = [[c.group.node_of(worker) for worker in range(p.workers)] for c, p in ((here, source), (there, target))]
        routed = route(moves, source, target, processes, nodes[0], nodes[1]).tolist()
        return {(shard_of[worker], to): worker for worker, _, to, _, _ in reversed(routed)}

    def _cut_at_source(self, call: Any) -> dict[Read, Any]:
        """Has the producers cut every piece that is needed, each once."""
        wanted = {read for reads in self.over.reads for read in reads}
        wanted |= {pad for pads in self.over.pads for pad in pads if isinstance(pad, tuple)}
        by_shard: dict[int, list[Read]] = {}
        for read in sorted(wanted):
            by_shard.setdefault(read[0], []).append(read)
        hosts = self.keeper.component.group.hosts
        references = []
        for shard, reads in by_shard.items():
            worker, reference = self.store.holders[shard][0]
            cuts = [(start, stop) for _, start, stop in reads]
            references.append(hosts[worker].pieces.remote(reference, self.handle._leaf, cuts, put=True))
        shards = list(by_shard)
        told: Told = lambda at: self.keeper._told(self.store, shards[at])  # noqa: E731
        found = results_of(references, call.deadline, f"cutting rows for {call.declaration.name}", told)
        cut: dict[Read, Any] = {}
        for reads, made in zip(by_shard.values(), found, strict=True):
            cut |= dict(zip(reads, made, strict=True))
        return cut
