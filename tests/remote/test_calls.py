"""Calls on a real local Ray: what reaches the workers, and what comes back."""

from __future__ import annotations

from collections import UserList, deque
from typing import Any

import numpy as np
import pytest

from tests.remote import components
from twinkle import DeviceMesh, Global, Rows, Same, Sharded
from twinkle.errors import PlacementError, PlanError, RemoteCallError
from twinkle.remote import collect_tensor_dict

# A type checker does not see what the decorator adds.
Batch: Any = components.Batch
Echo: Any = components.Echo
Loader: Any = components.Loader
Output: Any = components.Output

pytestmark = pytest.mark.usefixtures("job")


def mesh(**sizes: int) -> DeviceMesh:
    return DeviceMesh.from_axes(sizes)


def echo(group: str, **sizes: int) -> Any:
    return Echo(device_mesh=mesh(**sizes), remote_group=group)


def seen(group: str, rows: Any, **sizes: int) -> list[Any]:
    return [rows for rows, _, _ in echo(group, **sizes).rows_seen(rows)]


@pytest.fixture(scope="module")
def two(job: None) -> Any:
    return echo("cpu2", dp=2)


@pytest.fixture(scope="module")
def four(job: None) -> Any:
    return echo("cpu4", dp=4)


@pytest.fixture(scope="module")
def replicas(job: None) -> Any:
    return echo("cpu4", dp=2, tp=2)


@pytest.fixture(scope="module")
def staged(job: None) -> Any:
    return echo("cpu8", pp=2, dp=2, tp=2)


# Placement and order.


@pytest.mark.parametrize("sizes", [{"fsdp": 2, "dp": 2}, {"dp": 2, "fsdp": 2}, {"tp": 2, "dp": 2}, {"dp": 4}])
def test_rows_come_back_in_order_whatever_the_order_of_the_axes(sizes: dict[str, int]) -> None:  # D1
    component = echo("cpu4", **sizes)
    assert component.pulled(list(range(12))) == list(range(12))
    assert component.same(list(range(12))).gather() == list(range(12))


def test_workers_get_their_rows_by_position_and_not_by_rank_number() -> None:  # D3
    shifted = DeviceMesh(np.arange(4, 8), ("dp",))
    component = Echo(device_mesh=shifted, remote_group="cpu4")
    assert [rows for rows, *_ in component.rows_seen(list(range(8)))] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    permuted = DeviceMesh(np.array([[2, 0], [3, 1]]), ("fsdp", "dp"))
    component = Echo(device_mesh=permuted, remote_group="cpu4")
    assert component.pulled(list(range(8))) == list(range(8))
    assert [rows for rows, *_ in component.rows_seen(list(range(8)))] == [[0, 1], [4, 5], [2, 3], [6, 7]]


def test_pipeline_tensor_and_data_ranks_return_every_row_once(staged: Any) -> None:  # D9
    rows = list(range(10))
    assert [len(found) for found, *_ in staged.rows_seen(rows)] == [5] * 8
    assert staged.pulled(rows) == rows
    assert staged.last_stage(rows) == rows
    assert staged.first_stage(rows) == rows


def test_ulysses_peers_share_their_rows() -> None:  # D14
    component = Echo(device_mesh=mesh(dp=4).replace(ulysses_size=2), remote_group="cpu4")
    assert [rows for rows, *_ in component.rows_seen(list(range(6)))] == [[0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5]]
    assert component.pulled(list(range(6))) == list(range(6))


def test_a_mesh_of_another_size_than_the_workers_is_refused_with_the_numbers() -> None:  # D6, D7
    with pytest.raises(PlacementError, match="8 positions does not fit 4 workers of 1"):
        echo("cpu4", dp=8)
    with pytest.raises(PlacementError, match="2 positions does not fit 4 workers"):
        echo("cpu4", dp=2)


def test_a_worker_knows_its_place_in_the_mesh_whatever_the_environment_says(staged: Any) -> None:
    found = staged.identity()
    assert [one["axes"] for one in found] == [(dp, pp, tp, dp) for pp in range(2) for dp in range(2) for tp in range(2)]
    assert [one["rank"] for one in found] == [str(rank) for rank in range(8)]
    assert not any(one["torch"] for one in found)


