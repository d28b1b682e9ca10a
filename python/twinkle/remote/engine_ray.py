"""Calls on components whose workers are Ray actors.

One call is planned here, on the driver, from numbers alone; rows the driver has are cut once per shard, rows that
workers have go from worker to worker. The driver waits for small replies and never for rows, unless it is to have
them.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlanError
from twinkle.plan import Layout, Placement
from twinkle.platform import Platform
from twinkle.remote import rows as row_tools
from twinkle.remote.arguments import Part, Prepared, dispatched, prepare
from twinkle.remote.counting import traffic
from twinkle.remote.handle import Sharded, Store
from twinkle.remote.lookups import Leaf, check_alike
from twinkle.remote.messages import Fill, Reply, Request
from twinkle.remote.results import combined
from twinkle.remote.sending import (
    columns_of,
    handles_of,
    inner_of,
    plain_parts,
    share_of,
    shared,
    template_of,
    whole_of,
)
from twinkle.remote.sources import Keeper, Plan, Sources, cut_at_source
from twinkle.remote.split import alike, end_to_end, layout_of
from twinkle.remote.waiting import Deadline, Told, results_of, rows_told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinkle.mesh import DeviceMesh
    from twinkle.plan import CollectFrom
    from twinkle.remote.group_ray import RayGroup
    from twinkle.remote.signature import Declaration

__all__ = ["RayComponent"]

#: How many seconds workers that have their rows are given to leave a method that others cannot begin.
_MOMENT = 1.0


@dataclass(frozen=True, eq=False)
class _Target:
    """Who runs a call: its workers, the shard of each, and who has the result of each shard."""

    workers: list[int]
    shard_of: dict[int, int]
    members: list[list[int]]
    holders: list[list[int]]
    placement: Placement | None

    @property
    def shards(self) -> int:
        return len(self.members)


class RayComponent:
    """One component object on every worker of a device group, as the driver sees it."""

    def __init__(self, group: RayGroup, name: str, mesh: DeviceMesh, workers: int, *, lazy: bool) -> None:
        self.group, self.name, self.mesh, self.workers, self.lazy = group, name, mesh, workers, lazy
        self._targets: dict[Any, _Target] = {}
        self._placements: dict[str, Placement] = {}

    def placement(self, collect_from: CollectFrom) -> Placement:
        """Which worker holds which shard of the component's mesh."""
        if collect_from not in self._placements:
            gpus = self.group.gpus_per_worker if self.mesh.world_size != self.workers else 1
            self._placements[collect_from] = self.mesh.placement(gpus, self.workers, collect_from)
        return self._placements[collect_from]

    def call(self, declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs one method on its workers and returns what its `collect` says."""
        self.group.check_alive(declaration.name)
        call = _Call(self, declaration, args, kwargs)
        try:
            return call.run()
        except BaseException as error:
            if not call.waiting:
                raise
            # Where rows are lost that another group had, this one has done nothing, unless some of it has begun.
            spared = getattr(error, "lost", None) is not None and call.settled()
            end = declaration.on_error == "kill_group" and not spared
            self.group.raise_failure(declaration.name, error, end=end)

    def target(self, declaration: Declaration) -> _Target:
        """Who runs a call of this declaration."""
        dispatch = declaration.dispatch if declaration.dispatch == "slice" else "mesh"
        peers = Platform.get_peer_index(self.workers) if declaration.execute == "peer" else None
        key = (dispatch, declaration.execute, declaration.holders, None if peers is None else peers)
        found = self._targets.get(_hashable(key))
        if found is None:
            found = self._targets[_hashable(key)] = self._make_target(*key)
        return found

    def _make_target(self, dispatch: str, execute: str, holders: CollectFrom, peers: slice | None) -> _Target:
        if execute == "first":
            return _Target([0], {0: 0}, [[0]], [[0]], None)
        if dispatch == "slice":
            each = list(range(self.workers))
            target = _Target(each, {w: w for w in each}, [[w] for w in each], [[w] for w in each], None)
        else:
            placement = self.placement(holders)
            shards = range(placement.shards)
            target = _Target(
                list(range(self.workers)),
                dict(enumerate(placement.shard_of_worker.tolist())),
                [placement.members(shard).tolist() for shard in shards],
                [placement.holders(shard).tolist() for shard in shards],
                placement,
            )
        if peers is None:
            return target
        mine = set(range(self.workers)[peers])
        return _Target(
            sorted(mine),
            {worker: target.shard_of[worker] for worker in sorted(mine)},
            [[worker for worker in members if worker in mine] for members in target.members],
            [[worker for worker in those if worker in mine] for those in target.holders],
            None,
        )

    def told(self, declaration: Declaration, target: _Target, layout: Layout | None) -> Told:
        """What a failure says about the worker of each call."""

        def tell(at: int) -> dict[str, Any]:
            worker = target.workers[at]
            position = worker * (self.mesh.world_size // self.workers)
            told: dict[str, Any] = {
                "worker": worker,
                "coordinates": self.mesh.coordinates(self.mesh.rank_at(position)),
                "node": self.group.node_of(worker),
                "rows": None,
            }
            if layout is not None:
                told |= rows_told(layout.rows(target.shard_of[worker]).tolist())
            return told

        return tell


class _Call:
    """One call, from its arguments to its result."""

    def __init__(self, component: RayComponent, declaration: Declaration, args: Any, kwargs: Any) -> None:
        self.component, self.declaration = component, declaration
        self.deadline = Deadline(declaration.timeout)
        self.target = component.target(declaration)
        #: Whether workers may be in the method, or on their way to it.
        self.waiting = False
        self.references: list[Any] = []
        self.sources: list[Sources] = []
        if callable(declaration.dispatch):
            total = component.workers
            pairs = [dispatched(declaration, total, w, args, kwargs, component.mesh) for w in self.target.workers]
            self.prepared_each = [prepare(declaration, *pair, engine=Keeper) for pair in pairs]
        else:
            self.prepared_each = [prepare(declaration, args, kwargs, engine=Keeper)]
        self.layout = layout_of(declaration, self.prepared.rows, self.target.shards)

    @property
    def prepared(self) -> Prepared:
        return self.prepared_each[0]

    @cached_property
    def keep(self) -> bool:
        """Whether rows of the result stay with the workers."""
        lazy = self.declaration.lazy_collect
        return not self.declaration.sync and (self.component.lazy if lazy is None else lazy)

    @cached_property
    def _real_sizes(self) -> list[int] | None:
        return None if self.layout is None else self.layout.real_sizes.tolist()

    @cached_property
    def readers(self) -> set[int]:
        """The workers whose results are collected."""
        if (
            callable(self.declaration.collect)
            or self.declaration.collect == "none"
            or self.declaration.collect_from == "all"
        ):
            return set(self.target.workers)
        if self.keep and self.declaration.collect_from == "any":
            return {worker for those in self.target.holders for worker in those}
        return {those[0] for those in self.target.holders if those}

    def run(self) -> Any:
        hosts = self.component.group.hosts
        templates = [template_of(self.declaration, each) for each in self.prepared_each]
        plain = self._plain()
        whole = self._whole_plans()
        told = self.component.told(self.declaration, self.target, self.layout)
        plans = self._plans()
        workers, shard_of = self.target.workers, self.target.shard_of
        readers = [(plan, w, shard_of[w]) for plan in plans.values() for w in workers if self._gets_rows(w)]
        cut_at_source(self, readers + [(plan, w, 0) for plan in whole.values() for w in workers])
        references = self.references
        layout = None if self.layout is None else shared(pickle.dumps(self.layout), len(workers))
        identity = 0 if self.layout is None else self.layout.id % 2**64
        columns = list(map(columns_of, self.prepared_each))
        with self.component.group.order:
            for at, worker in enumerate(workers):
                shard = shard_of[worker]
                sources = Sources(self.component, worker)
                self.sources.append(sources)
                place = at if len(self.prepared_each) > 1 else 0
                parts = self.prepared_each[place].parts
                fills = tuple(self._fill(one, columns[place], worker, shard, plans, whole, sources) for one in parts)
                request = Request(
                    self.component.name,
                    self.declaration.name,
                    fills,
                    shard,
                    None,
                    self.keep if worker in self.readers else None,
                    identity,
                    tuple(sources.expected),
                    self.declaration.verify_replicas,
                )
                beside = [templates[place], plain[at], layout]
                # Every argument of a call costs: what is small travels in one.
                apart = {at: one for at, one in enumerate(beside) if not isinstance(one, bytes | None)}
                inline = [None if at in apart else one for at, one in enumerate(beside)]
                message = pickle.dumps((request.told(), inline, tuple(apart)), protocol=5)
                self.waiting = True
                references.append(hosts[worker].call.remote(message, *apart.values(), *sources.references))
        found = results_of(references, self.deadline, self.declaration.name, told, self._maker)
        self.waiting = False
        replies = list(map(Reply.arrived, found))
        traffic.moved_rows += sum(reply.received for reply in replies)
        return self._collected(dict(zip(self.target.workers, replies, strict=True)))

    def settled(self) -> bool:
        """Whether no worker is in the method, or leaves it in a moment: none that waits for others for ever."""
        import ray

        return not ray.wait(self.references, num_returns=len(self.references), timeout=_MOMENT)[1]

    def _maker(self, number: str) -> dict[str, Any] | None:
        return next((maker for sources in self.sources if (maker := sources.maker(number))), None)

    # Rows on their way to the workers.

    def _plain(self) -> list[Any]:
        """For each worker, its rows of what the driver has: pickled once for all workers that get the same."""
        workers = self.target.workers
        if len(self.prepared_each) > 1:
            # A function has given every worker arguments of its own.
            return [whole_of(self.declaration, each, copies=1) for each in self.prepared_each]
        if self.layout is None:
            # Beside a handle of which everybody gets all rows: the same for everybody.
            return [whole_of(self.declaration, self.prepared, copies=2)] * len(workers)
        columns = plain_parts(self.prepared.parts)
        if not columns:
            return [None] * len(workers)
        traffic.driver_rows += self.layout.n
        lead_only = self.declaration.fan_out == "lead"
        made = []
        for shard in range(self.target.shards):
            copies = 1 if lead_only else len(self.target.members[shard])
            made.append(share_of(self.declaration, columns, self.layout, shard, copies))
        return [made[self.target.shard_of[worker]] for worker in workers]

    def _plans(self) -> dict[int, Plan]:
        """For each handle that is cut, what every worker reads."""
        plans: dict[int, Plan] = {}
        for handle in handles_of(self.prepared.cut):
            if self.layout is not None and id(handle) not in plans:
                plans[id(handle)] = Plan(self, handle, self.layout)
        return plans

    def _whole_plans(self) -> dict[int, Plan]:
        """For each handle of which every worker gets all rows, what to read."""
        plans: dict[int, Plan] = {}
        for prepared in self.prepared_each:
            for handle in handles_of([part for part in prepared.parts if part.whole]):
                plans.setdefault(id(handle), Plan(self, handle, Layout.even(len(handle), 1)))
        return plans

    def _fill(  # noqa: PLR0917 - one slot, spelled out
        self,
        part: Part,
        columns: dict[int, int],
        worker: int,
        shard: int,
        plans: dict[int, Plan],
        whole: dict[int, Plan],
        sources: Sources,
    ) -> Fill:
        if not part.whole and not self._gets_rows(worker):
            return Fill(part.name, absent=True)
        if part.kind == "zip":
            inner = [inner_of(part, value) for value in part.value.parts]
            parts = tuple(self._fill(one, columns, worker, shard, plans, whole, sources) for one in inner)
            return Fill(part.name, parts=parts)
        if part.kind == "handle":
            plan = (whole if part.whole else plans)[id(part.value)]
            return plan.fill(part.name, worker, 0 if part.whole else shard, sources)
        real = None if part.whole or self._real_sizes is None else self._real_sizes[shard]
        return Fill(part.name, plain=columns[id(part.value)], real=real)

    def _gets_rows(self, worker: int) -> bool:
        members = self.target.members[self.target.shard_of[worker]]
        return self.declaration.fan_out != "lead" or worker == min(members)

    # Results on their way back.

    def _collected(self, replies: dict[int, Reply]) -> Any:
        if self.declaration.verify_replicas:
            self._compare_digests(replies)
        collect = self.declaration.collect
        ordered = [replies[worker] for worker in self.target.workers]
        if callable(collect):
            return collect([reply.rest for reply in ordered], self.component.mesh)
        if collect == "none":
            return [reply.rest for reply in ordered]
        if self.declaration.collect_from == "all":
            found, weights = self.target.workers, [self._weight(self.target.shard_of[w]) for w in self.target.workers]
        else:
            shards = [shard for shard, those in enumerate(self.target.holders) if those]
            found, weights = (
                [self.target.holders[shard][0] for shard in shards],
                [self._weight(shard) for shard in shards],
            )
        rests = [replies[worker].rest for worker in found]
        return combined(rests, weights, self.declaration, lambda leaf: self._rows(leaf, replies, found), found)

    def _weight(self, shard: int) -> float:
        return 1.0 if self.layout is None else float(self.layout.real_sizes[shard])

    def _rows(self, leaf: Leaf, replies: dict[int, Reply], found: Sequence[int]) -> Any:
        """The joined rows of one leaf: a handle, or the rows."""
        kinds = {worker: replies[worker].kinds[leaf.index] for worker in found if replies[worker].counts[leaf.index]}
        check_alike(self.declaration.name, leaf.name, kinds)
        layout = self._result_layout(leaf, replies, found)
        if not self.keep:
            parts = [replies[worker].rows[leaf.index] for worker in found]
            traffic.driver_rows += layout.n
            pieces = [row_tools.take(parts[s], [(at, at + size)]) for s, at, _, size in layout.copies().tolist()]
            pad_values = self.declaration.pad_values
            return row_tools.join(pieces or [row_tools.take(parts[0], [(0, 0)])], pad_values, leaf.name)
        stored = self._store(replies, found).pieces(leaf.index)
        return Sharded(layout, stored, leaf.name, self.declaration.pad_values)

    def _store(self, replies: dict[int, Reply], found: Sequence[int]) -> Store:
        reply = replies[found[0]]
        kinds = next((replies[w].kinds for w in found if any(replies[w].counts)), reply.kinds)
        if self._kept is None and reply.layout is not None:
            # One worker has cut the rows for whom they are made.
            cut = tuple(((found[0], reference),) for reference in reply.rows)
            keeper = Keeper(self.component, None, tuple(range(reply.layout.shards)))
            self._kept = Store(keeper, cut, reply.layout.id % 2**64, kinds=kinds)
        if self._kept is None:
            holders = []
            for worker in found:
                shard = self.target.shard_of[worker]
                those = [w for w in self.target.holders[shard] if w in self.readers]
                holders.append(tuple((w, replies[w].rows[0]) for w in those))
            leaves = range(len(replies[found[0]].counts))
            lengths = tuple(tuple(replies[worker].lengths[leaf] for worker in found) for leaf in leaves)
            identity = 0 if self.layout is None else self.layout.id % 2**64
            stored_shards = tuple(self.target.shard_of[worker] for worker in found)
            keeper = Keeper(self.component, self.target.placement, stored_shards)
            self._kept = Store(keeper, tuple(holders), identity, lengths, kinds)
        return self._kept

    _kept: Store | None = None

    def _result_layout(self, leaf: Leaf, replies: dict[int, Reply], found: Sequence[int]) -> Layout:
        counts = [replies[worker].counts[leaf.index] for worker in found]
        own = replies[found[0]].layout
        if own is not None:
            return own.settled()
        if self.layout is None:
            return end_to_end([count or 0 for count in counts])
        sizes = self.layout.sizes.tolist()
        for worker, count in zip(found, counts, strict=True):
            expected = sizes[self.target.shard_of[worker]]
            if count != expected:
                raise PlanError(
                    f"{self.declaration.name}: worker {worker} returned {count} rows at {leaf.name!r}, expected "
                    f"{expected}, one for each row it was given",
                    worker=worker,
                    key=leaf.name,
                    expected=expected,
                    found=count,
                )
        if len(found) == self.layout.shards:
            return self.layout.settled()
        # Peers: the shards of this driver's own workers, renumbered.
        real = [int(self.layout.real_sizes[self.target.shard_of[worker]]) for worker in found]
        return end_to_end(real)

    def _compare_digests(self, replies: dict[int, Reply]) -> None:
        width = max(self.component.mesh.world_size // self.component.workers, 1)
        for shard, holders in enumerate(self.target.holders):
            members = alike(self.component.mesh, self.target.members[shard], holders, width)
            for worker in members[1:]:
                if replies[worker].digest != replies[members[0]].digest:
                    raise PlanError(
                        f"{self.declaration.name}: workers {members[0]} and {worker} are replicas of shard {shard} and "
                        "returned different results",
                        shard=shard,
                        workers=[members[0], worker],
                    )


def _hashable(key: tuple[str, str, str, slice | None]) -> Any:
    *words, peers = key
    return (*words, None if peers is None else (peers.start, peers.stop, peers.step))
