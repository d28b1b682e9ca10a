"""`Platform`: what a process asks about itself and its accelerator, as static methods that a test may replace."""

from __future__ import annotations

import os
from sys import modules

from twinkle.runtime import current

# Type checkers know the name; `typing` itself would cost more than everything here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from twinkle.platform.binding import Binding
    from twinkle.platform.families import Family
    from twinkle.platform.reading import Reading

__all__ = ["Platform"]


class _Memory:
    """What was read last, kept until the variables that it was read from change."""

    __slots__ = ("rank", "rank_text", "reading", "world_text")

    def __init__(self) -> None:
        #: The last torch set, RANK and WORLD_SIZE as text, and the rank that it means.
        self.rank_text: str | None = None
        self.world_text: str | None = None
        self.rank = -1
        #: The last reading of all variables.
        self.reading: Reading | None = None


_memory = _Memory()


class Platform:
    """Who this process is, and what its accelerator is called.

    Every method is static and looked up at each call. Ranks come from torch.distributed once it is initialised, else
    from the launcher's variables, which are read again when they change. A Ray driver is nobody, whatever launched it.
    """

    @staticmethod
    def get_rank() -> int:
        """This process's global rank, -1 when nothing launched it.

        A RANK that contradicts an initialised process group of WORLD_SIZE processes is a `LauncherError`.
        """
        if current.positions == ():
            return -1
        # Everything is looked up here rather than in a helper, since every question of a mesh about itself comes by.
        distributed = modules.get("torch.distributed")
        if distributed is not None and hasattr(distributed, "is_initialized") and distributed.is_initialized():
            return _group_rank(distributed)
        variables = os.environ
        rank, world = variables.get("RANK"), variables.get("WORLD_SIZE")
        if rank is not None and rank == _memory.rank_text and world == _memory.world_text:
            return _memory.rank
        return _read_rank(rank, world)

    @staticmethod
    def get_world_size() -> int:
        """The number of processes in the job, 1 when nothing launched it."""
        distributed = None if current.positions == () else _distributed()
        return _answer("world_size") if distributed is None else int(distributed.get_world_size())

    @staticmethod
    def get_local_rank() -> int:
        """This process's rank among those of its node, -1 when nothing launched it."""
        return _answer("local_rank")

    @staticmethod
    def get_local_world_size() -> int:
        """The number of processes on this node."""
        return _answer("local_world_size")

    @staticmethod
    def get_node_rank() -> int:
        """The number of this node in the job."""
        return _answer("node_rank")

    @staticmethod
    def get_nnodes() -> int:
        """The number of nodes in the job."""
        return _answer("nnodes")

    @staticmethod
    def is_master() -> bool:
        """Whether this is rank 0, or the only process."""
        return Platform.get_rank() <= 0

    @staticmethod
    def is_local_master() -> bool:
        """Whether this is the first process of its node, or the only one."""
        reading = current_reading()
        index = None if reading is None else reading.local_index
        return (Platform.get_local_rank() if index is None else index) <= 0

    @staticmethod
    def is_last_rank() -> bool:
        """Whether this is the last rank of the job, or the only process."""
        rank = Platform.get_rank()
        return rank < 0 or rank == Platform.get_world_size() - 1

    @staticmethod
    def device_prefix(platform: str | None = None) -> str:
        """The torch device type of a family; of this host's accelerator, else `'cuda'`, when none is named."""
        return _family(platform).prefix

    @staticmethod
    def device_backend(platform: str | None = None) -> str:
        """The c10d backend of a family: `'nccl'`, `'hccl'`, `'gloo'`."""
        return _family(platform).backend

    @staticmethod
    def visible_device_env(platform: str | None = None) -> str | None:
        """The variable that lists a family's visible devices; None where there is none (mps, cpu)."""
        return _family(platform).mask

    @staticmethod
    def get_local_device(idx: int | None = None, *, platform: str | None = None) -> str:
        """The device of this process as torch spells it: `'npu:3'`, `'cpu'`.

        `idx` None is the index that `bind` would choose. A host without an accelerator answers `'cpu'` unless a family
        is named. Nothing is imported, bound, or checked against the number of devices.
        """
        from twinkle.platform.binding import device_name

        return device_name(_family(platform, bare="cpu"), idx)

    @staticmethod
    def get_peer_index(target_size: int, rank: int | None = None, world_size: int | None = None) -> slice:
        """Which of `target_size` peers are this process's own.

        Peers are dealt in blocks whose sizes differ by at most one, larger blocks first. With fewer peers than
        processes each process has one, in turn.
        """
        from twinkle.errors import RankError
        from twinkle.platform.checks import whole

        peers = whole(target_size, "target_size", RankError, least=1)
        if world_size is None:
            world_size = Platform.get_world_size()
        processes = whole(world_size, "world_size", RankError, least=1)
        if rank is None:
            # A process that nothing launched is alone, and all peers are its own.
            rank = max(Platform.get_rank(), 0)
        own = whole(rank, "rank", RankError)
        if own >= processes:
            raise RankError(f"rank {own} is not below world_size {processes}", rank=own, world_size=processes)
        if peers < processes:
            return slice(own % peers, own % peers + 1)
        share, more = divmod(peers, processes)
        start = own * share + min(own, more)
        return slice(start, start + share + (own < more))

    @staticmethod
    def bind(platform: str | None = None, *, index: int | None = None) -> Binding:
        """Choose this process's device, check that it is there, make it torch's current one, and report it.

        `platform` None is this host's accelerator, or the CPU when torch has none; a family that is named must be
        there. `index` overrules the local rank.
        """
        from twinkle.platform.binding import bind

        return bind(platform, index=index)


def _distributed() -> Any:
    """torch.distributed when somebody has loaded and initialised it, else None."""
    distributed = modules.get("torch.distributed")
    if distributed is None:
        return None
    initialised = getattr(distributed, "is_initialized", None)
    return distributed if initialised is not None and initialised() else None


def _group_rank(distributed: Any) -> int:
    rank = int(distributed.get_rank())
    said = os.environ.get("RANK")
    if said and said != str(rank):
        _check_group_rank(distributed, rank, said)
    return rank


def _check_group_rank(distributed: Any, rank: int, said: str) -> None:
    """Refuse a RANK of the same world that is another rank; a world of another size belongs to an outer layer."""
    from twinkle.errors import LauncherError
    from twinkle.platform.reading import integer

    size = distributed.get_world_size()
    if integer(os.environ.get("WORLD_SIZE", "")) == size and integer(said) != rank:
        raise LauncherError(
            f"RANK={said} with WORLD_SIZE={size}, but torch.distributed says that this is rank {rank} of {size}",
            rank=rank,
            world_size=size,
        )


def _read_rank(rank: str | None, world: str | None) -> int:
    found = _answer("rank")
    _memory.rank_text, _memory.world_text, _memory.rank = rank, world, found
    return found


def _answer(what: str) -> int:
    reading = current_reading()
    if reading is None:
        from twinkle.platform.launchers import SINGLE

        return SINGLE[what]
    return reading.answer(what)


def current_reading() -> Reading | None:
    """What the environment says now; None on a Ray driver, which launcher variables do not concern."""
    if current.positions == ():
        return None
    reading = _memory.reading
    if reading is None or not reading.current(os.environ):
        from twinkle.platform.reading import read

        reading = _memory.reading = read()
    return reading


def _family(platform: str | None, *, bare: str = "cuda") -> Family:
    from twinkle.platform.detection import detect_family
    from twinkle.platform.families import FAMILIES, family_of

    return (detect_family() or FAMILIES[bare]) if platform is None else family_of(platform)
