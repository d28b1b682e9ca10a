"""`DataLoader`: torch's own loader, told by a cursor which rows to read."""

from __future__ import annotations

import warnings
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Never

from twinkle.dataloader import state as states
from twinkle.dataloader.alike import Alike
from twinkle.dataloader.consumed import Consumed
from twinkle.dataloader.course import course_named, course_of
from twinkle.dataloader.cut import Cut, EvenGrid, dropped_words
from twinkle.dataloader.iteration import Iteration
from twinkle.dataloader.opening import Opening
from twinkle.dataloader.order import declared_length
from twinkle.dataloader.place import Peers, mesh_of, place_of
from twinkle.dataloader.progress import Progress
from twinkle.dataloader.reader import RowReader
from twinkle.dataloader.repair import Limits
from twinkle.dataloader.run import RowRun, Setting, StreamRun, Tickets
from twinkle.dataloader.seeds import hashed
from twinkle.dataloader.source import (
    check_order,
    check_shares,
    check_sizes,
    check_uncut,
    checked_keywords,
    grid_of,
    is_stream,
    order_of,
    rows_in,
    tail_of,
)
from twinkle.dataloader.state import Cursor, Identity
from twinkle.dataloader.streams import StreamReader
from twinkle.dataloader.tally import Tally
from twinkle.dataloader.tickets import as_is
from twinkle.errors import PlanError
from twinkle.platform.checks import shown, whole
from twinkle.runtime import current

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from twinkle.dataloader.cut import Tail
    from twinkle.dataloader.run import Arrival
    from twinkle.dataloader.tickets import Delivery
    from twinkle.mesh import DeviceMesh
    from twinkle.plan import Layout

__all__ = ["DataLoader", "Step"]


class Step(NamedTuple):
    """A batch and where it belongs: what a remote layer needs to hand it over in shards.

    `layout` says which rows of the global batch sit in which shard. `shard` is the one that `batch` holds; None where
    it holds the whole global batch, of which `layout.take(batch, d)` is the share of data rank d.
    """

    batch: Any
    layout: Layout
    shard: int | None