def test_the_driver_is_nobody(two: Any) -> None:
    assert DeviceMesh.from_sizes(dp_size=2).dp_rank is None


# Arguments.


def test_configuration_is_never_cut(four: Any) -> None:  # D2
    for args, kwargs in four.everything("MultiStepLR", milestones=[10, 20, 30, 40], betas=(0.9, 0.95)):
        assert args == ("MultiStepLR",)
        assert kwargs == {"milestones": [10, 20, 30, 40], "betas": (0.9, 0.95)}


def test_a_mapping_beside_the_rows_reaches_every_worker_whole(two: Any) -> None:  # D16
    stop = {"stop": ["</s>", "\n"], "seed": 1}
    assert [rest for _, rest, _ in two.rows_seen(["a", "b"], stop)] == [(stop,), (stop,)]


@pytest.mark.parametrize(
    "rows",
    [[0, 1, 2, 3], (0, 1, 2, 3), range(4), np.arange(4), np.arange(8).reshape(4, 2)],
    ids=lambda rows: type(rows).__name__,
)
def test_every_kind_of_rows_is_cut_and_joined_in_its_own_type(two: Any, rows: Any) -> None:  # D15
    first, second = (found for found, *_ in two.rows_seen(rows))
    assert (len(first), len(second)) == (2, 2)
    back = two.pulled(rows)
    np.testing.assert_array_equal(back, rows)
    assert type(back) is (list if isinstance(rows, range) else type(rows)) or isinstance(back, range)


def test_a_dataclass_of_columns_is_cut_like_a_list(two: Any) -> None:  # D15
    found = two.two(Batch(ids=[1, 2, 3], weights=np.array([0.1, 0.2, 0.3])))
    assert [type(batch) for batch, *_ in found] == [Batch, Batch]
    assert [batch.ids for batch, *_ in found] == [[1, 2], [3]]
    assert [len(batch.weights) for batch, *_ in found] == [2, 1]
    with pytest.raises(PlanError, match=r"rows is a Batch whose ids, weights may be rows.*declare it in rows="):
        two.rows_seen(Batch([1, 2, 3], [1, 2, 3]))


def test_one_trajectory_is_one_row(two: Any) -> None:  # D17, D18
    trajectory = {"messages": ["system", "user"]}
    with pytest.raises(PlanError, match=r"1 row over 2 data shards: shards \[1\] would be empty"):
        two.rows_seen(trajectory)
    alone = echo("cpu2", tp=2)
    assert [rows for rows, *_ in alone.rows_seen(trajectory)] == [trajectory, trajectory]
    features = {"input_ids": [11, 12, 13, 14]}
    assert [rows for rows, *_ in alone.rows_seen(features)] == [features, features]


def test_columns_are_rows_only_when_they_are_declared(two: Any) -> None:
    columns = {"prompt": ["a", "b"], "answer": (1, 2)}
    assert [rows for rows, *_ in two.rows_seen(columns)] == [columns, columns]
    assert [rows for rows, *_ in two.rows_seen(Rows(columns))] == [
        {"prompt": ["a"], "answer": (1,)},
        {"prompt": ["b"], "answer": (2,)},
    ]
    with pytest.raises(PlanError, match=r"rows has 2 rows and rows\\['b'\\] has 3|has 2 rows and .* has 3"):
        two.rows_seen(Rows({"a": [1, 2], "b": [1, 2, 3]}))


def test_two_row_arguments_of_different_length_are_refused_naming_both(four: Any) -> None:  # D19
    with pytest.raises(PlanError, match="rows has 8 rows and extra has 5"):
        four.two(list(range(8)), list(range(5)))


def test_what_looks_like_rows_and_is_not_declared_is_refused(two: Any) -> None:
    with pytest.raises(PlanError, match=r"rest\[0\] has 4 items.*declare it in rows=, or wrap it in Rows or Same"):
        two.rows_seen([1, 2, 3, 4], [5, 6, 7, 8])
    assert [rest for _, rest, _ in two.rows_seen([1, 2, 3, 4], Same([5, 6, 7, 8]))] == [([5, 6, 7, 8],)] * 2
    assert [rest for _, rest, _ in two.rows_seen([1, 2, 3, 4], Rows([5, 6, 7, 8]))] == [([5, 6],), ([7, 8],)]
    assert [rest for _, rest, _ in two.rows_seen([1, 2, 3, 4], [5, 6, 7])] == [([5, 6, 7],)] * 2


