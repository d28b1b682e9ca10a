"""What a data loader is given, checked before anything is read: the data set, the order, torch's own keywords."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from inspect import signature
from typing import Any

from twinkle.dataloader.cut import Cut, EvenGrid, GivenGrid, Grid, Tail, nominal_size
from twinkle.dataloader.order import Listed, Order, Permuted, Sequential, declared_length
from twinkle.dataloader.owned import parts_of
from twinkle.errors import PlanError
from twinkle.platform.checks import shown, whole

__all__ = [
    "check_order",
    "check_shares",
    "check_sizes",
    "check_uncut",
    "checked_keywords",
    "grid_of",
    "is_stream",
    "order_of",
    "rows_in",
    "tail_of",
]

#: Keywords of torch's loader that would take the order, or a part of it, out of twinkle's hands.
_TAKEN = {
    "drop_last": "say tail='drop'",
    "generator": "the order comes from seed= and the epoch, never from a generator",
    "in_order": "batches always come in order",
}


def is_stream(dataset: Any) -> bool:
    """Whether a data set is read from its beginning rather than by index; PlanError for what is no data set."""
    from torch.utils.data import IterableDataset

    if isinstance(dataset, Iterator):
        raise PlanError(
            f"a {type(dataset).__name__} can be read only once, by one process and for one epoch; give an object "
            "whose __iter__ "
            "begins anew"
        )
    if isinstance(dataset, IterableDataset):
        return True
    if isinstance(dataset, Set):
        raise PlanError(f"a {type(dataset).__name__} has no order that two processes share; give a sorted list of it")
    if hasattr(dataset, "__getitem__"):
        return False
    if isinstance(dataset, Iterable):
        return True
    raise PlanError(
        f"dataset must have __getitem__ and __len__, or __iter__; {shown(dataset)} ({type(dataset).__name__}) has "
        "neither"
    )


def rows_in(dataset: Any) -> int:
    """How many rows a data set has; PlanError where it does not say."""
    rows = declared_length(dataset)
    if rows is None:
        raise PlanError(
            f"a {type(dataset).__name__} is read by index but has no __len__, so its rows cannot be shared out; a "
            "sampler= can say them"
        )
    return whole(rows, "the length of the data set", PlanError)


def checked_keywords(keywords: dict[str, Any]) -> dict[str, Any]:
    """The keywords that torch's loader takes as they are; PlanError for others, naming them."""
    from torch.utils.data import DataLoader

    own = {"self", "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "collate_fn"}
    accepted = set(signature(DataLoader.__init__).parameters) - own - set(_TAKEN)
    for name in keywords:
        if name in _TAKEN:
            raise PlanError(f"{name}= is not accepted: {_TAKEN[name]}", keyword=name)
        if name not in accepted:
            raise PlanError(
                f"a DataLoader has no keyword {name!r}; of torch's it takes {sorted(accepted)}", keyword=name
            )
    workers = keywords.get("num_workers", 0)
    whole(workers, "num_workers", PlanError)
    return keywords


def check_order(dataset: Any, *, shuffle: Any, batch_size: Any, sampler: Any, batch_sampler: Any) -> None:
    """Refuses an order that nobody or more than one says, and any for a stream."""
    if not isinstance(shuffle, bool):
        raise PlanError(f"shuffle must be True or False, not {shown(shuffle)}")
    if (batch_size is None) == (batch_sampler is None):
        given = "neither" if batch_size is None else f"both, batch_size={shown(batch_size)}"
        words = f"give exactly one of batch_size (of the global batch) and batch_sampler, not {given}"
        if batch_size is None and is_stream(dataset):
            words += (
                "; of a stream of ready batches, batch_size is how many the data ranks take together, one each, and "
                "collate_fn=operator.itemgetter(0) leaves them as they are"
            )
        raise PlanError(words)
    said = {"shuffle": shuffle, "sampler": sampler is not None, "batch_sampler": batch_sampler is not None}
    named = [name for name, given in said.items() if given]
    if named and is_stream(dataset):
        raise PlanError(f"a {type(dataset).__name__} is a stream, which comes in its own order; leave out {named}")
    if len(named) > 1:
        raise PlanError(f"{named} each say the order of the rows; give one of them")


#: How what gives the rows of one rank says of how many ranks, and of which: torch's and transformers' samplers,
#: accelerate's shards, `DeviceMeshSampler`, Megatron's samplers, torch's sharding filter.
_CUT = {
    "num_replicas": "rank",
    "num_processes": "process_index",
    "shards": "device_mesh",
    "data_parallel_size": "data_parallel_rank",
    "num_of_instances": "instance_id",
}


def check_uncut(dataset: Any, sampler: Any, shards: int) -> None:
    """Refuses data or a sampler that gives the rows of one rank already: cut again, most rows would reach nobody."""
    if shards < 2:
        return
    parts = {"data set": [dataset], "sampler": parts_of(sampler)}
    for kind, one in ((kind, one) for kind, ones in parts.items() for one in ones):
        for name, own in _CUT.items():
            ranks = getattr(one, name, 1)
            if isinstance(ranks, int) and ranks > 1 and hasattr(one, own):
                raise PlanError(
                    f"a {type(one).__name__} gives the rows of one rank of {ranks} already, and the mesh would cut "
                    f"them again for {shards} data ranks; hand over the whole {kind}",
                    ranks=ranks,
                    data_world_size=shards,
                )


def check_sizes(batch_size: int | None, min_batch_size: int, group: int) -> None:
    """Refuses batches that tear groups, or that are all too short."""
    if batch_size is not None and batch_size % group:
        raise PlanError(f"batch_size {batch_size} is no multiple of group={group}", batch_size=batch_size, group=group)
    if batch_size is not None and min_batch_size > batch_size:
        raise PlanError(
            f"min_batch_size {min_batch_size} is above batch_size {batch_size}",
            min_batch_size=min_batch_size,
            batch_size=batch_size,
        )


def check_shares(batch_size: int | None, shards: int, group: int) -> None:
    """Refuses batches that are too small to be shared."""
    least = shards * group
    if batch_size is not None and batch_size < least:
        each = "a row" if group == 1 else f"a group of {group} rows"
        raise PlanError(
            f"batch_size={batch_size} is the size of the global batch, of which each of the mesh's {shards} data ranks "
            f"needs {each}: it must be at least {least}",
            batch_size=batch_size,
            data_world_size=shards,
            group=group,
            least=least,
        )


def tail_of(tail: Any) -> Tail:
    """A tail rule by its name."""
    if tail in ("keep", "drop", "pad"):
        return tail  # type: ignore[no-any-return]
    raise PlanError(f"tail must be 'keep', 'drop' or 'pad', not {shown(tail)}")


def order_of(dataset: Any, *, sampler: Any, batch_sampler: Any, shuffle: bool, seed: int, group: int) -> Order:
    """The order of a map-style data set."""
    given = sampler if batch_sampler is None else batch_sampler
    if given is not None:
        if not isinstance(given, Iterable):
            raise PlanError(f"a sampler must be iterable, not a {type(given).__name__}")
        if isinstance(given, Iterator):
            raise PlanError(
                f"a {type(given).__name__} can be read only once; give a sampler whose __iter__ begins anew"
            )
        return Listed(given, seed, batches=batch_sampler is not None)
    rows = rows_in(dataset)
    if rows % group:
        raise PlanError(
            f"the data set has {rows} rows, which are no multiple of group={group}: its last group would be torn",
            rows=rows,
            group=group,
        )
    return Permuted(rows, seed, group) if shuffle else Sequential(rows)


def grid_of(order: Order, epoch: int, batch_size: int | None, declared: Any, cut: Cut) -> Grid:
    """The batches of an epoch."""
    if batch_size is None:
        assert isinstance(order, Listed)
        sizes = order.sizes(epoch)
        return GivenGrid(sizes, nominal_size(sizes, declared), cut)
    rows = order.length(epoch)
    if rows % cut.group:
        raise PlanError(
            f"the sampler gives {rows} rows, which are no multiple of group={cut.group}", rows=rows, group=cut.group
        )
    return EvenGrid(rows, batch_size)
