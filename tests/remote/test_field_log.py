"""What goes wrong elsewhere, on a real local Ray: one test for each kind that no other file here has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.remote import components
from tests.waiting import PATIENCE, becomes, wait_for
from twinkle import DeviceMesh, Rows, remote_class, remote_function
from twinkle.errors import PlanError, RemoteCallError
from twinkle.platform import Platform
from twinkle.remote import RemoteDataLoader, collect_tensor_dict, engine_ray, traffic
from twinkle.remote.waiting import results_of

pytestmark = pytest.mark.usefixtures("job")

Loader: Any = RemoteDataLoader


@remote_class()
class _Reporter:
    """Returns what public collectors have stumbled over."""

    device_mesh: DeviceMesh

    @remote_function(dispatch="slice_dp")
    def seen(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", collect="flatten", sync=True)
    def same(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", collect=collect_tensor_dict)
    def columns(self, rows: Any) -> Any:
        return {"id": np.array(rows), "text": [str(row) for row in rows], "ref": {"logps": 0.5}}

    @remote_function(dispatch="slice_dp", execute="peer", collect="flatten", sync=True)
    def of_peer(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", execute="first", collect="flatten", sync=True)
    def of_first(self, rows: Any) -> Any:
        return rows

    @remote_function(dispatch="slice_dp", collect="mean", result_rows={"tags": "list", "widest": "max"})
    def metrics(self, rows: Any) -> Any:
        return {
            "loss": np.array(float(rows[0])),
            "heads": np.array([rows[0], rows[0] * 2.0]),
            "widest": np.array([rows[0], -rows[0]]),
            "tags": [],
        }

    @remote_function(dispatch="slice_dp", collect="mean")
    def of_last_stage(self, rows: Any) -> Any:
        mesh = self.device_mesh
        return {"loss": float(rows[0])} if mesh.pp_rank == mesh.pp_world_size - 1 else None

    @remote_function(dispatch="slice_dp", collect="flatten", result_rows=("ids",), sync=True)
    def uneven(self, rows: Any, lacks: str) -> Any:
        whole = {"ids": list(rows), "loss": 1.0}
        if self.device_mesh.data_rank == 0 and lacks == "rows":
            return {**whole, "ids": None}
        if self.device_mesh.data_rank == 1 and lacks == "key":
            del whole["loss"]
        return whole

    @remote_function(timeout=0.5, sync=True)
    def waits(self, go: Path, ranks: tuple[int, ...] = (0, 1)) -> None:
        if self.device_mesh.data_rank in ranks:
            wait_for(go)


Reporter: Any = _Reporter


def made(group: str, *, ulysses: int = 1, **sizes: int) -> Any:
    return Reporter(device_mesh=DeviceMesh.from_axes(sizes).replace(ulysses_size=ulysses), remote_group=group)


@pytest.mark.parametrize(
    ("group", "sizes", "n"),
    [
        ("cpu8", {"dp": 4, "fsdp": 2}, 8),  # D1
        ("cpu8", {"fsdp": 2, "dp": 4}, 9),
        ("cpu4", {"dp": 2, "tp": 2}, 4),  # D9
        ("cpu4", {"cp": 2, "dp": 2}, 4),  # D14
        ("cpu8", {"dp": 8, "ulysses": 2}, 8),
        ("cpu2", {"fsdp": 2}, 3),  # D10
        ("cpu2", {"tp": 2}, 3),
    ],
)
def test_every_row_is_returned_once_and_in_order_by_every_collector(group: str, sizes: dict[str, int], n: int) -> None:
    reporter, rows = made(group, **sizes), list(range(n))
    assert reporter.same(rows) == rows
    found = reporter.columns(rows)
    assert found["id"].tolist() == rows
    assert found["text"] == [str(row) for row in rows]
    assert sum(map(len, reporter.seen(rows))) == n * int(group[3:]) // reporter.device_mesh.data_world_size


def test_peers_have_all_rows_together_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    # D8: both drivers got the same half of the shards.
    reporter, found = made("cpu8", dp=8), []
    for driver in range(2):
        mine = slice(driver * 4, driver * 4 + 4)
        monkeypatch.setattr(Platform, "get_peer_index", staticmethod(lambda size, mine=mine: mine))
        found.append(reporter.of_peer(list(range(16))))
    assert found == [list(range(8)), list(range(8, 16))]


@pytest.mark.parametrize("rows", [torch.arange(2), Rows({"ids": [1, 2]}), [1, 2]], ids=["tensor", "columns", "list"])
def test_too_few_rows_are_refused_alike_whatever_holds_them(rows: Any) -> None:
    # D20: ranks without rows hung in collectives.
    with pytest.raises(PlanError, match=r"2 rows over 4 data shards: shards \[2, 3\] would be empty"):
        made("cpu4", dp=4).seen(rows)


def test_numbers_arrays_and_empty_lists_follow_their_rules() -> None:
    # D27: scalar arrays, empty lists and arrays of several numbers raised; D29: weighted by rows.
    found = made("cpu2", dp=2).metrics([1.0, 1.0, 1.0, 5.0])
    assert float(found["loss"]) == pytest.approx((1 * 2 + 1 * 2) / 4)
    found = made("cpu2", dp=2).metrics([1.0, 0.0, 5.0])
    assert float(found["loss"]) == pytest.approx((1 * 2 + 5 * 1) / 3)
    np.testing.assert_allclose(found["heads"], [7 / 3, 14 / 3])
    np.testing.assert_array_equal(found["widest"], [5, -1])
    assert found["tags"] == [[], []]


def test_a_loss_is_a_float_on_any_mesh() -> None:
    # D28: 1.0, [1.0] or a NumPy number, by the mesh.
    for group, sizes in (("cpu2", {"dp": 2}), ("cpu2", {"tp": 2}), ("cpu4", {"pp": 2, "dp": 2})):
        loss = components.Echo(device_mesh=DeviceMesh.from_axes(sizes), remote_group=group).mean_number([1.0, 1.0])  # type: ignore[call-arg]
        assert (type(loss), loss) == (float, 1.0)


@pytest.mark.parametrize(
    "rows",
    [
        ["a", "bc", ""],
        [{"id": 1}, {"id": 2}, {"id": 3}],
        [None, 1, None],
        [(1, 2), (3,), ()],
        [2**53 + 1, True, 0.5],
        np.arange(6).reshape(3, 2),
        np.array([2**24 + 1, 2**53 + 1, 0]),
        torch.tensor([[2**24 + 1], [1], [2]]),
    ],
    ids=["texts", "mappings", "nothing", "tuples", "numbers", "array", "large integers", "tensor"],
)
def test_joined_rows_are_what_was_returned_to_the_bit_and_the_type(rows: Any) -> None:
    # D30: everything became float32.
    found = made("cpu2", dp=2).same(rows)
    assert type(found) is type(rows)
    if isinstance(rows, list):
        assert [(type(row), row) for row in found] == [(type(row), row) for row in rows]
    else:
        assert (found.dtype, found.tolist()) == (rows.dtype, rows.tolist())


def test_stages_that_return_nothing_are_not_averaged() -> None:
    # D32: None of a first stage met the numbers of the last.
    assert made("cpu4", pp=2, dp=2).of_last_stage([1.0, 3.0]) == {"loss": 2.0}


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        ("rows", r"failed on worker 0 \(dp=0; .*; row 0\): PlanError: .* returned a NoneType at ids"),
        ("key", "worker 1 and worker 0 returned different keys at the result: 'loss'"),
    ],
)
def test_a_result_that_one_worker_lacks_is_refused(lacks: str, words: str) -> None:
    # D32: lists of another length, and lists with a None in the place of rows.
    with pytest.raises((PlanError, RemoteCallError), match=words):
        made("cpu2", dp=2).uneven([1, 2], lacks)


def test_the_deadline_holds_for_a_method_whose_rows_are_pulled(tmp_path: Path) -> None:
    # D58: a timeout was ignored with sync=True.
    with pytest.raises(RemoteCallError, match=r"_Reporter.waits was not done after 0.5 s: workers 0, 1 were still"):
        made("cpu2", dp=2).waits(tmp_path / "go")
    (tmp_path / "go").touch()


def test_the_deadline_is_one_for_all_workers_and_not_one_for_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # D59: each worker had the whole time anew, one after the other.
    import ray

    def once_one_is_done(references: Any, *rest: Any) -> Any:
        ray.wait(references, num_returns=1, timeout=PATIENCE)
        return results_of(references, *rest)

    reporter = made("cpu2", dp=2)
    monkeypatch.setattr(engine_ray, "results_of", once_one_is_done)
    with pytest.raises(RemoteCallError, match=r"not done after 0.5 s: worker 1 was still at it") as caught:
        reporter.waits(tmp_path / "go", (1,))
    (tmp_path / "go").touch()
    assert caught.value.workers == [1]


class Noted:
    """Rows that are noted in a file when they are read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 400

    def __getitem__(self, at: int) -> int:
        with self.path.open("a") as notes:
            notes.write(f"{at}\n")
        return at


