"""Random numbers of components: weights are alike everywhere, draws of data ranks differ, and nothing comes twice."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

import twinkle
from tests.remote.rolls import Rolling, draw, mapped, seen
from tests.torchrun import seen_by_ranks
from twinkle import DeviceGroup, DeviceMesh
from twinkle.errors import RemoteCallError
from twinkle.remote.seeding import seed_of


def check(told: dict[str, Any], workers: int) -> None:
    """The laws of one job."""
    for weights in (told["weights"], told["second weights"]):
        assert weights == [weights[0]] * len(weights)
    # Two components are not built alike, in any of the generators.
    assert all(len(set(pair)) == 2 for pair in zip(told["weights"][0], told["second weights"][0], strict=True))
    numbers = [tuple(row) for rows in (*told["rolls"], *told["after"]) for row in rows]
    assert len(numbers) == 16
    for generator in zip(*numbers, strict=True):
        assert len(set(generator)) == 16
    # Replicas of one data rank draw alike, and go on.
    for drawn in told["replicas"]:
        assert drawn == [drawn[0]] * workers
    assert told["replicas"][0] != told["replicas"][1]
    # The mesh of another component in the same processes is nothing to the first: its data ranks go on apart.
    assert len({json.dumps(drawn) for drawn in told["apart"]}) == workers


@pytest.fixture
def begun(local_ray: None) -> Iterator[Any]:
    def begin(mode: Any, **options: Any) -> None:
        twinkle.shutdown()
        groups = [DeviceGroup("two", 2, "CPU"), DeviceGroup("other", 2, "CPU"), DeviceGroup("single", 1, "CPU")]
        twinkle.initialize(mode, groups=groups, **{"seed": 7, **options})

    yield begin
    twinkle.shutdown()


TWO = {"device_mesh": DeviceMesh.from_sizes(dp_size=2), "remote_group": "two"}
REPLICAS = {"device_mesh": DeviceMesh.from_sizes(dp_size=1, tp_size=2), "remote_group": "two"}


def test_on_ray_data_ranks_draw_apart_replicas_alike_and_a_further_component_repeats_nothing(begun: Any) -> None:
    begun("ray")
    told = seen(TWO, REPLICAS)
    check(told, 2)
    other = Rolling(**{**TWO, "remote_group": "other"})
    assert other.roll([0, 0]) not in (told["rolls"][0], told["after"][1])
    begun("ray")
    assert seen(TWO, REPLICAS) == told


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks drew."""
    return seen_by_ranks(2, "tests.remote.rolls", tmp_path_factory.mktemp("seen"))


def test_under_a_launcher_it_is_the_same_and_the_scripts_of_all_ranks_draw_on_alike(ranks: Any) -> None:
    assert ranks[0] == ranks[1]
    check(ranks[0], 2)
    before, after = ranks[0]["script"]
    assert before != after
    assert not set(after) & {number for rows in ranks[0]["rolls"] for row in rows for number in row}


def check_maps(numbers: Any) -> None:
    """Nothing that a map draws comes again, in any generator."""
    drawn = [tuple(row) for rows in numbers for row in rows]
    assert len(drawn) == 12
    assert all(len(set(generator)) == len(drawn) for generator in zip(*drawn, strict=True))


def test_under_a_launcher_maps_draw_for_replicas_alike_and_leave_the_scripts_alike(ranks: Any) -> None:
    assert ranks[0]["maps"] == ranks[1]["maps"]
    seeded, five, again, six = ranks[0]["maps"]
    for told in (seeded, five, six):
        check_maps(told["numbers"])
        numbers = [json.dumps(row) for rows in told["replicas"] for row in rows]
        assert len(set(numbers)) == 4
        assert told["script"] not in [row for rows in told["numbers"] for row in rows]
    # Without a seed of the job the script's says what is drawn, with the number of the map; its own go on alike.
    assert five["script"] == again["script"] != six["script"]
    assert five["numbers"] != again["numbers"]


