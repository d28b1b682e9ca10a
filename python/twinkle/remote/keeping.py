"""Where rows lie in local mode: in this process, or with the ranks of a launcher, each its own shard."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from twinkle.errors import PlacementError, RemoteCallError
from twinkle.platform import Platform
from twinkle.remote import rows as row_tools
from twinkle.remote.agreement import ranks_text
from twinkle.remote.drawing import draws_of_map
from twinkle.remote.exchange import Exchange, exchange
from twinkle.remote.graphs import without_graphs
from twinkle.remote.handle import Piece, Sharded, Store, replaced
from twinkle.remote.ownership import copied
from twinkle.remote.session import current_session
from twinkle.remote.turns import turn
from twinkle.remote.waiting import note_others, told_by

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from twinkle.mesh import DeviceMesh
    from twinkle.plan import Layout, Placement
    from twinkle.remote.handover import Cuts

    #: What a function draws from while it makes one piece.
    Draws = Callable[[int], AbstractContextManager[None]]

__all__ = ["Keeper", "check_ranks", "described", "key_of", "local_handle", "local_keeper"]


class Keeper:
    """Reads what the ranks of one call have kept; `made_by` says in words which call that was."""

    def __init__(
        self,
        peers: Callable[[], Exchange | None],
        placement: Placement,
        ranks: list[int],
        made_by: str,
        *,
        last: bool = False,
    ) -> None:
        self._peers, self.placement, self.ranks, self.made_by = peers, placement, ranks, made_by
        #: Whether the rows are read once and kept no longer.
        self.last = last
        self.shard_of = placement.shard_of_worker.tolist()

    @property
    def peers(self) -> Exchange | None:
        """The processes of the job, None where this is the only one; asked for when rows are to be moved."""
        return self._peers()

    def shard_here(self, rank: int) -> int | None:
        """The shard that a rank has, None outside the mesh."""
        return self.shard_of[self.ranks.index(rank)] if rank in self.ranks else None

    @staticmethod
    def read(asked: Sequence[tuple[Piece, Cuts]], timeout: float | None = None) -> list[Any]:
        """Rows of some pieces, of one call or of several; under a launcher every rank asks for the same."""
        found: list[Any] = [None] * len(asked)
        mine: dict[int, Any] = {}
        peers = _peers_of(asked)
        for at, (piece, cuts) in enumerate(asked):
            keeper: Keeper = piece.store.keeper
            if peers is None:
                # What is stored stays what it was, whatever becomes of the rows that are handed out.
                found[at] = _rows(piece, cuts) if keeper.last else copied(_rows(piece, cuts))
            elif keeper.ranks[keeper.placement.holders(piece.shard).tolist()[0]] == peers.rank:
                mine[at] = _rows(piece, cuts)
        if peers is not None:
            pieces = [piece for piece, _ in asked]
            with peers.during(None, timeout, f"reads rows of {described(pieces)}"):
                for one in peers.gathered(mine, "rows of its shard", _rows_text(asked), _key_of_asked(asked)):
                    for at, rows in one.items():
                        found[at] = rows
        return found

    @staticmethod
    def mapped(asked: Sequence[tuple[Piece, Cuts]], function: Any, timeout: float | None = None) -> list[Piece]:
        """Applies a function to those of these rows that this rank has; under a launcher every rank calls it alike."""
        peers, pieces = _peers_of(asked), [piece for piece, _ in asked]
        draws = draws_of_map(launched=peers is not None)
        if peers is None:
            made = _made(asked, function, draws)
            known = {at: row_tools.lengths(rows) for at, rows in made.items()}
        else:
            with peers.during("map", timeout, f"maps rows of {described(pieces)}"):
                made, known = _made_together(peers, asked, function, draws)
        holders = [((None, [made[at]] if at in made else None),) for at in range(len(asked))]
        found = replaced(pieces, holders, [known.get(at) for at in range(len(asked))])
        if peers is None:
            return found
        numbered = {store: replace(store, identity=peers.count) for store in {piece.store for piece in found}}
        return [piece._replace(store=numbered[piece.store]) for piece in found]


def described(pieces: Sequence[Piece]) -> str:
    """Whose rows these are, in words that are the same on every rank."""
    stores = list(dict.fromkeys(piece.store for piece in pieces))
    text = f"{stores[0].keeper.made_by} (handle {stores[0].identity})"
    return text if len(stores) == 1 else f"{text} and {len(stores) - 1} more"


def key_of(pieces: Sequence[Piece]) -> int:
    """A number of the pieces, the same on every rank that has these."""
    # Of numbers alone, whose hash no process salts.
    return hash(tuple((piece.store.identity, piece.shard, piece.leaf) for piece in pieces))


def _key_of_asked(asked: Sequence[tuple[Piece, Cuts]]) -> int:
    return hash((key_of([piece for piece, _ in asked]), tuple(tuple(cuts) for _, cuts in asked)))


def _rows_text(asked: Sequence[tuple[Piece, Cuts]]) -> str:
    """The rows of the first piece and of the last, in words."""
    ends = [(piece.shard, cuts[0][0], cuts[-1][1] - 1) for piece, cuts in asked if cuts]
    if not ends:
        return "no rows"
    (shard, first, _), (to_shard, _, last) = ends[0], ends[-1]
    start = f"row {first} of shard {shard}"
    return start if (shard, first) == (to_shard, last) else f"{start} to row {last} of shard {to_shard}"


def check_ranks(mesh: DeviceMesh, what: str) -> None:
    """Refuses a mesh with ranks that the job does not have."""
    size = Platform.get_world_size()
    ranks = [mesh.rank_at(position) for position in range(mesh.world_size)]
    beyond = [rank for rank in ranks if not 0 <= rank < size]
    if beyond:
        raise PlacementError(
            f"{what}: {mesh!r} has {ranks_text(ranks)}, and this job has {size} processes, ranks 0 to {size - 1}: "
            f"start {max(ranks) + 1} processes, or give a mesh of at most {size} of these ranks",
            ranks=beyond,
            job_size=size,
        )


def _peers_of(asked: Sequence[tuple[Piece, Cuts]]) -> Exchange | None:
    """The processes that have these pieces."""
    found: Exchange | None = asked[0][0].store.keeper.peers
    return found


def _rows(piece: Piece, cuts: Cuts) -> Any:
    """Rows of a piece that is here."""
    return row_tools.take(piece.store.holders[piece.shard][0][1][piece.leaf], cuts)


def _made(asked: Sequence[tuple[Piece, Cuts]], function: Any, draws: Draws) -> dict[int, list[Any]]:
    """What a function makes of the rows that are here, drawing as it does for each piece."""
    here = [(at, one) for at, one in enumerate(asked) if one[0].store.holders[one[0].shard][0][1] is not None]
    made, doing = {}, f"maps rows of {described([piece for piece, _ in asked])}"
    for at, one in here:
        rows = copied(_rows(*one))
        with turn("map", doing), draws(at):
            made[at] = without_graphs([function(row) for row in row_tools.each(rows)], {})
    return made


def _made_together(
    peers: Exchange, asked: Sequence[tuple[Piece, Cuts]], function: Any, draws: Draws
) -> tuple[Any, Any]:
    """The same, and how long the rows of every rank are; what is raised on one rank is raised on all."""
    made: dict[int, list[Any]] = {}
    lengths: dict[int, Any] = {}
    failure: BaseException | None = None
    try:
        made = _made(asked, function, draws)
        lengths = {at: row_tools.lengths(rows) for at, rows in made.items()}
    except BaseException as error:  # an interrupt as well: the others wait for this rank
        failure = error
    told = peers.gathered((told_by(failure), lengths), "what it made", _rows_text(asked), _key_of_asked(asked))
    if failure is not None and not isinstance(failure, Exception):
        raise failure
    failed = {rank: said for rank, (said, _) in enumerate(told) if said is not None}
    if failed:
        rank = min(failed) if failure is None else peers.rank
        words, trace = failed.pop(rank)
        refusal = RemoteCallError(f"map failed on rank {rank}: {words}", method="map", rank=rank)
        if failure is None:
            refusal.add_note(f"on rank {rank}:\n{trace}")
        note_others(refusal, [f"rank {one}: {text}" for one, (text, _) in failed.items()])
        raise refusal from failure
    return made, {at: known for _, those in told for at, known in those.items()}


def local_keeper(mesh: DeviceMesh, made_by: str = "what every rank has brought") -> Keeper:
    """Who has the rows that every rank of a mesh brings: replicas have equal ones, and the nearest sends them.

    Ranks outside the mesh are asked for nothing before rows are to be moved.
    """
    session = current_session()

    def peers() -> Exchange | None:
        if current_session() is not session:
            raise RemoteCallError("reading rows: the job that the rows belong to was shut down", method="reading rows")
        return exchange()

    ranks = [mesh.rank_at(place) for place in range(mesh.world_size)]
    return Keeper(peers, mesh.placement(1, None, "any"), ranks, made_by)


def local_handle(rows: Any, layout: Layout, keeper: Keeper, name: str = "rows", number: int = 0) -> Sharded:
    """A handle of rows that every rank has already: this rank's shard of the layout, None outside the mesh.

    Makes no collective; `number` tells handles apart, and is the same on every rank.
    """
    launched = Platform.get_world_size() > 1 and Platform.get_rank() >= 0
    shard = keeper.shard_here(Platform.get_rank() if launched else keeper.ranks[0])
    holders = tuple(((None, [rows] if at == shard else None),) for at in range(layout.shards))
    return Sharded(layout, Store(keeper, holders, number).pieces(), name)
