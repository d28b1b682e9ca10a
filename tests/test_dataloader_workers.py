"""What a torch worker is told: the data set of the caller, as in torch, and of a stream's source nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset, get_worker_info

from tests.loading import flat
from twinkle.dataloader import DataLoader

if TYPE_CHECKING:
    from collections.abc import Iterator


class Opened:
    """Rows that need something which each worker opens for itself."""

    handle = "closed"

    def __len__(self) -> int:
        return 4

    def __getitem__(self, row: int) -> tuple[int, str, bool]:
        info = get_worker_info()
        return row, self.handle, info is not None and info.dataset is self  # type: ignore[comparison-overlap]


class OpenedStream(IterableDataset[Any]):
    """The same as a stream, which never sees that a worker reads it."""

    handle = "closed"

    def __iter__(self) -> Iterator[Any]:
        return ((row, self.handle, get_worker_info() is None) for row in range(4))


def opening(worker: int) -> None:
    info: Any = get_worker_info()
    assert (info.id, info.num_workers) == (worker, 2)
    info.dataset.handle = f"opened by {worker}"


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("kind", [Opened, OpenedStream])
def test_a_worker_opens_what_the_data_set_of_the_caller_needs(kind: Any, context: str) -> None:
    options: dict[str, Any] = {"num_workers": 2, "worker_init_fn": opening, "multiprocessing_context": context}
    loader = DataLoader(kind(), batch_size=2, collate_fn=list, **options)
    rows = [(row, f"opened by {row // 2}", True) for row in range(4)]
    assert flat(loader) == rows
    if (kind, context) == (Opened, "fork"):
        assert flat(loader) == flat(TorchLoader[Any](kind(), batch_size=2, collate_fn=list, **options)) == rows


def test_the_data_set_is_told_without_a_function_of_the_caller() -> None:
    loader = DataLoader(Opened(), batch_size=2, num_workers=1, collate_fn=list)
    assert flat(loader) == [(row, "closed", True) for row in range(4)]


def test_what_is_called_in_a_worker_is_checked_when_the_loader_is_made() -> None:
    with pytest.raises(ValueError, match="worker_init_fn must be callable or None, not 3"):
        DataLoader(Opened(), batch_size=2, num_workers=1, worker_init_fn=3)
