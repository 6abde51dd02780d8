from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.errors import Cancelled, InvalidTrace, InvalidValue, ModelMismatch
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.expert_use import expected_union
from eldr_runtime.held_out_union import (
    expected_unions,
    judge,
    nearest_centroids,
    random_labels_control,
    split_half,
    union_changes,
)
from eldr_runtime.model_shape import ModelShape
from tests.fakes.topic_traces import SHAPE, fit, topic_trace


class TestExpectedUnions:
    def test_by_hand(self) -> None:
        # Three requests, one layer, two experts. Unused shares q: (0.5, 0.5), (0.5, 1), (1, 0).
        # Pairs: (0.25, 0.5), (0.5, 0), (0.5, 0): means 1.25 / 3 and 0.5 / 3; union 2 - 1.75 / 3.
        p = np.array([[[0.5, 0.5]], [[0.5, 0.0]], [[0.0, 1.0]]])
        one, two, three, four = expected_unions(p, [1, 2, 3, 4])
        assert one == pytest.approx(2 - 3.5 / 3)
        assert two == pytest.approx(2 - 1.75 / 3)
        assert three == pytest.approx(2 - 0.25)
        assert four is None

    @given(st.integers(1, 7), st.integers(1, 3), st.integers(1, 5), st.integers(0, 100))
    @settings(deadline=None, max_examples=50)
    def test_is_the_mean_over_every_batch(self, n: int, n_layers: int, n_experts: int, seed: int) -> None:
        p = np.random.default_rng(seed).random((n, n_layers, n_experts))
        sizes = list(range(1, n + 2))
        found = expected_unions(p, sizes)
        for size, union in zip(sizes[:-1], found, strict=False):
            batches = [expected_union(p[list(batch)]) for batch in combinations(range(n), size)]
            assert union == pytest.approx(np.mean(batches), abs=1e-9)
        assert found[-1] is None

    def test_more_features_than_one_block(self) -> None:
        p = np.random.default_rng(0).random((6, 9, 128)).astype(np.float32)
        batches = [expected_union(p[list(batch)]) for batch in combinations(range(6), 4)]
        assert expected_unions(p, [4])[0] == pytest.approx(np.mean(batches), rel=1e-6)


class TestUnionChanges:
    def test_by_hand(self) -> None:
        # Two requests use expert 0 alone, two expert 1 alone. Batches of 2 within a group load 1 expert;
        # of the 6 mixed batches 2 load 1 and 4 load 2: 10 / 6. Change 6 / 10 - 1 = -40 %.
        p = np.array([[[1, 0]], [[1, 0]], [[0, 1]], [[0, 1]]], dtype=np.float32)
        (change,) = union_changes(p, np.array([0, 0, 1, 1]), [2])
        assert change.percent == pytest.approx(-40.0)
        assert change.covered_share == 1.0

    def test_small_groups_are_dropped_and_groups_weigh_by_size(self) -> None:
        p = np.array([[[1, 0]], [[1, 0]], [[0, 1]], [[1, 0]], [[0, 1]], [[0, 1]]], dtype=np.float32)
        (change,) = union_changes(p, np.array([0, 0, 1, 2, 2, 2]), [2])
        mixed = (6 * 1 + 9 * 2) / 15
        first, third = 1 / mixed - 1, (5 / 3) / mixed - 1
        assert change.percent == pytest.approx(100 * (2 * first + 3 * third) / 5)
        assert change.covered_share == pytest.approx(5 / 6)
        assert [(c.n_requests, c.percent is None) for c in change.by_cluster] == [
            (2, False),
            (1, True),
            (3, False),
        ]

    def test_no_group_with_a_batch_has_no_figure(self) -> None:
        (change,) = union_changes(np.ones((4, 1, 2), dtype=np.float32), np.array([0, 0, 1, 1]), [3])
        assert change.percent is None
        assert change.covered_share == 0.0


class TestSplitHalf:
    @given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40), st.integers(0, 50))
    @settings(deadline=None, max_examples=40)
    def test_halves_are_even_and_by_label(self, labels: list[str], seed: int) -> None:
        train, held_out = split_half(labels, len(labels), seed)
        assert sorted([*train, *held_out]) == list(range(len(labels)))
        assert abs(len(train) - len(held_out)) <= 1
        for label in set(labels):
            of_label = np.array([other == label for other in labels])
            assert abs(int(of_label[train].sum()) - int(of_label[held_out].sum())) <= 1

    def test_seed_decides(self) -> None:
        assert np.array_equal(split_half(None, 40, 3)[0], split_half(None, 40, 3)[0])
        assert not np.array_equal(split_half(None, 40, 3)[0], split_half(None, 40, 4)[0])

    def test_either_half_may_hold_the_odd_request(self) -> None:
        assert {len(split_half(None, 3, seed)[0]) for seed in range(20)} == {1, 2}