class DataLoader:
    """Batches of a data set for this process's data rank, on torch's own DataLoader and its workers.

    `batch_size` is the *global* batch; each data rank gets an even share of it, replicas (tensor, pipeline, context and
    ulysses peers) get the same rows with the same random numbers. The order depends on `seed` and the epoch only,
    not on ranks, workers or restarts. The random numbers that a row or `collate_fn` draws depend on seed, epoch, data
    rank and batch: they are the same after a restart on as many data ranks, and others on another number of them.

    Iterating goes through one epoch and moves on to the next; `set_epoch` chooses one. `state_dict()` is one cursor in
    samples, the same on every rank, that `load_state_dict` continues on any number of data ranks and workers. An
    iteration that is abandoned is forgotten: the next one begins its epoch again, unless a state is loaded.

    - `device_mesh=None` is the mesh of `twinkle.initialize`, or none outside any job.
    - `tail` is what becomes of a last short batch: `'keep'` yields it if it has at least `min_batch_size` rows and
      `group` for every data rank, else drops it on all ranks with a warning; `'drop'` drops it; `'pad'` repeats rows
      until all shares have one size, and `is_pad` marks them. `len()` counts what is yielded.
    - `group=k` keeps k neighbouring rows together, shuffled or not.
    - A bad row is one that raises or is None. With `max_bad` above 0 another row is drawn for it, alike on all
      replicas, with at most `max_retries` tries; more than `max_bad` of them in a data rank end the run, loaded ones
      counted, and one that is bad in every epoch once. A stream has no other rows: a good one of its share comes twice.
    - Rows and `collate_fn` draw from `random`, `numpy.random` and torch as seeded for their batch. Without workers
      these are exchanged while a batch is read: no other thread should draw from them then.
    - `batch_sampler=` takes the place of `batch_size`, `sampler=` that of `shuffle`. `torch_kwargs` go to torch's
      loader: `num_workers`, `pin_memory`, `persistent_workers`, `prefetch_factor`, `worker_init_fn`, `timeout` and the
      like.
    - An iterable data set is read by every rank, and by every worker of it, from its beginning, by position; where it
      offers shards (`num_shards` and `shard(num_shards=, index=)`) and a process group connects the ranks, each rank
      opens only its own. A batch has as many rows of each of the lanes that the shards are dealt to; when some have
      ended, the rows of the others fill the batches, and go round among the ranks.

    On a Ray driver, and in a component of one worker, batches are whole global ones. After `initialize('local')` they
    are handles (`twinkle.Sharded`) that all ranks make together, so that the script of a driver means the same: each
    column of a batch is one, and `local` is this rank's share of it. A mapping, a tuple and a record are columns, and
    so is the list that torch's own collate function makes of samples with several fields; any other list, an array and
    a tensor are rows. `steps()` gives plain batches in every mode, with their layout.

    >>> from twinkle.dataloader import DataLoader
    >>> loader = DataLoader(range(10), batch_size=4, collate_fn=list)
    >>> len(loader), list(loader), loader.epoch
    (3, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], 1)
    """

    def __init__(
        self,
        dataset: Any,
        *positional: Never,
        batch_size: int | None = None,
        device_mesh: DeviceMesh | None = None,
        min_batch_size: int | None = None,
        shuffle: bool = False,
        seed: int = 42,
        tail: Tail = "keep",
        group: int = 1,
        max_retries: int = 20,
        max_bad: int = 0,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Sequence[Any]] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **torch_kwargs: Any,
    ) -> None:
        import torch
        from torch.utils.data import DataLoader as TorchLoader
        from torch.utils.data import default_collate

        if positional:
            raise PlanError(
                f"only the data set is given by position; {shown(positional[0])} is perhaps batch_size=, which is that "
                "of the global batch"
            )
        self.dataset, self.sampler, self.batch_sampler = dataset, sampler, batch_sampler
        self._is_stream = is_stream(dataset)
        check_order(dataset, shuffle=shuffle, batch_size=batch_size, sampler=sampler, batch_sampler=batch_sampler)
        keywords = checked_keywords(torch_kwargs)
        keywords["worker_init_fn"] = Opening(keywords.get("worker_init_fn"))
        self.group = whole(group, "group", PlanError, least=1)
        self.seed = whole(seed, "seed", PlanError)
        self.tail = tail_of(tail)
        self.max_bad = whole(max_bad, "max_bad", PlanError)
        self.max_retries = whole(max_retries, "max_retries", PlanError)
        self.batch_size = None if batch_size is None else whole(batch_size, "batch_size", PlanError, least=1)
        least = (
            min_batch_size if min_batch_size is None else whole(min_batch_size, "min_batch_size", PlanError, least=1)
        )
        self.min_batch_size = least or 0
        check_sizes(self.batch_size, self.min_batch_size, self.group)
        self.device_mesh = mesh_of(device_mesh)
        self._place = place_of(self.device_mesh)
        check_uncut(dataset, sampler if batch_sampler is None else batch_sampler, self._place.shards)
        cut = Cut(self._place.shards, self.group, self.tail, self.min_batch_size)
        check_shares(self.batch_size, cut.shards, cut.group)
        self.collate_fn = default_collate if collate_fn is None else collate_fn
        self._setting = Setting(self._place, Peers(self._place), cut, self.seed, self.max_bad)
        self._reader = self._make_reader(shuffle=shuffle)

        self._progress = Progress()
        steady = not isinstance(self._reader, RowReader) or self._reader.order.steady
        self._consumed = Consumed(self._rows_delivered, steady=steady)
        self._tally = Tally(self._place.shard or 0, self.max_bad, self.group)
        self._run: RowRun | StreamRun | None = None
        #: The layout of the batch that was delivered last.
        self.layout: Layout | None = None
        self._tickets = Tickets()
        # Its own: beginning an epoch takes nothing from the global generator, and replicas seed their workers alike.
        self._generator = torch.Generator()
        self._torch: TorchLoader[Any] = TorchLoader(
            self._reader,  # type: ignore[arg-type]
            batch_sampler=self._tickets,  # type: ignore[arg-type]
            collate_fn=as_is,  # type: ignore[arg-type]
            generator=self._generator,
            **keywords,
        )
        self._alike = Alike(self._place.mesh)

    def _make_reader(self, *, shuffle: bool) -> RowReader | StreamReader:
        limits = Limits(self.max_bad, self.max_retries, self.group, self.seed)
        if self._is_stream:
            assert self.batch_size is not None
            self._course = course_of(self.dataset, self.batch_size, self._place, self.group)
            self._declared = None if declared_length(self.dataset) is None else rows_in(self.dataset)
            return StreamReader(
                self.dataset,
                self.collate_fn,
                batch_size=self.batch_size,
                cut=self._setting.cut,
                limits=limits,
                shard=self._place.shard,
            )
        order = order_of(
            self.dataset,
            sampler=self.sampler,
            batch_sampler=self.batch_sampler,
            shuffle=shuffle,
            seed=self.seed,
            group=self.group,
        )
        return RowReader(self.dataset, self.collate_fn, order, limits)

    @property
    def _rows(self) -> int | None:
        """How many rows a stream has, where it is read as one."""
        return None if self._course.in_parts else self._declared

    def __getstate__(self) -> dict[str, Any]:
        # An iteration that is going on stays with the process that began it, and so do workers that live on.
        torch_loader = copy(self._torch)
        torch_loader._iterator = None
        return {**self.__dict__, "_run": None, "_torch": torch_loader}

    # Iterating.

    def __iter__(self) -> Iterator[Any]:
        """The batches of one epoch, from the cursor of a loaded state or from the beginning.

        After `initialize('local')` they are handles: this rank's plain rows are the `local` of each.
        """
        return self._iteration(self._batches)

    def steps(self) -> Iterator[Step]:
        """The same batches, plain in every mode, each with its layout and shard."""
        return self._iteration(self._steps)

    def _iteration(self, given: Callable[[RowRun | StreamRun, Iterator[Delivery]], Generator[Any]]) -> Iteration:
        begun = self._begin()
        return Iteration() if begun is None else Iteration(begun[0], given(*begun))

    def _begin(self) -> tuple[RowRun | StreamRun, Iterator[Delivery]] | None:
        now = place_of(self.device_mesh)
        if now != self._place:
            raise PlanError(
                f"this loader was made for data rank {self._place.shard}, but this process is data rank {now.shard}; "
                "make it in "
                "the process that reads from it",
                made_for=self._place.shard,
                now=now.shard,
            )
        if self._progress.at_end:
            self._progress.begin()
            return None
        run = self._run_from(*self._progress.beginning)
        if self._setting.peers.connected:
            self._check_alike(run)
        self._progress.begin()
        self._run = self._tickets.run = run
        self._generator.manual_seed(hashed(self.seed, run.epoch, self._place.shard or 0))
        alone = not self._torch.num_workers and not self._torch.pin_memory
        # Without workers there is nothing between the loop and the reader.
        deliveries = map(self._reader.read, run.tickets()) if alone else iter(self._torch)
        if run.dropped and self.tail == "keep":
            warnings.warn(dropped_words(run.dropped, self._setting.cut), stacklevel=4)
        return run, deliveries

    def _check_alike(self, run: RowRun | StreamRun) -> None:
        fields = ("seed", "batch_size", "tail", "group", "min_batch_size", "max_bad")
        identity = self._identity(run.epoch)
        self._alike.check(
            (run.epoch, run.start),
            {name: getattr(self, name) for name in fields},
            {"n": identity.n, "order": identity.order},
        )

    def _run_from(self, epoch: int, start: int) -> RowRun | StreamRun:
        if isinstance(self._reader, StreamReader):
            connected = self._setting.peers.connected
            if self._course.split and not connected:
                raise PlanError(
                    f"the data set was split over {self._course.split} data ranks, which can end together only when "
                    "torch.distributed is initialised"
                )
            course = self._course._replace(apart=self._course.in_parts and connected)
            return StreamRun(self._setting, self._reader, epoch, start, course=course, rows=self._rows)
        declared = getattr(self.batch_sampler, "batch_size", None)
        grid = grid_of(self._reader.order, epoch, self.batch_size, declared, self._setting.cut)
        return RowRun(self._setting, self._reader, epoch, start, grid)

    def _batches(self, run: RowRun | StreamRun, deliveries: Iterator[Delivery]) -> Generator[Any]:
        arrivals = self._arrivals(run, deliveries)
        del deliveries
        # A thread that a method has begun gets plain batches, as the method does.
        if current.mode == "local" and current.thread is None:
            from twinkle.remote.batches import Handles, failures_noted

            handed = Handles(self)
            with failures_noted():
                for arrival in arrivals:
                    yield handed(Step(arrival.delivery.batch, arrival.layout, self._place.shard))
            return
        for arrival in arrivals:
            yield arrival.delivery.batch

    def _steps(self, run: RowRun | StreamRun, deliveries: Iterator[Delivery]) -> Generator[Step]:
        arrivals = self._arrivals(run, deliveries)
        del deliveries
        for arrival in arrivals:
            yield Step(arrival.delivery.batch, arrival.layout, self._place.shard)

    def _arrivals(self, run: RowRun | StreamRun, deliveries: Iterator[Delivery]) -> Iterator[Arrival]:
        known = run.dropped
        # Workers that live on serve one iteration at a time: what they bring would be another's.
        shared = self._torch.persistent_workers
        try:
            for arrival in run.arrivals(self._own(run, deliveries) if shared else deliveries):
                try:
                    self._take(run, arrival)
                except Exception:  # whatever it is goes on from here, and the other ranks hear of it
                    run.refused(arrival)
                    raise
                yield arrival
            if run.dropped > known and self.tail == "keep":
                warnings.warn(dropped_words(run.dropped, self._setting.cut), stacklevel=3)
            if self._run is run:
                self._progress.reach(Cursor(run.epoch + 1, 0))
            run.is_over = True
        except BaseException as error:
            run.failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            # Frees the workers even where an error keeps this frame.
            del deliveries
            if self._run is run:
                self._run = None

    def _own(self, run: RowRun | StreamRun, deliveries: Iterator[Delivery]) -> Iterator[Delivery]:
        while self._tickets.run is run:
            delivery = next(deliveries, None)
            if delivery is None:
                return
            yield delivery
        raise PlanError(
            "this iteration was ended by a newer one of the same loader: with persistent_workers=True one goes on at a "
            "time"
        )

    def _take(self, run: RowRun | StreamRun, arrival: Arrival) -> None:
        """Counts a batch as delivered, just before it is."""
        if arrival.delivery.replaced:
            self._tally.add(run.epoch, arrival.delivery.replaced, stacklevel=4)
        self.layout = arrival.layout
        if self._run is run:
            self._progress.reach(Cursor(run.epoch + 1, 0) if arrival.last else Cursor(run.epoch, arrival.stop))

    def __len__(self) -> int:
        """How many batches the iteration that is going on, or else the next one, yields.

        TypeError for a stream whose source has no length.
        """
        if isinstance(self._run, RowRun):
            return len(self._run)
        epoch, start = self._progress.beginning
        if self._run is not None:
            start = self._run.start
        if self._is_stream:
            if self._rows is None:
                why = (
                    "how long each of its shards is shows when it is read"
                    if self._course.in_parts
                    else "its source has none"
                )
                raise TypeError(f"a loader of a {type(self.dataset).__name__} has no len(): {why}")
            assert self.batch_size is not None
            return 0 if self._progress.at_end else EvenGrid(self._rows, self.batch_size).count(start, self._setting.cut)
        return 0 if self._progress.at_end else len(self._run_from(epoch, start))  # type: ignore[arg-type]

    # The batch that was delivered last.

    @property
    def is_pad(self) -> list[bool]:
        """For each row of the batch delivered last, whether it is a pad: a copy that keeps all shares of one size."""
        if self.layout is None:
            return []
        # A whole batch has no pads: they come when it is cut.
        shard = self._place.shard
        return [False] * self.layout.n if shard is None else self.layout.is_pad(shard).tolist()

    # The cursor.

    @property
    def epoch(self) -> int:
        """The epoch of the next row to deliver."""
        return self._progress.cursor.epoch

    def set_epoch(self, epoch: int) -> None:
        """Goes to the beginning of an epoch; stays where the cursor is if it is in that epoch already.

        Directly after a state or a number of samples was loaded that ends with an epoch, that epoch is over: the next
        iteration yields nothing, and the one after it begins the next epoch.
        """
        if self._progress.choose(whole(epoch, "epoch", PlanError)):
            self._run = None

    def state_dict(self) -> dict[str, Any]:
        """The cursor behind the batch delivered last, the same on every rank, as plain data.

        Batches that workers have read ahead do not count. `replaced` lists the bad rows that this data rank has met;
        nothing depends on it but the count for `max_bad`, in which a data rank takes up its own.
        """
        cursor = self._progress.cursor
        own, mended = self._identity(cursor.epoch), self._tally.entries
        return states.written(cursor, own, self.batch_size, self.tail, mended)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues behind a saved cursor, whatever the number of data ranks and workers was.

        PlanError for a state of other data, another seed or another order.
        """
        cursor, identity, mended = states.read(state, self.group)
        course = course_named(identity.order, self._course, self.dataset) if self._is_stream else None
        own = self._identity(cursor.epoch)
        states.same(identity, own if course is None else own._replace(order=course.name))
        if course is not None:
            self._course = course
        self._move(cursor)
        self._tally.load(mended)

    @property
    def consumed_train_samples(self) -> int:
        """The rows delivered since the beginning of epoch 0, rows that are dropped at the end of epochs not counted."""
        return self._consumed.at(self._progress.cursor)

    def get_state(self) -> dict[str, Any]:
        """`state_dict()`, with `consumed_train_samples` where that can be known."""
        state = self.state_dict()
        with suppress(PlanError):
            state["consumed_train_samples"] = self.consumed_train_samples
        return state

    def skip_consumed_samples(self, consumed_train_samples: int) -> None:
        """Moves the cursor behind that many rows, counted from the beginning of epoch 0; map-style data reads none.

        Counted in rows that this loader delivers. Where the end of an epoch is dropped, and how much of it depends on
        the number of data ranks, a number from another mesh ends up elsewhere: `load_state_dict` does not.
        """
        consumed = whole(consumed_train_samples, "consumed_train_samples", PlanError)
        if consumed % self.group:
            raise PlanError(
                f"{consumed} samples end inside a group of {self.group} rows", samples=consumed, group=self.group
            )
        if self._is_stream:
            self._check_course(self._course, consumed)
        if self._is_stream and self._rows is None:
            self._move(Cursor(0, consumed))
            return
        self._move(self._consumed.cursor(consumed))

    def resume_from_checkpoint(self, consumed_train_samples: int) -> None:
        """The same as `skip_consumed_samples`, under the name that training scripts use."""
        self.skip_consumed_samples(consumed_train_samples)

    def _move(self, cursor: Cursor) -> None:
        # An iteration that is going on keeps its batches, but no longer moves the cursor.
        self._run = None
        self._progress.load(cursor)

    def _rows_delivered(self, epoch: int) -> int:
        """How many rows an epoch delivers."""
        if self._is_stream:
            if self._rows is None:
                what = "that is read in several parts" if self._course.in_parts else "without a length"
                raise PlanError(f"a stream {what} does not say how many rows its past epochs had; keep state_dict()")
            assert self.batch_size is not None
            return EvenGrid(self._rows, self.batch_size).end(0, self._setting.cut)
        return self._run_from(epoch, 0).end  # type: ignore[union-attr]

    def _check_course(self, course: Any, next_row: int) -> None:
        if course.in_parts and next_row % self.batch_size:  # type: ignore[operator]
            raise PlanError(
                f"row {next_row} is inside a batch of {self.batch_size} rows, and this stream is read from several "
                "shards at once: "
                "it can be continued only between batches",
                next_row=next_row,
                batch_size=self.batch_size,
            )

    def _identity(self, epoch: int) -> Identity:
        if self._is_stream:
            return Identity(self._rows, self.seed, self._course.name)
        assert isinstance(self._reader, RowReader)
        order = self._reader.order
        return Identity(order.length(epoch), self.seed, order.name(epoch))
