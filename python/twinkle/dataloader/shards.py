"""Whether a source can be read in parts: its shards, and whether it gives the same rows when they are read apart."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["all_dealt", "offered_by", "shards_of"]

#: What a stream of `datasets` may be made of so that its shards, read apart, have the rows of the whole: names of the
#: kinds in its chain, those that it begins with and those that hand rows on one by one.
_STEADY = frozenset(
    {
        "ArrowExamplesIterable",
        "BufferShuffledExamplesIterable",
        "ExamplesIterable",
        "FilteredExamplesIterable",
        "FormattedExamplesIterable",
        "InterleavedShardsExamplesIterable",
        "MappedExamplesIterable",
        "RebatchedArrowExamplesIterable",
        "RepeatExamplesIterable",
        "SelectColumnsIterable",
        "VerticallyConcatenatedMultiSourcesExamplesIterable",
    }
)
#: What such a kind must not do: count rows, and drop what is left of them.
_COUNTING = ("with_indices", "drop_last_batch")


def offered_by(source: Any) -> int:
    """How many shards a source says it has, with `num_shards` and `shard(num_shards=, index=)`; 1 where it does not."""
    offered = getattr(source, "num_shards", 1)
    if not callable(getattr(source, "shard", None)) or not isinstance(offered, int) or offered < 1:
        return 1
    return offered


def shards_of(source: Any) -> int:
    """How many shards of a source can be read apart; 1 where it offers none, or has other rows then.

    What sources say is believed; only those of `datasets` are looked into.
    """
    return offered_by(source) if _is_steady(source) else 1


def all_dealt(source: Any, lanes: int) -> bool:
    """Whether a source that is split into so many lanes deals all of its shards out, also where they do not divide.

    Some give every lane as many and forget the rest.
    """
    offered = shards_of(source)
    if lanes <= 1 or lanes > offered:
        return lanes == 1
    if offered % lanes == 0 or _class_of_datasets(source):
        return True
    dealt = [getattr(source.shard(num_shards=lanes, index=lane), "num_shards", 0) for lane in range(lanes)]
    return all(isinstance(number, int) for number in dealt) and sum(dealt) == offered


def _class_of_datasets(source: Any) -> bool:
    module = sys.modules.get("datasets.iterable_dataset")
    return module is not None and isinstance(source, module.IterableDataset)


def _is_steady(source: Any) -> bool:
    """Whether a stream of `datasets` has the same rows when its shards are read apart; True for any other source.

    `take` and `skip` are shared out over the shards: each gives or leaves out a part of the number. `interleave` mixes
    the shards with one another, what counts rows begins to count anew in each, and `drop_last_batch` drops the end of
    each. The library says so nowhere in public: its chain of operations lies in `_ex_iterable`, each with what it is
    made of in `ex_iterable` or `ex_iterables`. A kind that is not known here is not trusted.
    """
    if not _class_of_datasets(source):
        return True
    waiting: list[Any] = [getattr(source, "_ex_iterable", None)]
    for node in waiting:
        kind = type(node)
        if kind.__module__ != "datasets.iterable_dataset" or kind.__name__ not in _STEADY:
            return False
        if any(getattr(node, name, False) for name in _COUNTING):
            return False
        if getattr(getattr(node, "function", None), "__module__", None) == kind.__module__:
            # Rows are put together by a function of the library's own: those of a shard would be, each by itself.
            return False
        # The list grows while it is gone through.
        waiting += getattr(node, "ex_iterables", [])
        waiting += [node.ex_iterable] if hasattr(node, "ex_iterable") else []
    return True
