"""What the processes of a launcher tell each other: values to all, and pieces from each to each.

The group is twinkle's own, made when it is first needed by all ranks together, beside torch's default group and without
it, so that nothing here meets the collectives of a training step. Bytes go by gloo; those of tensors on an accelerator
over a group of the device's own backend, where `channels` says so.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from twinkle.errors import RemoteCallError
from twinkle.platform import Platform
from twinkle.process_groups.registry import default_group
from twinkle.process_groups.registry import store as store_of
from twinkle.remote.agreement import Said, mark_of, words_of
from twinkle.remote.channels import able, backend_for, kind_of, landing, written_kind
from twinkle.remote.failing import told_of
from twinkle.remote.parcels import Parcel, opened
from twinkle.remote.waiting import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Exchange", "UnreadableError", "close", "exchange", "note_failure"]

#: As long as anybody waits where there is no deadline; a process that dies is noticed by its closed connection.
_FOREVER = timedelta(days=30)

#: As long as anybody waits for the others to come to the first exchange.
_MEETING = timedelta(minutes=30)

#: Between a call and what it does on its way.
_INNER = ", where it "

_exchange: Exchange | None = None
#: Where the processes meet that have no default group, and how many exchanges these processes have had.
_meeting: Any = None
_made = 0


class UnreadableError(RemoteCallError):
    """What arrived cannot be unpickled here, and the others go on."""


class _Unsent:
    """Goes to everybody in the place of a value that cannot be pickled."""

    def __init__(self, rank: int, words: str) -> None:
        self.rank, self.words = rank, words


class Exchange:
    """All processes of the job; every method is called by all of them, in the same order.

    A collective that fails leaves its group unusable. From then on every call is refused at once, and the connections
    are given back, so that the other ranks learn of it and no exit waits.
    """

    def __init__(self) -> None:
        from torch import distributed

        self._distributed = distributed
        self._store, self.rank, self.size = _met()
        self.group: Any = distributed.ProcessGroupGloo(self._store, self.rank, self.size, _MEETING)
        #: What has ended this exchange, in words; None while it works.
        self.broken: str | None = None
        self.closed = False
        #: How many exchanges there were, the same number on every rank.
        self.count = 0
        #: What has gone wrong here since the last exchange, for the words of a disagreement.
        self.note = ""
        self._method, self._call, self._deadline = "reading rows", "", Deadline(None)
        #: Per device type the group for its tensors, and the default group under which it was made.
        self._channels: dict[str, tuple[Any, Any]] = {}
        self._own_default: Any = None
        self._lock, self._intruder = threading.RLock(), ""
        self._begun = 0

    @contextmanager
    def during(self, method: str | None, timeout: float | None, doing: str) -> Iterator[None]:
        """Names the call whose collectives follow (None: the one that is going on), and how long they may take.

        `doing` says in words what this rank does, as `calls Actor.train (component 2)`; the ranks compare it. One
        thread of a process calls at a time.
        """
        if not self._lock.acquire(blocking=False):
            # Whose turn it is would differ from rank to rank.
            thread = threading.current_thread().name
            self._intruder = f"thread {thread} of rank {self.rank} {doing} while another thread is in {self._method}"
            raise RemoteCallError(
                f"{method or self._method}: {self._intruder}: under a launcher one thread of each rank makes all calls",
                method=method or self._method,
            )
        before = self._method, self._call, self._deadline
        own = Deadline(timeout)
        outer = self._deadline
        nearer = own.end is not None and (outer.end is None or own.end <= outer.end)
        self._method, self._deadline = method or self._method, own if nearer else outer
        self._call = f"{self._call}{_INNER}{doing}" if self._call else doing
        try:
            yield
        finally:
            self._method, self._call, self._deadline = before
            if self._intruder and not self._call:
                self._end(self._intruder)
            self._lock.release()

    def compared(self, key: int, step: str) -> list[int]:
        """The number of every rank, in rank order, for the price of the smallest exchange; at most 63 bits."""
        with self._whole():
            told = self._sizes([[0, 0, 0, 0]] * self.size, step, 0, key)
        return [one[-1] for one in told]

    def refuse(self, error: BaseException) -> None:
        """Tells the others, wherever in this call they are, that it cannot be made here; they raise it."""
        with self._whole():
            self._sizes([[0, 0, 0, 0]] * self.size, "refuses", 0, failure=told_of(error))

    def gathered(
        self, value: Any, about: str = "what it has for the others", step: str = "", key: object = 0
    ) -> list[Any]:
        """What every process gave, in rank order; `about` is what a refusal calls a value that cannot be pickled."""
        return self.swapped([value] * self.size, about, step, key)

    def swapped(
        self, values: Sequence[Any], about: str = "what it has for the others", step: str = "", key: object = 0
    ) -> list[Any]:
        """`values[r]` goes to rank r; what each rank gave for this one comes back, in rank order.

        `step` says which part of the call this is, and `key` of which rows; the ranks compare both.
        """
        parcels = self._packed(values, about)
        with self._whole():
            told, here, away = self._moved(parcels, step, key)
        values_found, at, away_at = [], 0, 0
        for rank, (size, away_size, *_) in enumerate(told):
            apart = None if away is None else away[away_at : away_at + away_size]
            try:
                values_found.append(opened(here[at : at + size], apart))
            except Exception as error:
                raise UnreadableError(
                    f"{self._method}: rank {self.rank} cannot unpickle what rank {rank} sent: "
                    f"{type(error).__name__}: {error}",
                    method=self._method,
                    rank=rank,
                ) from error
            at, away_at = at + size, away_at + away_size
        for one in values_found:
            if isinstance(one, _Unsent):
                raise RemoteCallError(f"{self._method}: {one.words}", method=self._method, rank=one.rank)
        return values_found

    def _moved(self, parcels: Sequence[Parcel], step: str, key: object) -> tuple[list[list[int]], Any, Any]:
        """The sizes of what arrived, its bytes, and those on an accelerator."""
        kinds = {part.device.type for parcel in parcels for part in parcel.away}
        # Who has tensors on several kinds of accelerator says so by naming none that exists.
        kind = written_kind("several" if len(kinds) > 1 else next(iter(kinds), ""))
        told = self._sizes([[parcel.size, parcel.away_size, *kind] for parcel in parcels], step, key)
        here = self._bytes(parcels, [one[0] for one in told])
        found = sorted({kind_of((one[2], one[3])) for one in told} - {""})
        return told, here, self._away(parcels, [one[1] for one in told], found) if found else None

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """An exchange that ends between its collectives, at an interrupt or for want of memory, ends them all."""
        try:
            yield
        except RemoteCallError:
            raise  # it has ended what it ends
        except BaseException as error:
            self._end(f"{self._method} was left by rank {self.rank}: {type(error).__name__}: {error}")
            raise

    def _packed(self, values: Sequence[Any], about: str) -> list[Parcel]:
        # The same object for everybody is pickled once.
        made: dict[int, Parcel] = {}
        try:
            for value in values:
                if id(value) not in made:
                    made[id(value)] = Parcel(value)
        except Exception as error:  # whatever a user's class raises, the others must hear of it
            words = f"rank {self.rank} cannot send {about}: {type(error).__name__}: {error}"
            return [Parcel(_Unsent(self.rank, words))] * self.size
        return [made[id(value)] for value in values]

    def _sizes(
        self, rows: list[list[int]], step: str, key: object, extra: int = 0, failure: str | None = None
    ) -> list[list[int]]:
        """The row of each rank for this one, with what it does, and a number for all; they must do the same."""
        self.count += 1
        doing = f"{self._call or 'exchanges'}{step and ': '}{step}"
        mark = mark_of(self.count, doing, key)
        told = self._numbers([[*row, mark, extra] for row in rows])
        if any(one[-2] != mark for one in told):
            call = self._call.partition(_INNER)[0]
            self._disagree(Said(self.count, call, doing, self.note, failure))
        self.note = ""
        return told

    def _numbers(self, rows: list[list[int]]) -> list[list[int]]:
        import torch

        own = torch.tensor(rows)
        theirs = torch.empty_like(own)
        self._collective(theirs, own, [], [])
        return list(theirs.tolist())

    def _disagree(self, said: Said) -> None:
        """Raises what the ranks do, in words; the exchange goes on where one of them only could not make the call."""
        parcel = Parcel(tuple(said))
        sizes = [size for (size,) in self._numbers([[parcel.size]] * self.size)]
        here, at, told = self._bytes([parcel] * self.size, sizes), 0, []
        for size in sizes:
            told.append(Said(*opened(here[at : at + size], None)))
            at += size
        failed = [rank for rank, one in enumerate(told) if one.failure is not None]
        if failed and all(one[:2] == said[:2] for one in told):
            if said.failure is None:
                raise RemoteCallError(
                    f"{self._method} failed on rank {failed[0]}: {told[failed[0]].failure}",
                    method=self._method,
                    rank=failed[0],
                )
            return
        error = RemoteCallError(
            f"the ranks of this job are at different calls: {words_of(told)}. Under a launcher every rank makes the "
            "same calls in the same order, and indexing, iterating and gathering a handle are calls as well",
            method=self._method,
            doing=[one.doing for one in told],
        )
        self._end(str(error))
        raise error

    def _bytes(self, parcels: Sequence[Parcel], sizes: list[int]) -> Any:
        import numpy
        import torch

        outgoing = [parcel.size for parcel in parcels]
        sent, received = numpy.empty(sum(outgoing), dtype=numpy.uint8), numpy.empty(sum(sizes), dtype=numpy.uint8)
        at = 0
        for parcel in parcels:
            parcel.write(sent, at)
            at += parcel.size
        self._collective(torch.from_numpy(received), torch.from_numpy(sent), sizes, outgoing)
        return received

    def _away(self, parcels: Sequence[Parcel], sizes: list[int], kinds: Sequence[str]) -> Any:
        """The parts on an accelerator, over its own backend or through the CPU; the same on all ranks."""
        import torch

        # Tensors of several kinds in one exchange arrive on the CPU.
        kind = kinds[0] if len(kinds) == 1 else "cpu"
        group, target = self._channel(kind), landing(kind)
        device = target if group is not None else torch.device("cpu")
        outgoing = [parcel.away_size for parcel in parcels]
        sent = torch.empty(sum(outgoing), dtype=torch.uint8, device=device)
        received = torch.empty(sum(sizes), dtype=torch.uint8, device=device)
        at = 0
        for parcel in parcels:
            parcel.write_away(sent, at)
            at += parcel.away_size
        self._collective(received, sent, sizes, outgoing, group)
        return received.to(target)

    def _channel(self, kind: str) -> Any:
        """The group for tensors of a device type, made by all ranks on first need; None where they go by the CPU."""
        default, made = self._channels.get(kind, (None, None))
        if kind not in self._channels or (made is not None and default is not default_group()):
            backend = backend_for(self.gathered(able(kind)))
            if backend is not None and default_group() is None:
                # Such a group is made under a default one alone.
                named = self._distributed.PrefixStore("default", self._store)
                self._distributed.init_process_group("gloo", store=named, rank=self.rank, world_size=self.size)
                self._own_default = default_group()
            made = None if backend is None else self._distributed.new_group(backend=backend)
            self._channels[kind] = default_group(), made
        return made

    def _collective(self, received: Any, sent: Any, sizes: list[int], outgoing: list[int], group: Any = None) -> None:
        """One all-to-all; what fails or takes too long ends the exchange."""
        if self.closed:
            raise RemoteCallError(f"{self._method}: the job was shut down", method=self._method)
        if self.broken is not None:
            raise RemoteCallError(
                f"{self._method}: the ranks of this job no longer reach each other: {self.broken}; call shutdown() and "
                "initialize() on every rank, or start the job again",
                method=self._method,
            )
        if self._intruder:
            raise RemoteCallError(f"{self._method}: {self._intruder}", method=self._method)
        self._begun += 1
        left = self._deadline.left
        if left == 0:
            raise self._broke("", late=[self.rank])
        options = self._distributed.AllToAllOptions()
        options.timeout = _FOREVER if left is None else timedelta(seconds=max(left, 0.001))
        try:
            if left is not None:
                self._store.set(self._mark(self.rank), str(self._begun))
            chosen = self.group if group is None else group
            work = chosen.alltoall_base(received, sent, sizes, outgoing, options)
            work.wait(options.timeout)
        except RuntimeError as error:
            raise self._broke(str(error).partition(". This is")[0]) from error

    def _broke(self, why: str, late: list[int] | None = None) -> RemoteCallError:
        """The error of the call that ends this exchange, after which it is ended."""
        method, seconds = self._method, self._deadline.seconds
        left = self._deadline.left
        if left is not None and left < 0.01:
            late = self._late() if late is None else late
            shown = ", ".join(map(str, late[:8])) + (f", ... ({len(late)})" if len(late) > 8 else "")
            who = f"; late: rank {shown}" if late else ""
            error = RemoteCallError(
                f"{method} was not done after {seconds} s on rank {self.rank}{who}",
                method=method,
                ranks=late,
                timeout=seconds,
            )
        else:
            error = RemoteCallError(
                f"{method}: rank {self.rank} lost another rank, which has died or given the call up: {why}",
                method=method,
            )
        self._end(str(error))
        return error

    def _late(self) -> list[int]:
        """The ranks that have not begun this collective, as far as they said."""
        found = []
        try:
            store = self._store
            for rank in range(self.size):
                known = store.check([self._mark(rank)])
                if not known or int(store.get(self._mark(rank))) < self._begun:
                    found.append(rank)
        except RuntimeError:
            # Whoever keeps the store is gone as well.
            return []
        return found

    def _mark(self, rank: int) -> str:
        return f"begun/{rank}"

    def _end(self, why: str) -> None:
        """Gives the groups back, and refuses everything from now on."""
        if self.broken is not None:
            return
        self.broken = why
        group, self.group = self.group, None
        if self.closed:
            group.shutdown()
        else:
            # Closes the connections, so that the others learn of it.
            getattr(group, "abort", group.shutdown)()
        default = default_group()
        for maker, channel in self._channels.values():
            if channel is not None and maker is default:
                self._distributed.destroy_process_group(channel)

    def close(self) -> None:
        """Leaves the groups, and the default one where it was made here."""
        self.closed = True
        self._end("shut down")
        if self._own_default is not None and self._own_default is default_group():
            self._distributed.destroy_process_group()


def _met() -> tuple[Any, int, int]:
    """A store of this exchange's own by which the processes find each other, this one's rank, and how many they are."""
    global _meeting, _made
    from torch import distributed
    from torch.distributed.rendezvous import rendezvous

    default = default_group()
    if default is not None:
        found = store_of(default), distributed.get_rank(), distributed.get_world_size()
    else:
        if _meeting is None:
            _meeting = next(iter(rendezvous("env://")))
        found = _meeting
    _made += 1
    # Under a name of its own: addresses that an earlier group left behind would be taken for those of this one.
    return distributed.PrefixStore(f"twinkle/{_made}", found[0]), found[1], found[2]


def exchange() -> Exchange | None:
    """The processes of this job, or None where this is the only one; made on first need, by all of them together."""
    global _exchange
    if _exchange is None and Platform.get_world_size() > 1 and Platform.get_rank() >= 0:
        _exchange = Exchange()
    return _exchange


def note_failure(what: str, error: Exception) -> None:
    """Keeps what went wrong on this rank alone, to be told if its next call is not that of the others."""
    if _exchange is not None:
        _exchange.note = f"{what} raised {type(error).__name__}: {error}"


def close() -> None:
    """Gives the group back; the next `exchange` makes another."""
    global _exchange
    if _exchange is not None:
        _exchange.close()
        _exchange = None