def test_scalars_texts_none_and_arrays_without_dimensions_are_the_same_for_all(two: Any) -> None:  # D21
    scalar = np.array(3.0)
    for rows, extra, config in two.two([1, 2], None, config=scalar):
        assert len(rows) == 1
        assert extra is None
        assert config == scalar
    assert [options for _, _, options in two.rows_seen([1, 2], text="ab")] == [{"text": "ab"}] * 2


@pytest.mark.parametrize("rows", [deque(range(4)), UserList(range(4))], ids=["deque", "UserList"])
def test_other_sequences_are_cut_like_lists(two: Any, rows: Any) -> None:  # D15
    assert [part for part, *_ in two.rows_seen(rows)] == [[0, 1], [2, 3]]
    assert [part for part, *_ in two.two(rows)] == [[0, 1], [2, 3]]
    assert [part for part, *_ in two.rows_seen(Rows(rows))] == [[0, 1], [2, 3]]
    assert [part["a"] for part, *_ in two.two({"a": rows})] == [[0, 1], [2, 3]]
    with pytest.raises(PlanError, match=r"rest\[0\] has 4 items, as many as the call has rows"):
        two.rows_seen([1, 2, 3, 4], rows)


def test_a_sequence_of_handles_is_their_rows(two: Any) -> None:
    made = two.same([1, 2])
    assert [part for part, *_ in two.two(deque([made, made]))] == [[1, 2], [1, 2]]


BAGS = [{1, 2}, frozenset([1]), {1: 2}.keys(), {1: 2}.values(), {1: 2}.items(), map(str, [1]), iter([1]), reversed([1])]


@pytest.mark.parametrize("rows", [*BAGS, (at for at in [1])], ids=lambda rows: type(rows).__name__)
def test_rows_without_an_order_or_that_are_gone_after_one_look_are_refused(two: Any, rows: Any) -> None:  # D15
    words = f"rows holds rows, and a {type(rows).__name__} is none: rows are a list, tuple or other sequence, an array"
    for call in (two.rows_seen, two.two):
        with pytest.raises(PlanError, match=f"{words}, a tensor or a handle; make a list of its items"):
            call(rows)


def test_a_text_in_the_place_of_declared_rows_is_refused_and_undeclared_is_a_text(two: Any) -> None:
    for text in ("abcd", b"abcd", bytearray(b"abcd")):
        with pytest.raises(PlanError, match=f"a {type(text).__name__} is none: .*wrap it in Same, or in a list"):
            two.two(text)
        assert [rows for rows, *_ in two.rows_seen(text)] == [text] * 2
    assert [rows for rows, *_ in two.two(Same("ab"))] == ["ab"] * 2
    assert [rows for rows, *_ in two.two(3.5)] == [3.5] * 2


def test_a_generator_does_not_travel_in_an_argument_or_a_result(two: Any) -> None:
    words = r"is a generator, which cannot travel between processes: make a list of its items"
    with pytest.raises(PlanError, match=rf"Echo.everything: argument 0\['a'\]\[0\] {words}"):
        two.everything({"a": [(word for word in "ab")]})
    with pytest.raises(PlanError, match=rf"Echo.rows_seen: config {words}"):
        two.rows_seen([1, 2], config=(word for word in "ab"))
    with pytest.raises(PlanError, match=rf"Echo.__init__: factor {words}"):
        Echo(factor=(word for word in "ab"), remote_group="cpu2")
    with pytest.raises(RemoteCallError, match=f"Echo.one_by_one: the result {words}"):
        two.one_by_one([1, 2])


def test_rows_that_are_a_default_are_cut(two: Any) -> None:
    assert two.defaulted() == [((1, 2), (5, 6)), ((3, 4), (5, 6))]
    assert two.defaulted([1, 2]) == [([1], (5, 6)), ([2], (5, 6))]
    assert two.defaulted_by_name() == [((), (5,)), ((), (6,))]
    with pytest.raises(PlanError, match="rows has 3 rows and more has 2"):
        two.defaulted_by_name([1, 2, 3])


