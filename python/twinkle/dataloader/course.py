"""How a stream's batches are made of its source, and which part of the source a rank must read for its share."""

from __future__ import annotations

import re
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

from twinkle.dataloader.shards import all_dealt, shards_of
from twinkle.errors import PlanError

if TYPE_CHECKING:
    from twinkle.dataloader.place import Place

__all__ = ["Course", "course_named", "course_of"]


class Course(NamedTuple):
    """How a batch is made of a source: `lanes` shards of it side by side, `each` rows of every one.

    With one lane a batch is simply the next rows. With more, batch row p comes from lane `p // each`, whatever the
    number of data ranks is, so a rank opens only the lanes of its share. `split` is the number of data ranks that the
    source was cut for by its owner, 0 where it was not.
    """

    lanes: int
    each: int
    split: int = 0
    #: Whether a rank reads only its own lanes. Then only all ranks together know when a batch is short.
    apart: bool = False

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
    alone = place.shard is None or place.shards == 1
    lanes = 1 if alone else gcd(shards_of(source), batch_size // group)
    return Course(lanes, batch_size // lanes)


def course_named(name: str, own: Course, source: Any) -> Course:
    """The course of a saved cursor, where this source and batch size can follow it; else the loader's own."""
    found = re.fullmatch(r"stream of (\d+) lanes by (\d+)", name)
    size = own.lanes * own.each
    if own.split or not (found or name == "stream"):
        return own
    lanes, each = (int(found[1]), int(found[2])) if found else (1, size)
    return Course(lanes, each) if lanes * each == size and all_dealt(source, lanes) else own
