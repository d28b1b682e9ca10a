"""Sources in shards: which of them may be read apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.loading import flat, loader_of, mesh_of, steps_of
from tests.sources import Forgetful, InShards
from twinkle.dataloader.shards import all_dealt, shards_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.filterwarnings("ignore:this IterableDataset would have other rows"),
    pytest.mark.filterwarnings("ignore:the .* shards of this"),
]


def stream(shards: int = 4, rows: int = 32, first: int = 0) -> Any:
    import datasets

    return datasets.Dataset.from_dict({"x": list(range(first, first + rows))}).to_iterable_dataset(num_shards=shards)


def other() -> Any:
    return stream(2, 16, 100)


def concatenated(*parts: Any) -> Any:
    import datasets

    return datasets.concatenate_datasets(list(parts))


def interleaved(*parts: Any) -> Any:
    import datasets

    return datasets.interleave_datasets(list(parts))


def of_node(source: Any) -> Any:
    from datasets.distributed import split_dataset_by_node

    return split_dataset_by_node(source, rank=0, world_size=1)


def kept(row: dict[str, Any], *_: Any) -> dict[str, Any]:
    return row


def even(row: dict[str, Any], *_: Any) -> bool:
    return bool(row["x"] % 2 == 0)


READ_APART: dict[str, Callable[[], Any]] = {
    "plain": stream,
    "map": lambda: stream().map(kept).filter(even).select_columns(["x"]),
    "batched map": lambda: stream().map(kept, batched=True),
    "shuffle": lambda: stream().shuffle(seed=3, buffer_size=8),
    "shuffle of mapped": lambda: stream().map(kept).shuffle(seed=3, buffer_size=8).map(kept),
    "repeat": lambda: stream().repeat(2),
    "format": lambda: stream().with_format("numpy"),
    "concatenate": lambda: concatenated(stream(), other()),
    "shard": lambda: stream(8).shard(num_shards=2, index=0),
    "one node": lambda: of_node(stream()),
}
READ_WHOLE: dict[str, Callable[[], Any]] = {
    "take": lambda: stream().take(8),
    "skip": lambda: stream().skip(8),
    "map after take": lambda: stream().take(8).map(kept),
    "shuffle after skip": lambda: stream().skip(8).shuffle(seed=3, buffer_size=8),
    "take after shuffle": lambda: stream().shuffle(seed=3, buffer_size=8).take(8),
    "interleave": lambda: interleaved(stream(), other()),
    "concatenate of taken": lambda: concatenated(stream(), other().take(9)),
    "one node of taken": lambda: of_node(stream().take(8)),
    "take of one node": lambda: of_node(stream()).take(8),
    "filter by index": lambda: stream().filter(lambda row, index: index % 4 == 0, with_indices=True),
    "map with index": lambda: stream().map(kept, with_indices=True),
    "new column": lambda: stream().add_column("y", list(range(32))),
    "batches of rows": lambda: stream().batch(3),
    "batches of rows without the last": lambda: stream().batch(3, drop_last_batch=True),
}


def rows_of(source: Any) -> list[str]:
    return sorted(map(repr, source))


@pytest.mark.parametrize("made", READ_APART.values(), ids=READ_APART)
def test_a_stream_of_hugging_face_that_keeps_its_rows_is_read_apart(made: Callable[[], Any]) -> None:
    whole = made()
    assert shards_of(whole) == whole.num_shards > 1
    for lanes in {2, whole.num_shards}:
        lane = [made().shard(num_shards=lanes, index=index) for index in range(lanes)]
        assert rows_of(row for source in lane for row in source) == rows_of(whole)


@pytest.mark.parametrize("made", READ_WHOLE.values(), ids=READ_WHOLE)
def test_a_stream_of_hugging_face_that_would_have_other_rows_is_read_whole(made: Callable[[], Any]) -> None:
    whole = made()
    assert whole.num_shards > 1 == shards_of(whole)
    with pytest.warns(UserWarning, match=rf"if its {whole.num_shards} shards were read apart, so each of 2 data ranks"):
        loader_of(mesh_of(dp=2), 0, whole, batch_size=4)
    for batch in (2, 8):
        assert set(rows_of(flat(steps_of(mesh_of(dp=2), made(), batch_size=batch, tail="pad")))) == set(rows_of(whole))


@pytest.mark.parametrize("batch", [2, 5, 8])
def test_what_is_held_out_of_a_stream_is_never_trained_on(batch: int) -> None:
    held, rest = (
        {row["x"] for row in flat(steps_of(mesh_of(dp=2), part, batch_size=batch, tail="pad"))}
        for part in (stream().take(8), stream().skip(8))
    )
    assert held == set(range(8))
    assert rest == set(range(8, 32))


def test_a_kind_of_stream_that_is_not_known_is_read_whole() -> None:
    import datasets.iterable_dataset as library

    class Sampled(library.FilteredExamplesIterable):  # type: ignore[misc]
        """A kind of its own, though it is called as one that is known."""

    Sampled.__name__ = "FilteredExamplesIterable"
    known = stream().filter(even)
    assert shards_of(known) == 4
    known._ex_iterable.__class__ = Sampled
    assert shards_of(known) == 1
    bare = stream()
    del bare._ex_iterable
    bare.__class__ = type("Later", (library.IterableDataset,), {"num_shards": 4})
    assert shards_of(bare) == 1


def test_shards_that_would_be_forgotten_are_not_dealt() -> None:
    assert [all_dealt(Forgetful([1] * 6), lanes) for lanes in (1, 2, 4, 6, 8)] == [True, True, False, True, False]
    assert [all_dealt(InShards([1] * 6), lanes) for lanes in (1, 2, 4, 6, 8)] == [True, True, True, True, False]
    assert sorted(flat(steps_of(mesh_of(dp=4), Forgetful([4] * 6), batch_size=8))) == list(range(24))