def test_every_item_of_parameters_with_stars_may_be_declared_rows(two: Any) -> None:
    assert two.starred([1, 2], (3, 4), c=[5, 6]) == [(([1], (3,)), {"c": [5]}), (([2], (4,)), {"c": [6]})]
    with pytest.raises(PlanError, match=r"batches\[0\] has 2 rows and batches\[1\] has 3"):
        two.starred([1, 2], [1, 2, 3])


@pytest.mark.parametrize("rows", [[0, 1], (0, 1), np.arange(2)], ids=["list", "tuple", "array"])
def test_shards_without_rows_are_refused_alike_for_all_types(four: Any, rows: Any) -> None:  # D20
    with pytest.raises(PlanError, match=r"2 rows over 4 data shards: shards \[2, 3\] would be empty"):
        four.rows_seen(rows)
    with pytest.raises(PlanError, match="2 rows over 4 data shards"):
        four.rows_seen(Rows({"a": rows}))


def test_the_words_of_a_short_batch_count_data_shards_and_not_workers(replicas: Any) -> None:  # D22
    with pytest.raises(PlanError, match=r"1 row over 2 data shards: shards \[1\] would be empty"):
        replicas.same([1])


def test_allow_empty_gives_empty_shards_rows_of_the_same_type(four: Any) -> None:
    assert four.may_be_empty([1, 2]) == [1, 2]
    np.testing.assert_array_equal(four.may_be_empty(four.may_be_empty(np.arange(2))), np.arange(2))


def test_markers_are_found_anywhere_and_never_reach_the_method(two: Any) -> None:
    found = two.two([1, 2], config={"deep": [Rows([3, 4]), Same((5, 6))], "all": Global([7, 8])})
    assert [config for *_, config in found] == [
        {"deep": [[3], (5, 6)], "all": [7]},
        {"deep": [[4], (5, 6)], "all": [8]},
    ]


def test_rows_marked_in_a_call_that_cuts_nothing_are_refused(two: Any) -> None:
    with pytest.raises(PlanError, match="dispatch='all' cuts nothing"):
        two.everything(Rows([1, 2]))


def test_slice_gives_every_worker_a_shard_of_its_own(replicas: Any) -> None:
    assert replicas.per_worker(list(range(6))) == [[0, 1], [2, 3], [4], [5]]


def test_fan_out_lead_gives_rows_to_the_first_worker_of_each_shard(replicas: Any) -> None:
    assert replicas.lead_only([1, 2, 3]) == [[1, 2], None, [3], None]


def test_a_function_dispatches(two: Any) -> None:
    assert two.by_function(4) == [(40, 2, 2), (41, 2, 2)]


def test_a_function_may_give_every_worker_handles_and_zips_of_its_own(two: Any) -> None:
    one, other = two.same([1, 2]), two.same([3, 4])
    both = [one.zip([7, 8]), other.zip([9, 6], [0, 0])]
    assert two.one_each(both) == [([(1, 7), (2, 8)], (), 0), ([(3, 9, 0), (4, 6, 0)], (), 1)]
    shared = [7, 8]
    uneven = [[one.zip([0, 0]), one.zip(shared)], [other.zip(shared)]]
    expected = [([[(1, 0), (2, 0)], [(1, 7), (2, 8)]], (), 0), ([[(3, 7), (4, 8)]], (), 1)]
    assert two.one_each(uneven) == expected


@pytest.mark.parametrize("options", [{"remote_group": "cpu2"}, {}], ids=["ray", "here"])
def test_a_remote_method_is_overridden_by_a_remote_one_alone(two: Any, options: Any) -> None:
    plain: Any = components.Plain
    words = r"Plain.same overrides the remote method Echo.same without @remote_function\(\): it would run on the driver"
    with pytest.raises(PlanError, match=words):
        plain(**options)
    doubled: Any = components.Doubled(**options)
    assert list(doubled.same([1, 2])) == [2, 4]
    assert list(Echo.same(doubled, [1, 2])) == [1, 2]


def test_arguments_that_a_method_does_not_take_are_refused_by_its_name(two: Any) -> None:
    with pytest.raises(TypeError, match=r"^Echo.by_key: missing a required argument: 'rows'$"):
        two.by_key()
    with pytest.raises(TypeError, match=r"^Echo.note: got an unexpected keyword argument 'words'$"):
        two.note("word", words=1)