def test_a_loader_reads_ahead_and_not_without_end(tmp_path: Path) -> None:
    # D63: a step asked, waited, and read nothing meanwhile.
    notes = tmp_path / "rows"
    mesh = DeviceMesh.from_axes({"dp": 2})
    source = Loader(Noted(notes), batch_size=4, prefetch=2, collate_fn=list, device_mesh=mesh, remote_group="cpu2")
    batches = iter(source)
    assert list(next(batches)) == [0, 1, 2, 3]

    def read() -> int:
        return len(notes.read_text().splitlines())

    # The batch that was asked for, and two that wait: `prefetch` of them.
    assert becomes(read, 12) == 12
    time.sleep(0.3)
    assert read() == 12
    assert list(next(batches)) == [4, 5, 6, 7]


@pytest.mark.parametrize(("method", "expected"), [("of_first", [5, 4, 3, 2, 1, 0]), ("of_peer", [2, 1, 0])])
def test_handles_reach_the_workers_of_a_call_that_not_all_run(
    monkeypatch: pytest.MonkeyPatch, method: str, expected: list[int]
) -> None:
    # D64: the number of a worker was an index into a shorter list.
    handle = components.Echo(device_mesh=DeviceMesh.from_axes({"dp": 4}), remote_group="cpu4").same(list(range(6)))  # type: ignore[call-arg]
    monkeypatch.setattr(Platform, "get_peer_index", staticmethod(lambda size: slice(size // 2, size)))
    traffic.reset()
    assert getattr(made("cpu2", dp=2), method)(handle.select([5, 4, 3, 2, 1, 0])) == expected
    assert traffic.driver_rows == len(expected)
