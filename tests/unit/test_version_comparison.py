import numpy as np
import pytest

from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.errors import InvalidTrace, InvalidValue
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.held_out_union import nearest_centroids, union_changes
from eldr_runtime.signature import TransformName, fit_signature_transform
from eldr_runtime.version_comparison import (
    PairedComparison,
    centroids_under_cap,
    compare_versions,
    pooled,
)
from tests.fakes.topic_traces import fit, topic_trace, version_of


class TestCompareVersions:
    @staticmethod
    def fitted(trace: ExpertTrace, n_clusters: int) -> CentroidVersion:
        return fit(trace, 1, n_clusters)

    def test_a_version_against_itself_is_exactly_zero(self) -> None:
        trace = topic_trace(80, 4)
        version = self.fitted(trace, 4)
        result = compare_versions(version, version, trace, batch_size=4, n_batches=10)
        assert (result.mean_points, result.interval) == (0.0, (0.0, 0.0))
        assert result.is_not_worse()

    def test_a_version_that_merges_topics_is_worse(self) -> None:
        trace = topic_trace(160, 4)
        good, bad = self.fitted(trace, 4), self.fitted(trace, 1)
        worse = compare_versions(bad, good, topic_trace(120, 4, 1), batch_size=4, n_batches=8)
        better = compare_versions(good, bad, topic_trace(120, 4, 1), batch_size=4, n_batches=8)
        assert worse.mean_points > 20.0
        assert not worse.is_not_worse()
        assert better.is_not_worse()
        assert better.mean_points == pytest.approx(-worse.mean_points)

    def test_the_load_cap_holds_by_hand(self) -> None:
        # All eight requests are of topic 0, which is centroid 0. Two centroids, even share 4, cap 1.25: 5.
        trace = topic_trace(40, 1)
        same = trace.select(np.zeros(8, dtype=np.int64))
        transform = fit_signature_transform(TransformName.COUNT, trace)
        own = transform.apply(same.prefill_counts)[:1]
        other = np.roll(own, 1, axis=1)
        version = version_of(trace, transform, np.concatenate([own, other]))
        assert nearest_centroids(version, same).tolist() == [0] * 8
        assert sorted(np.bincount(centroids_under_cap(version, same)).tolist()) == [3, 5]
        assert sorted(np.bincount(centroids_under_cap(version, same, load_cap=1.0)).tolist()) == [4, 4]

    def test_a_refit_to_an_unseen_topic_is_better_once_loads_count(self) -> None:
        # The active version has never seen topic 3, which is 40 of 100 requests: all go to one of 4 workers.
        trace = topic_trace(800, 4, labelled=True)
        assert trace.labels is not None
        is_unseen = np.array([label == "topic 3" for label in trace.labels])
        seen, unseen = np.flatnonzero(~is_unseen), np.flatnonzero(is_unseen)
        active = fit(trace.select(seen[:100]), 1)
        refit = fit(trace.select(np.concatenate([seen[100:160], unseen[:40]])), 1)
        live = trace.select(np.concatenate([seen[160:220], unseen[40:80]]))
        assert np.bincount(nearest_centroids(active, live)).max() == 40
        by_nearest = [
            union_changes(live.decode_share, nearest_centroids(version, live), [4])[0].percent
            for version in (refit, active)
        ]
        assert by_nearest[0] == pytest.approx(by_nearest[1]), "as if there were nothing to gain"
        assert compare_versions(refit, active, live, batch_size=4, n_batches=8).interval[1] < 0

    def test_comparisons_of_two_batch_sizes_are_not_pooled(self) -> None:
        two = [
            PairedComparison(batch_size=size, mean_points=0.0, interval=(-1.0, 1.0), n_batches=2)
            for size in (8, 16)
        ]
        with pytest.raises(InvalidValue, match="batch_size"):
            pooled(two)

    @pytest.mark.parametrize(("high", "verdict"), [(0.5, True), (0.501, False)])
    def test_the_upper_end_decides(self, high: float, verdict: bool) -> None:
        result = PairedComparison(batch_size=16, mean_points=0.0, interval=(-1.0, high), n_batches=10)
        assert result.is_not_worse() is verdict

    def test_too_few_requests_are_named(self) -> None:
        trace = topic_trace(40, 4)
        with pytest.raises(InvalidTrace, match=r"n_requests is 40; must be enough .* cluster of 16"):
            compare_versions(self.fitted(trace, 4), self.fitted(trace, 3), trace)

    def test_one_half_sample_is_not_enough(self) -> None:
        trace = topic_trace(40, 4)
        version = self.fitted(trace, 4)
        with pytest.raises(InvalidValue, match="n_batches is 1"):
            compare_versions(version, version, trace, n_batches=1)