class TestJudge:
    def test_topics_are_found_on_requests_never_seen(self) -> None:
        # Four topics of 4 experts: a batch of 8 within a topic loads 4 of 16, mixed close to 16.
        fitted: list[int] = []

        def recording(train: ExpertTrace, seed: int) -> CentroidVersion:
            fitted.append(len(train))
            return fit(train, seed)

        trace = topic_trace(160, 4, labelled=True)
        (judged,) = judge(trace, recording, batch_sizes=[8], split_seeds=range(3))
        assert fitted == [80, 80, 80]
        assert judged.mean_percent < -60.0
        assert judged.covered_share == 1.0
        assert judged.mean_percent == pytest.approx(np.mean(judged.seeds))
        assert sum(cluster.n_requests for cluster in judged.by_cluster) == 80

    def test_interval_by_hand(self) -> None:
        # t(0.975, 1 degree) = 12.706; two splits a and b deviate by |a - b| / sqrt(2).
        (judged,) = judge(topic_trace(60, 3), fit, batch_sizes=[4], split_seeds=(0, 1))
        first, second = judged.seeds
        reach = 12.706205 * abs(first - second) / np.sqrt(2) * np.sqrt(1.5)
        low, high = judged.interval
        assert high - judged.mean_percent == pytest.approx(reach, rel=1e-6)
        assert judged.mean_percent - low == pytest.approx(reach, rel=1e-6)

    def test_nothing_to_gain_where_all_requests_are_alike(self) -> None:
        (judged,) = judge(topic_trace(80, 1), fit, batch_sizes=[4], split_seeds=range(6))
        assert judged.interval[0] < 0.0 < judged.interval[1]
        assert abs(judged.mean_percent) < 1.5

    def test_sizes_that_no_cluster_fills_are_left_out(self) -> None:
        judged = judge(topic_trace(80, 4), fit, batch_sizes=[4, 41], split_seeds=range(2))
        assert [one.batch_size for one in judged] == [4]

    def test_callback_sees_each_split_and_can_cancel(self) -> None:
        seen: list[tuple[int, int]] = []

        def stop_at_two(done: int, total: int) -> None:
            seen.append((done, total))
            if done == 2:
                raise Cancelled("asked to stop")

        with pytest.raises(Cancelled):
            judge(topic_trace(40, 2), fit, batch_sizes=[2], split_seeds=range(5), on_split=stop_at_two)
        assert seen == [(1, 5), (2, 5)]

    def test_a_single_split_has_no_interval(self) -> None:
        with pytest.raises(InvalidValue, match=r"split_seeds is \(3,\); must be at least 2"):
            judge(topic_trace(40, 2), fit, split_seeds=(3,))

    def test_other_model_is_refused(self) -> None:
        other = ModelShape(model="other", n_layers=2, n_experts=16, top_k=2)
        trace = topic_trace(8, 2)
        version = fit(trace, 1, n_clusters=2)
        moved = CentroidVersion(
            **{
                name: getattr(version, name)
                for name in ("transform", "centroids", "mean_use", "seed", "origin", "parent_hash")
            },
            shape=other,
            n_requests=1,
            created_at=version.created_at,
        )
        with pytest.raises(ModelMismatch, match="model='other'"):
            nearest_centroids(moved, trace)

    def test_without_decode_counts_there_is_no_figure(self) -> None:
        trace = topic_trace(40, 2)
        bare = ExpertTrace(
            shape=SHAPE,
            prefill_counts=trace.prefill_counts,
            prompt_tokens=trace.prompt_tokens,
            covered_tokens=trace.covered_tokens,
        )
        with pytest.raises(InvalidTrace, match="decode_counts is None"):
            judge(bare, fit, batch_sizes=[4])


@pytest.mark.parametrize("size", [0, -3, 1.5, True])
def test_batch_sizes_that_are_none(size: float) -> None:
    with pytest.raises(InvalidValue, match=f"batch_size is {size}; must be an integer of at least 1"):
        expected_unions(np.ones((3, 1, 2)), [size])  # type: ignore[list-item]


class TestControl:
    def test_random_labels_gain_nothing(self) -> None:
        control = random_labels_control(topic_trace(160, 4), n_clusters=4, batch_size=8, split_seeds=range(4))
        assert control is not None
        assert abs(control.mean_percent) < 2.0

    def test_no_groups_are_named(self) -> None:
        with pytest.raises(InvalidValue, match="n_clusters is 0; must be at least 1"):
            random_labels_control(topic_trace(20, 4), n_clusters=0, split_seeds=range(2))

    def test_groups_too_small_for_a_batch_give_none(self) -> None:
        trace = topic_trace(20, 4)
        assert random_labels_control(trace, n_clusters=4, batch_size=8, split_seeds=range(2)) is None
