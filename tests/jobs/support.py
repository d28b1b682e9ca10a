"""What every job needs: its checks in order, and an end for all ranks when one of them fails."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.waiting import PATIENCE, becomes
from twinkle import DeviceMesh
from twinkle.process_groups import meeting, registry

checks: list[Callable[[], None]] = []

#: What the others are waited for who never come; those who come do not hurry, as `when_these_have_come` has it.
SHORT = timedelta(seconds=3)
#: The timeout of default groups: longer than any process may be held up.
TIMEOUT = timedelta(seconds=PATIENCE)


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Marks a function that every rank of the job runs at the same time."""
    checks.append(function)
    return function


def main(backend: str = "gloo", device_id: torch.device | None = None) -> None:
    """Starts the default group, runs all checks, and says which of them went well on all ranks."""
    torch.set_num_threads(1)
    dist.init_process_group(backend, timeout=TIMEOUT, device_id=device_id)
    for function in checks:
        begun = time.monotonic()
        try:
            function()
        except BaseException:
            sys.stderr.write(f"rank {dist.get_rank()}: {function.__name__} failed\n{traceback.format_exc()}")
            sys.stderr.flush()
            # Without waiting for the others: the launcher ends them.
            os._exit(1)
        dist.barrier()
        if dist.get_rank() == 0:
            print(f"ok {function.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
    dist.destroy_process_group()


def gathered(group: dist.ProcessGroup) -> list[int]:
    """The global rank of every member, in the order of their group ranks, as a collective finds them."""
    found = [torch.zeros(1, dtype=torch.int64) for _ in range(group.size())]
    dist.all_gather(found, torch.tensor([dist.get_rank()]), group=group)
    return [int(rank) for rank in found]


def summed(group: dist.ProcessGroup | None = None) -> int:
    """The sum of one over the group: how many members a collective reaches."""
    one = torch.ones(1, dtype=torch.int64)
    dist.all_reduce(one, group=group)
    return int(one)


def assert_groups_are_those_of(mesh: DeviceMesh, *axes: str | Sequence[str]) -> None:
    """Every group that this process is in holds the members that the mesh names, in its order."""
    for entry, group in mesh.make_groups(*axes).items():
        members = list(mesh.group_of(entry))
        assert gathered(group) == members, (mesh, entry, members)
        assert dist.get_rank(group) == mesh.index_in_group(entry), (mesh, entry)
        assert dist.get_process_group_ranks(group) == members, (mesh, entry)
        assert summed(group) == len(members), (mesh, entry)


def refusal(kind: type[Exception], call: Callable[[], object]) -> str:
    """The words of the refusal that a call ends in."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"not refused: {call}")


@contextmanager
def when_these_have_come(coming: int) -> Iterator[None]:
    """A meeting waits for the absent from when all have come who do, however long one of these was held up."""
    waited = meeting._verdict

    def patient(store: dist.Store, place: str, timeout: timedelta) -> str | None:
        store.add(f"{place}/come", 1)
        assert becomes(lambda: store.add(f"{place}/come", 0) >= coming, expected=True)
        return waited(store, place, timeout)

    meeting._verdict = patient
    try:
        yield
    finally:
        meeting._verdict = waited


@contextmanager
def a_torch_without(*answers: str) -> Iterator[None]:
    """Lets functions of the registry answer no."""
    kept = {name: getattr(registry, name) for name in answers}
    for name in answers:
        setattr(registry, name, lambda: False)
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(registry, name, function)
