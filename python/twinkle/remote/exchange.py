"""What the processes of a launcher tell each other: values to all, and pieces from each to each.

The group is twinkle's own, made when it is first needed by all ranks together, so that nothing here meets the
collectives of a training step. Bytes go by gloo; those of tensors on an accelerator over a group of the device's own
backend, where `channels` says so.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from twinkle.errors import RemoteCallError
from twinkle.platform import Platform
from twinkle.remote.channels import able, backend_for, kind_of, landing, written_kind
from twinkle.remote.parcels import Parcel, opened
from twinkle.remote.waiting import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Exchange", "close", "exchange"]

#: As long as anybody waits where there is no deadline; a process that dies is noticed by its closed connection.
_FOREVER = timedelta(days=30)

_exchange: Exchange | None = None
#: Where the processes meet that have no default group, and how many default groups were made there.
_meeting: Any = None
_made = 0


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

        self.owns_default = not distributed.is_initialized()
        if self.owns_default:
            _make_default()
        self._distributed = distributed
        self.group: Any = distributed.new_group(backend="gloo")
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        #: What has ended this exchange, in words; None while it works.
        self.broken: str | None = None
        self.closed = False
        self._method, self._deadline = "reading rows", Deadline(None)
        self._channels: dict[str, Any] = {}
        self._begun = 0

    @contextmanager
    def during(self, method: str | None, timeout: float | None) -> Iterator[None]:
        """Names the call whose collectives follow (None: the one that is going on), and how long they may take."""
        before = self._method, self._deadline
        own = Deadline(timeout)
        outer = self._deadline
        nearer = own.end is not None and (outer.end is None or own.end <= outer.end)
        self._method, self._deadline = method or self._method, own if nearer else outer
        try:
            yield
        finally:
            self._method, self._deadline = before

    def gathered(self, value: Any, about: str = "what it has for the others") -> list[Any]:
        """What every process gave, in rank order; `about` is what a refusal calls a value that cannot be pickled."""
        return self.swapped([value] * self.size, about)

    def swapped(self, values: Sequence[Any], about: str = "what it has for the others") -> list[Any]:
        """`values[r]` goes to rank r; what each rank gave for this one comes back, in rank order."""
        parcels = self._packed(values, about)
        kinds = {part.device.type for parcel in parcels for part in parcel.away}
        # Who has tensors on several kinds of accelerator says so by naming none that exists.
        kind = written_kind("several" if len(kinds) > 1 else next(iter(kinds), ""))
        told = self._sizes([[parcel.size, parcel.away_size, *kind] for parcel in parcels])
        here = self._bytes(parcels, [one[0] for one in told])
        found = sorted({kind_of((one[2], one[3])) for one in told} - {""})
        away = self._away(parcels, [one[1] for one in told], found) if found else None
        values_found, at, away_at = [], 0, 0
        for size, away_size, *_ in told:
            apart = None if away is None else away[away_at : away_at + away_size]
            values_found.append(opened(here[at : at + size], apart))
            at, away_at = at + size, away_at + away_size
        for one in values_found:
            if isinstance(one, _Unsent):
                raise RemoteCallError(f"{self._method}: {one.words}", method=self._method, rank=one.rank)
        return values_found

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

    def _sizes(self, rows: list[list[int]]) -> list[list[int]]:
        import torch

        own = torch.tensor(rows)
        theirs = torch.empty_like(own)
        self._collective(theirs, own, [], [])
        return list(theirs.tolist())

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
        if kind not in self._channels:
            backend = backend_for(self.gathered(able(kind)))
            made = None if backend is None else self._distributed.new_group(backend=backend)
            self._channels[kind] = made
        return self._channels[kind]

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
        self._begun += 1
        left = self._deadline.left
        if left == 0:
            raise self._broke("", late=[self.rank])
        options = self._distributed.AllToAllOptions()
        options.timeout = _FOREVER if left is None else timedelta(seconds=max(left, 0.001))
        try:
            if left is not None:
                self._store().set(self._mark(self.rank), str(self._begun))
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
            store = self._store()
            for rank in range(self.size):
                known = store.check([self._mark(rank)])
                if not known or int(store.get(self._mark(rank))) < self._begun:
                    found.append(rank)
        except RuntimeError:
            # Whoever keeps the store is gone as well.
            return []
        return found

    def _mark(self, rank: int) -> str:
        return f"twinkle/exchange/{self.group.group_name}/{rank}"

    def _store(self) -> Any:
        from twinkle.process_groups.registry import default_group, store

        default = default_group()
        assert default is not None
        return store(default)

    def _end(self, why: str) -> None:
        """Gives the groups back, and refuses everything from now on."""
        if self.broken is not None:
            return
        self.broken = why
        if not self._distributed.is_initialized():
            return
        for group in (*self._channels.values(), self.group):
            if group is not None:
                self._distributed.destroy_process_group(group)

    def close(self) -> None:
        """Leaves the groups, and the default one where it was made here."""
        self.closed = True
        self._end("shut down")
        if self.owns_default and self._distributed.is_initialized():
            self._distributed.destroy_process_group()


def _make_default() -> None:
    """Makes torch's default group, over gloo, as often as a job begins in these processes."""
    global _meeting, _made
    from torch import distributed
    from torch.distributed.rendezvous import rendezvous

    if _meeting is None:
        _meeting = next(iter(rendezvous("env://")))
    store, rank, size = _meeting
    _made += 1
    # Under a name of its own: addresses that an earlier group left behind would be taken for those of this one.
    named = distributed.PrefixStore(f"twinkle/{_made}", store)
    distributed.init_process_group("gloo", store=named, rank=rank, world_size=size)


def exchange() -> Exchange | None:
    """The processes of this job, or None where this is the only one."""
    global _exchange
    if _exchange is None and Platform.get_world_size() > 1 and Platform.get_rank() >= 0:
        _exchange = Exchange()
    return _exchange


def close() -> None:
    """Gives the group back; the next `exchange` makes another."""
    global _exchange
    if _exchange is not None:
        _exchange.close()
        _exchange = None