def test_alone_maps_draw_apart_from_the_script_and_from_each_other(begun: Any) -> None:
    begun("local")
    alone = [draw() for _ in range(3)]
    begun("local")
    mine = [draw()]
    told = mapped(Rolling())
    mine.append(draw())
    check_maps(told)
    begun("local")
    # The number of the components before it, and of their calls, is nothing to a map.
    Rolling().roll([0])
    assert mapped(Rolling()) == told
    begun("local")
    Rolling().kept([0]).map(abs)
    assert mapped(Rolling())[0] == told[1]
    assert [*mine, alone[2]] == alone


def test_on_ray_maps_draw_what_they_draw_in_local_mode_and_repeat_no_component(begun: Any) -> None:
    begun("local")
    told = mapped(Rolling())
    begun("ray")
    one = {"device_mesh": DeviceMesh.from_sizes(dp_size=1), "remote_group": "single"}
    assert mapped(Rolling(**one)) == told
    begun("ray")
    rolls = Rolling(**TWO)
    drawn = mapped(rolls)
    check_maps(drawn)
    numbers = {number for rows in drawn for row in rows for number in row}
    assert numbers.isdisjoint(number for row in rolls.roll([0] * 4) for number in row)
    begun("ray")
    # A component goes on as if there had been no map.
    rolls = Rolling(**TWO)
    first = list(rolls.roll([0] * 4))
    rolls.kept([0] * 4).map(lambda _: draw()).gather()
    second = list(rolls.roll([0] * 4))
    begun("ray")
    rolls = Rolling(**TWO)
    assert [list(rolls.roll([0] * 4)) for _ in range(2)] == [first, second]


def test_alone_without_a_seed_or_after_the_job_a_map_draws_as_the_script_does(begun: Any) -> None:
    begun("local", seed=None)
    handle = Rolling().kept([0, 0])
    for _ in range(2):
        random.seed(3)
        expected = [random.random(), random.random(), random.random()]
        random.seed(3)
        assert [*handle.map(lambda _: random.random()).gather(), random.random()] == expected
        twinkle.shutdown()


def test_a_function_that_fails_in_a_map_leaves_the_script_s_generators(begun: Any) -> None:
    begun("local")
    alone = draw()
    begun("local")

    def fails(row: int) -> None:
        draw()
        raise ValueError(row)

    with pytest.raises(ValueError, match="0"):
        Rolling().kept([0]).map(fails)
    assert draw() == alone


def test_alone_a_component_draws_apart_from_the_script_which_goes_on_as_if_nobody_else_drew(begun: Any) -> None:
    begun("local")
    alone = [draw() for _ in range(3)]
    begun("local")
    mine = [draw()]
    told = seen({}, {})
    check(told, 1)
    mine.append(draw())
    assert told["weights"][0] != alone[0]
    Rolling()
    assert [*mine, draw()] == alone


def test_a_constructor_that_fails_leaves_the_generators_of_no_other(begun: Any) -> None:
    begun("ray")
    rolls = Rolling(**TWO)
    first = rolls.roll([0, 0])
    with pytest.raises(RemoteCallError):
        Rolling("too much", **TWO)
    later = rolls.roll([0, 0])
    assert not {number for row in later for number in row} & {number for row in first for number in row}
    assert rolls.weights()[0] not in later


@pytest.mark.parametrize("mode", ["ray", "local"])
def test_without_a_seed_or_a_job_nothing_is_seeded(begun: Any, mode: str) -> None:
    begun(mode, seed=None)
    before = [draw(), draw()]
    assert before[0] != before[1]
    weights = Rolling(**(TWO if mode == "ray" else {})).weights()
    again = Rolling(**(TWO if mode == "ray" else {})).weights()
    assert weights != again
    twinkle.shutdown()
    random.seed(3)
    expected = random.random()
    random.seed(3)
    plain = Rolling.__new__(Rolling)
    plain.__init__()
    assert plain.weights()[0] == expected


def test_a_seed_depends_on_the_job_the_component_and_the_data_rank() -> None:
    ranks = (None, 0, 1, 2)
    seeds = [seed_of(seed, number, rank) for seed in (0, 7, 2**64 - 1) for number in range(3) for rank in ranks]
    assert len(set(seeds)) == 36
    assert all(0 <= seed < 2**63 for seed in seeds)
