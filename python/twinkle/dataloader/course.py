"""How a stream's batches are made of its source, and which part of the source a rank must read for its share."""

from __future__ import annotations

import re
import warnings
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from twinkle.dataloader.shards import all_dealt, offered_by, shards_of
from twinkle.errors import PlanError
from twinkle.plan import Layout

if TYPE_CHECKING:
    from twinkle.dataloader.place import Place

__all__ = ["Course", "course_named", "course_of"]


class Course(NamedTuple):
    """How a batch is made of a source: `lanes` shards of it side by side, `each` rows of every one.

    With one lane a batch is simply the next rows. With more, batch row p comes from lane `p // each`, whatever the
    number of data ranks is, so a rank opens only the lanes of its share. Lanes need not be equally long: when some have
    ended, the rows of the others follow one another in the same order, and fill batches as they come. `split` is the
    number of data ranks that the source was cut for by its owner, 0 where it was not.
    """

    lanes: int
    each: int
    split: int = 0
    #: Whether a rank reads only its own lanes. Then only all ranks together know when a batch is short.
    apart: bool = False

    @property
    def in_parts(self) -> bool:
        """Whether several parts of the source make up a batch."""
        return self.lanes > 1 or self.split > 0

    @property
    def name(self) -> str:
        """What a saved cursor must find again."""
        if self.split:
            return f"stream split over {self.split}"
        return "stream" if self.lanes == 1 else f"stream of {self.lanes} lanes by {self.each}"


def course_of(source: Any, batch_size: int, place: Place, group: int) -> Course:
    """The course that suits a source and a place: its shards where it offers them and there are ranks to use them.

    PlanError for a source that was split for other data ranks than this one.
    """
    # How `datasets` remembers `split_dataset_by_node`; it says so nowhere in public.
    split = getattr(source, "_distributed", None)
    ranks, rank = getattr(split, "world_size", 1), getattr(split, "rank", 0)
    if ranks > 1:
        if ranks != place.shards or rank != place.shard:
            raise PlanError(
                f"the data set was split by its owner for rank {rank} of {ranks}, but this process is data rank "
                f"{place.shard} of {place.shards}; hand over the whole data set, it is cut here",
                rank=rank,
                ranks=ranks,
                data_rank=place.shard,
                data_world_size=place.shards,
            )
        return Course(1, batch_size, ranks, apart=True)
    lanes = 1 if place.shard is None or place.shards == 1 else _lanes(source, batch_size, place.shards, group)
    return Course(lanes, batch_size // lanes)


def _lanes(source: Any, batch_size: int, ranks: int, group: int) -> int:
    """How many lanes suit so many data ranks: those of which the fewest are read by several ranks.

    Of these the ones whose longest has the fewest shards, since what is left of it when the others have ended goes
    round; and then the most. Warns where ranks read what is another's.
    """
    shards, groups = shards_of(source), batch_size // group
    if shards < (offered := offered_by(source)):
        warnings.warn(
            f"this {type(source).__name__} would have other rows if its {offered} shards were read apart, so each of "
            f"{ranks} data ranks reads all of it: it is made with take, skip, batch, interleaving, indices "
            "or drop_last_batch, or with what is not known here",
            stacklevel=5,
        )
    ends = list(accumulate(Layout.even(batch_size, ranks, group=group).sizes.tolist()))

    def read(lanes: int) -> int:
        each = batch_size // lanes
        return sum(-(-end // each) - start // each for start, end in pairwise([0, *ends]))

    choices = [lanes for lanes in range(1, min(shards, groups) + 1) if groups % lanes == 0]
    choices.sort(key=lambda lanes: (read(lanes) / lanes, -(-shards // lanes) * lanes, -lanes))
    # One lane takes any source as it is.
    lanes = next(lanes for lanes in choices if all_dealt(source, lanes))
    if shards > 1 and read(lanes) > lanes:
        suited = -(-batch_size // (ranks * group)) * ranks * group
        advice = f"batch_size={suited} would let each read only its own"
        if shards < ranks or not all_dealt(source, ranks):
            advice = f"with a multiple of {ranks} shards each can read only its own"
        warnings.warn(
            f"the {shards} shards of this {type(source).__name__} are read in {lanes} lanes by {ranks} data ranks, "
            f"which together read each row {read(lanes) / lanes:.3g} times; {advice}",
            stacklevel=5,
        )
    return lanes


def course_named(name: str, own: Course, source: Any) -> Course:
    """The course of a saved cursor, where this source and batch size can follow it; else the loader's own."""
    found = re.fullmatch(r"stream of (\d+) lanes by (\d+)", name)
    size = own.lanes * own.each
    if own.split or not (found or name == "stream"):
        return own
    lanes, each = (int(found[1]), int(found[2])) if found else (1, size)
    return Course(lanes, each) if lanes * each == size and all_dealt(source, lanes) else own
