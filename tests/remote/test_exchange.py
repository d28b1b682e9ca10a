"""What processes tell each other: parcels, the choice of a channel, and what is left when a process is late or dies."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support import LIMIT, ROOT, clean_environment
from twinkle.remote.channels import Able, able, backend_for, kind_of, written_kind
from twinkle.remote.parcels import Parcel, digest_of, opened

DTYPES = [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.uint8, torch.complex64]


def sent(value: Any) -> Any:
    """A value as it arrives, behind something else in the same bytes."""
    parcel = Parcel(value)
    buffer = np.empty(parcel.size + 64, dtype=np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parcel.write(buffer, 64)
        return opened(buffer[64:], None)


@given(
    shape=st.lists(st.integers(0, 40), max_size=3),
    dtype=st.sampled_from(DTYPES),
    way=st.sampled_from(["whole", "sliced", "turned", "gradient", "conjugate"]),
)
@example([0], torch.float32, "sliced")
@example([1], torch.float32, "sliced")
def test_a_tensor_arrives_with_its_dtype_shape_and_numbers(shape: list[int], dtype: Any, way: str) -> None:
    count = int(np.prod(shape))
    tensor = (torch.arange(count) % 2).to(dtype).reshape(shape)
    if way == "sliced" and shape:
        tensor = tensor[::2]
    elif way == "turned" and len(shape) > 1:
        tensor = tensor.transpose(0, 1)
    elif way == "gradient" and dtype.is_floating_point:
        tensor = tensor.requires_grad_() * 2
    elif way == "conjugate":
        tensor = tensor.conj()
    found = sent({"rows": [tensor, "text"]})["rows"][0]
    assert (found.dtype, found.shape, found.requires_grad) == (dtype, tensor.shape, tensor.requires_grad)
    # Whatever made it here is not known there.
    assert found.is_leaf
    assert torch.equal(found, tensor)


@pytest.mark.parametrize("count", [0, 3, 4000])
def test_an_array_arrives_as_it_was_read_only_or_not(count: int) -> None:
    for dtype in (np.float64, np.bool_, "U3", object):
        array = np.arange(count).astype(dtype)
        array.flags.writeable = False
        for one in (array, array.copy(), array[::2]):
            found = sent([one])[0]
            assert (found.dtype, found.tolist()) == (one.dtype, one.tolist())


def test_the_bytes_of_large_rows_are_beside_the_pickle_and_a_slice_is_sent_alone() -> None:
    whole = torch.zeros(1000, 1000)
    parcel = Parcel([whole[:2], np.zeros(500)])
    assert 12_000 < parcel.size < 13_000
    assert Parcel(torch.nn.Parameter(torch.zeros(3))).size < 2000


def test_what_is_no_plain_tensor_is_pickled_as_ever() -> None:
    sparse = torch.eye(3).to_sparse()
    parameter = torch.nn.Parameter(torch.ones(2))
    assert torch.equal(sent(sparse).to_dense(), torch.eye(3))
    assert isinstance(sent(parameter), torch.nn.Parameter)


def test_equal_rows_have_one_digest_wherever_they_lie() -> None:
    def rows(text: Any) -> Any:
        return [{"ids": torch.arange(300), "text": text(), "x": np.arange(3)} for _ in range(2)]

    one, word = digest_of(rows(lambda: "ab")), "".join(["a", "b"])
    assert digest_of(rows(lambda: "".join(["a", "b"]))) == digest_of([*rows(lambda: word)]) == one
    cut = torch.arange(600)[:300]
    assert digest_of([{"ids": cut, "text": word, "x": np.arange(3)}] * 2) == one
    assert digest_of(rows(lambda: "ac")) != one
    assert digest_of(torch.zeros(3)) != digest_of(torch.zeros(4)) != digest_of(torch.zeros(4, dtype=torch.int32))
    ring: list[Any] = []
    ring.append(ring)
    assert digest_of(ring) == digest_of(ring)


def test_replicas_compare_rows_of_classes_that_no_other_process_finds() -> None:
    @dataclass
    class Row:
        value: int
        kind: Any = None

    assert digest_of([Row(1, Row), Row(2)]) == digest_of([Row(1, Row), Row(2)])
    assert len({digest_of([Row(1)]), digest_of([Row(2)]), digest_of([Row(1, Row)]), digest_of([Row(1, int)])}) == 4


@given(kind=st.sampled_from(["", "cuda", "npu", "xpu", "privateuseone"]))
def test_a_device_type_as_numbers_is_read_back(kind: str) -> None:
    numbers = written_kind(kind)
    assert kind_of(numbers) == kind
    assert all(0 <= number < 2**63 for number in numbers)


def test_the_backend_of_a_device_is_used_only_where_every_rank_has_a_device_of_its_own() -> None:
    fakes = [Able("fake", f"node/{rank}") for rank in range(3)]
    assert backend_for(fakes) == "fake"
    assert backend_for([*fakes, None]) is backend_for([None, *fakes]) is None
    assert backend_for([*fakes, fakes[0]]) is None
    assert backend_for([*fakes, Able("other", "node/3")]) is None
    assert able("cpu") is able("npu") is None


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """What two of three processes saw; the third was killed. No launcher, which would end the others."""
    meeting = tmp_path_factory.mktemp("meeting") / "store"
    command = [sys.executable, "-m", "tests.remote.launched_broken", str(meeting)]
    paths = f"{ROOT / 'python'}:{ROOT}"
    jobs = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=clean_environment(
                RANK=str(rank), WORLD_SIZE="3", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", PYTHONPATH=paths
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        logs = [job.communicate(timeout=LIMIT)[0] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    assert [job.returncode for job in jobs] == [0, -9, 0], "\n".join(logs)
    seen = [json.loads(line) for log in logs for line in log.splitlines() if line.startswith("{")]
    return {one["rank"]: one for one in seen}


def test_a_rank_that_is_late_ends_the_call_at_its_deadline_and_is_named(broken: Any) -> None:
    for first, name in ((0, "Slow.sleeps"), (4, "reading rows")):
        worked, (late, waited), (refused, _), (shut_down, _) = broken[0]["seen"][first : first + 4]
        assert worked[0] == [0, 1, 2]
        assert late[0] == f"{name} was not done after 5.0 s on rank 0; late: rank 2"
        assert late[1] == {"method": name, "ranks": [2], "timeout": 5.0}
        # Rank 2 comes when this one has given up, which it does not before.
        assert waited > 4.9
        assert refused[0].startswith(f"Slow.in_time: the ranks of this job no longer reach each other: {name} was not")
        assert "call shutdown() and initialize() on every rank" in refused[0]
        assert shut_down[0] == "Slow.in_time: the job that the component belongs to was shut down"
    by_call, by_reading = (broken[2]["seen"][at][0] for at in (1, 5))
    assert by_call == [
        "Slow.sleeps was not done after 5.0 s on rank 2; late: rank 2",
        {"method": "Slow.sleeps", "ranks": [2], "timeout": 5.0},
    ]
    assert "reading rows: rank 2 lost another rank, which has died or given the call up" in by_reading[0]


def test_a_rank_that_is_killed_ends_the_call_of_the_others(broken: Any) -> None:
    for rank in (0, 2):
        (worked, _), (lost, _), (refused, _) = broken[rank]["seen"][8:]
        assert worked == [0, 1, 2]
        assert f"Slow.killed: rank {rank} lost another rank, which has died or given the call up" in lost[0]
        assert lost[1] == {"method": "Slow.killed"}
        assert "Slow.killed: rank" in refused[0]