def test_groups_stay_together(two: Any) -> None:
    assert two.in_pairs(list(range(6))).layout.sizes.tolist() == [4, 2]
    with pytest.raises(PlanError, match="5 is no multiple of group 2"):
        two.in_pairs(list(range(5)))


def test_execute_first_gives_the_first_worker_all_rows(four: Any) -> None:
    assert four.first_alone([1, 2, 3]).gather() == [2, 4, 6]


def test_a_peer_uses_its_own_workers_and_their_own_shards(four: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # D8
    assert four.as_peer(list(range(16))).gather() == list(range(16))
    from twinkle.platform import Platform

    monkeypatch.setattr(Platform, "get_peer_index", staticmethod(lambda size: slice(2, 4)))
    assert four.as_peer(list(range(16))).gather() == list(range(8, 16))


# Results.


def test_none_always_returns_one_result_per_worker(two: Any) -> None:
    assert two.per_worker([1, 2]) == [[1], [2]]


def test_means_are_weighted_by_rows_and_are_floats(two: Any) -> None:  # D28, D29
    assert two.mean_number([1.0, 1.0, 1.0, 5.0, 5.0]) == pytest.approx((1.0 * 3 + 5.0 * 2) / 5)
    assert two.mean_of([1, 2, 3, 4])["loss"] == 2.0
    assert isinstance(echo("cpu2", tp=2).mean_number([1.0]), float)


def test_sums_and_firsts(replicas: Any) -> None:
    assert replicas.sum_of(list(range(5))) == 5
    assert replicas.first_of(list(range(5))) == {"rows": [0, 1, 2], "rank": 0}


def test_every_key_of_a_result_follows_its_rule(replicas: Any) -> None:  # D25, D33
    result = replicas.by_key([1, 2, 3, 4, 10])
    assert list(result) == ["loss", "ids", "ref", "tokens", "peak", "tags"]
    assert result["ids"] == [1, 2, 3, 4, 10]
    np.testing.assert_array_equal(result["ref"]["logps"], [0.5, 1, 1.5, 2, 5])
    assert result["loss"] == pytest.approx((1.0 * 30 + 4.0 * 20) / 50)
    assert (result["tokens"], result["peak"], result["tags"]) == (50, 10, [["a", "b"], ["a", "b"]])


def test_tuples_and_dataclasses_come_back_as_what_they_are(two: Any) -> None:  # D31
    assert two.as_tuple([1, 2, 3]) == ([1, 2, 3], ["done", "done"])
    assert two.as_record([1, 2, 3]) == Output([1, 2, 3], [1.0, 1.0])


def test_only_other_dimensions_are_widened_with_the_value_of_the_key(two: Any) -> None:  # D26
    labels = two.wider([0, 1, 2, 5])["labels"]
    np.testing.assert_array_equal(labels, [[1, 1, -100, -100], [1, 1, -100, -100], [1, 1, 1, 1], [1, 1, 1, 1]])


def test_another_number_of_rows_than_was_given_is_refused_naming_worker_key_and_numbers(staged: Any) -> None:
    with pytest.raises(PlanError, match="worker 4 returned 4 rows at 'rows', expected 5"):
        staged.wrong_length(list(range(10)))


def test_a_method_that_returns_nothing_gives_none(two: Any) -> None:
    assert two.nothing([1, 2]) is None


def test_collectors_get_every_result_and_the_mesh(replicas: Any) -> None:
    assert replicas.by_collector(list(range(5))) == (4, [3, 3, 2, 2])
    outputs = [{"ids": np.array([[at]]), "name": at} for at in (0, 0, 1, 1)]
    joined = collect_tensor_dict(outputs, mesh(dp=2, tp=2))
    np.testing.assert_array_equal(joined["ids"], [[0], [1]])
    assert joined["name"] == [0, 1]


def test_replicas_that_drift_apart_are_found(replicas: Any) -> None:
    assert replicas.verified([1, 2, 3]) == [1, 2, 3]
    with pytest.raises(PlanError, match="workers 0 and 1 are replicas of shard 0"):
        replicas.verified([1, 2, 3], drift=True)
    assert echo("cpu4", pp=2, dp=2).last_verified([1, 2, 3]) == [1, 2, 3]


def test_a_result_without_row_arguments_is_joined_in_data_order(replicas: Any) -> None:
    assert replicas.made_here(1) == [(0, 0), (1, 0), (1, 1)]


# Padding.


def test_pads_are_masked_marked_and_dropped(four: Any) -> None:
    rows = [{"labels": [at, at]} for at in range(5)]
    found = four.padded(rows)
    assert [row["labels"] for row in found] == [[at, at] for at in range(5)]
    assert [row["real"] for row in found] == [2, 2, 1, 1, 1]
    assert found[2]["pads"] == [False, True]
    assert found[0]["scale"] == pytest.approx(4 * 2 / 5)
    worker = four.padded_seen(rows)[3]
    assert worker == [{"labels": [4, 4]}, {"labels": [-100, -100]}]
    assert rows[4] == {"labels": [4, 4]}


def test_pads_of_a_handle_are_made_where_the_rows_go(four: Any) -> None:
    rows = [{"labels": [at]} for at in range(2)]
    handle = echo("cpu2", dp=2).same(rows)
    assert four.padded_seen(handle) == [
        [{"labels": [0]}],
        [{"labels": [1]}],
        [{"labels": [-100]}],
        [{"labels": [-100]}],
    ]
    assert [row["labels"] for row in four.padded(handle)] == [[0], [1]]


def test_pads_that_nothing_would_mask_are_refused(four: Any) -> None:
    assert four.padded_unmasked(list(range(4))) == [[0], [1], [2], [3]]
    with pytest.raises(PlanError, match=r"5 rows over 4 data shards need 3 pads.*loss_mask"):
        four.padded_unmasked(list(range(5)))


# Components.


def test_constructors_get_their_arguments_and_objects_their_mesh() -> None:
    component = Echo(3, device_mesh=mesh(dp=2), remote_group="cpu2")
    assert [one["factor"] for one in component.identity()] == [3, 3]
    assert isinstance(component, Echo)
    assert component.device_mesh == mesh(dp=2)
    with pytest.raises(AttributeError, match="lives in remote group 'cpu2', and so does its 'factor'"):
        component.factor  # noqa: B018


def test_a_component_without_a_mesh_has_one_dp_axis_over_its_workers() -> None:
    component = Echo(remote_group="cpu4")
    assert component.device_mesh == DeviceMesh.from_sizes(dp_size=4)
    assert [one["axes"][0] for one in component.identity()] == [0, 1, 2, 3]


def test_attributes_are_neither_read_nor_set_on_the_driver() -> None:
    component: Any = Echo(3, remote_group="cpu2")
    for name in ("factor", "new", "_note", "device_mesh"):
        words = f"'Echo' object lives in remote group 'cpu2', and so does its '{name}': set it in a method decorated"
        with pytest.raises(AttributeError, match=words):
            setattr(component, name, 77)
    with pytest.raises(AttributeError, match="and so does its 'factor': read it through a method"):
        _ = component.factor
    assert [one["factor"] for one in component.identity()] == [3, 3]
    here: Any = Echo(3)
    here.factor = 4
    assert here.factor == 4


def test_components_of_one_group_share_its_processes() -> None:
    first, second = echo("cpu2", dp=2), echo("cpu2", tp=2)
    assert [one["pid"] for one in first.identity()] == [one["pid"] for one in second.identity()]


def test_a_component_without_a_group_lives_in_the_driver() -> None:
    component = Echo(2)
    assert component.factor == 2
    handle = component.same([1, 2, 3])
    assert isinstance(handle, Sharded)
    assert list(handle) == [1, 2, 3]


def test_an_unknown_group_is_refused_naming_the_known_ones() -> None:
    with pytest.raises(PlacementError, match=r"'nowhere' is no group.*'cpu2', 'cpu4', 'cpu8'"):
        Echo(remote_group="nowhere")


def test_a_component_of_the_first_worker_sees_a_mesh_of_one_and_hands_over_its_rows(four: Any) -> None:
    loader = Loader(8, device_mesh=mesh(dp=4), remote_group="cpu4")
    assert loader.seen() == (1, 4)
    assert four.pulled(loader.batch(8)) == list(range(8))
