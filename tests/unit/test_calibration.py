import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from eldr_runtime.calibration import CalibrationSettings, CalibrationStage, calibrate, fit_version
from eldr_runtime.centroid_version import VersionOrigin
from eldr_runtime.errors import Cancelled, InvalidConfig, InvalidTrace, InvalidValue, ModelMismatch
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.signature import TransformName, inverse_document_frequency

SHAPE = ModelShape(model="tiny", n_layers=3, n_experts=16, top_k=2)
SETTINGS = CalibrationSettings(n_clusters=4, n_pairs=400, n_splits=3, held_out_batch_sizes=(4, 16))


def topic_trace(n_requests: int = 144, seed: int = 0, **changes: object) -> ExpertTrace:
    """Four topics of four experts in layers 0 and 1; layer 2 is the same mix for all."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(4, size=n_requests)
    counts = np.zeros((2, n_requests, 3, 16), dtype=np.uint32)
    for request, topic in enumerate(topics):
        own = 4 * topic + np.arange(4)
        for layer, experts in enumerate((own, own, np.arange(16))):
            pairs = np.array(list(combinations(experts, 2)))
            for phase in range(2):
                np.add.at(counts[phase, request, layer], pairs[rng.integers(len(pairs), size=20)], 1)
    tokens = np.full(n_requests, 20)
    fields: dict[str, object] = {
        "shape": SHAPE,
        "prefill_counts": counts[0],
        "prompt_tokens": tokens,
        "covered_tokens": tokens,
        "decode_counts": counts[1],
        "decode_steps": tokens,
        "labels": tuple(f"topic {topic}" for topic in topics),
        "signature_note": "made up",
    }
    return ExpertTrace(**(fields | changes))  # type: ignore[arg-type]


TRACE = topic_trace()
BARE = topic_trace(decode_counts=None, decode_steps=None)


class TestFitVersion:
    def test_finds_the_topics_and_leaves_out_the_layer_that_says_nothing(self) -> None:
        version = fit_version(TRACE, replace(SETTINGS, balanced=False))
        assert version.transform.layer_mask.tolist()[2] is False
        labels = np.argmax(version.transform.apply(TRACE.prefill_counts) @ version.centroids.T, axis=1)
        assert TRACE.labels is not None
        assert len(set(zip(labels, TRACE.labels, strict=True))) == 4

    def test_carries_weights_use_and_origin(self) -> None:
        version = fit_version(TRACE, SETTINGS, origin=VersionOrigin.DRIFT_REFIT, parent_hash="a" * 64)
        np.testing.assert_array_equal(
            version.transform.weights, inverse_document_frequency(TRACE.prefill_counts)
        )
        np.testing.assert_allclose(version.mean_use, TRACE.prefill_counts.sum(axis=0) / 2880, rtol=1e-6)
        assert (version.origin, version.parent_hash) == (VersionOrigin.DRIFT_REFIT, "a" * 64)
        assert version.n_requests == 144
        assert [name for name, _ in version.library_versions] == [
            "numpy",
            "safetensors",
            "scikit-learn",
            "scipy",
        ]

    def test_equal_fits_have_equal_hashes(self) -> None:
        first, again = fit_version(TRACE, SETTINGS), fit_version(TRACE, SETTINGS)
        assert first.content_hash == again.content_hash
        assert fit_version(TRACE, replace(SETTINGS, seed=2)).content_hash != first.content_hash

    def test_curve_of_the_selection_is_kept(self) -> None:
        metrics = dict(fit_version(TRACE, SETTINGS).metrics)
        curve = metrics["rho_by_layer_count"]
        assert isinstance(curve, tuple)
        assert len(curve) == 3
        assert metrics["n_layers_kept"] == int(np.argmax(curve)) + 1
        assert metrics["inherits_transform"] == 0.0

    def test_requests_without_counts_are_left_out(self) -> None:
        counts, covered = TRACE.prefill_counts.copy(), TRACE.covered_tokens.copy()
        counts[7], covered[7] = 0, 0
        holed = topic_trace(prefill_counts=counts, covered_tokens=covered)
        result = calibrate(holed, SETTINGS)
        assert result.version.n_requests == result.report.n_requests == 143
        assert result.report.n_left_out == 1

    def test_without_decode_counts_layers_cannot_be_selected(self) -> None:
        with pytest.raises(InvalidTrace, match="decode_counts is None; must be present for layer selection"):
            fit_version(BARE, SETTINGS)

    def test_without_decode_counts_a_version_can_be_inherited(self) -> None:
        parent = fit_version(TRACE, SETTINGS)
        child = fit_version(BARE, SETTINGS, inherit=parent, origin=VersionOrigin.TOPOLOGY_REFIT)
        np.testing.assert_array_equal(child.transform.weights, parent.transform.weights)
        np.testing.assert_array_equal(child.transform.layer_mask, parent.transform.layer_mask)
        assert child.parent_hash == parent.content_hash
        assert child.origin is VersionOrigin.TOPOLOGY_REFIT
        assert dict(child.metrics)["inherits_transform"] == 1.0
        assert "rho_by_layer_count" not in dict(child.metrics)

    def test_another_model_cannot_be_inherited(self) -> None:
        other = ModelShape(model="other", n_layers=3, n_experts=16, top_k=2)
        with pytest.raises(ModelMismatch, match=r"model='tiny'.*model='other'"):
            fit_version(replace(TRACE, shape=other), SETTINGS, inherit=fit_version(TRACE, SETTINGS))

    def test_fewer_requests_than_clusters_is_named(self) -> None:
        with pytest.raises(InvalidTrace, match="n_requests is 144; must be at least the 145 clusters"):
            fit_version(TRACE, replace(SETTINGS, n_clusters=145))

    @pytest.mark.parametrize(
        "change",
        [
            {"n_clusters": 0},
            {"seed": -1},
            {"n_pairs": 1},
            {"n_splits": 1},
            {"n_clusters": True},
            {"n_clusters": 1.5},
            {"held_out_batch_sizes": (8.0,)},
            {"held_out_batch_sizes": (0, 8)},
        ],
    )
    def test_settings_outside_their_limit_are_named(self, change: dict[str, object]) -> None:
        limit = f"{next(iter(change))} is .*; must be an integer of at least"
        with pytest.raises(InvalidConfig, match=limit):
            replace(SETTINGS, **change)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"held_out_batch_sizes": ()}, r"held_out_batch_sizes is \(\); must be at least one batch size"),
            ({"seed": 2**32}, "seed is 4294967296; must be at most 4294967295"),
            ({"transform": "luck"}, "transform is 'luck'; must be one of count_idf, count"),
        ],
    )
    def test_other_settings_outside_their_limit(self, change: dict[str, object], message: str) -> None:
        with pytest.raises(InvalidConfig, match=message):
            replace(SETTINGS, **change)  # type: ignore[arg-type]

    def test_requests_that_all_use_the_same_experts(self) -> None:
        alike = TRACE.select(np.zeros(40, dtype=np.int64))
        with pytest.raises(InvalidValue, match="n_requests is 0; must be at least the 4 clusters, counting"):
            fit_version(alike, SETTINGS)  # every expert weighs nothing
        report = calibrate(alike, replace(SETTINGS, transform=TransformName.COUNT)).report
        assert report.projection.explained_share.tolist() == [0.0] * len(report.projection.explained_share)
        assert all(one.mean_percent == pytest.approx(0.0) for one in report.held_out)

    def test_as_many_clusters_as_requests(self) -> None:
        version = fit_version(TRACE, replace(SETTINGS, n_clusters=len(TRACE)))
        assert version.n_centroids == len(TRACE)

    def test_one_request(self) -> None:
        one = TRACE.select(np.array([0]))
        with pytest.raises(InvalidValue, match="n_requests is 1; must be at least 2 to make pairs"):
            calibrate(one, replace(SETTINGS, n_clusters=1))


class TestCalibrate:
    def test_report_by_hand_where_topics_are_clear(self) -> None:
        # A batch of 4 within a topic loads at most 4 experts in layers 0 and 1, a mixed one far more.
        result = calibrate(TRACE, replace(SETTINGS, balanced=False))
        report = result.report
        judged = report.held_out_at(4)
        assert judged is not None
        assert judged.mean_percent < -25.0
        assert judged.covered_share == 1.0
        assert report.control_random_labels_percent is not None
        assert abs(report.control_random_labels_percent) < 3.0
        assert report.rho is not None
        assert report.rho.rho > 0.6
        assert sorted(report.cluster_sizes) == sorted(
            sum(label == f"topic {topic}" for label in TRACE.labels or ()) for topic in range(4)
        )
        assert report.silhouette is not None
        assert report.silhouette > 0.3
        assert [one.transform for one in report.rho_by_transform] == [
            TransformName.COUNT_IDF,
            TransformName.COUNT,
            TransformName.SQRT_COUNT,
            TransformName.BINARY,
        ]

    def test_version_is_the_one_of_fit_version(self) -> None:
        assert calibrate(TRACE, SETTINGS).version.content_hash == fit_version(TRACE, SETTINGS).content_hash

    def test_json_has_its_keys_and_survives(self) -> None:
        report = calibrate(TRACE, SETTINGS).report
        values = json.loads(json.dumps(report.to_json(), allow_nan=False))
        assert values["n_requests"] == 144
        assert values["n_left_out"] == 0
        assert values["signature_note"] == "made up"
        assert values["rho_interval"][0] <= values["rho"] <= values["rho_interval"][1]
        assert sum(values["cluster_sizes"]) == 144
        assert len(values["rho_by_layer_count"]) == 3
        assert set(values["rho_by_transform"]) == {"count_idf", "count", "sqrt_count", "binary"}
        assert set(values["held_out"]) == {"batch_4", "batch_16"}
        batch = values["held_out"]["batch_4"]
        assert np.mean(batch["seeds"]) == pytest.approx(batch["mean_percent"])
        assert batch["interval"][0] < batch["mean_percent"] < batch["interval"][1]
        assert 0.9 <= batch["covered_share"] <= 1.0
        assert "random_labels_percent" in values["control"]
        assert len(values["projection"]["points"]) == len(values["projection"]["clusters"]) == 144
        assert len(values["projection"]["centroids"]) == 4

    def test_sizes_that_no_half_can_fill_are_null(self) -> None:
        report = calibrate(TRACE, replace(SETTINGS, held_out_batch_sizes=(4, 73))).report
        values = report.to_json()["held_out"]
        assert isinstance(values, dict)
        assert values["batch_73"] is None

    def test_without_decode_counts_there_are_no_quality_figures(self) -> None:
        report = calibrate(BARE, replace(SETTINGS, select_layers=False)).report
        assert report.rho is None
        assert report.rho_by_transform == ()
        assert report.rho_by_layer_count is None
        assert report.held_out == ()
        assert report.control_random_labels_percent is None
        assert report.n_layers_kept == 3
        assert json.loads(json.dumps(report.to_json()))["held_out"] == {"batch_4": None, "batch_16": None}

    def test_too_few_requests_for_halves_are_not_judged(self) -> None:
        report = calibrate(topic_trace(6), SETTINGS).report
        assert report.held_out == ()
        assert report.rho is not None

    def test_stages_come_in_order_and_end_at_one(self) -> None:
        seen: list[tuple[CalibrationStage, float]] = []
        calibrate(TRACE, SETTINGS, lambda stage, share: seen.append((stage, share)))
        assert list(dict.fromkeys(stage for stage, _ in seen)) == list(CalibrationStage)
        last = dict(seen)
        assert set(last.values()) == {1.0}
        for stage in CalibrationStage:
            shares = [share for each, share in seen if each is stage]
            assert shares == sorted(shares)

    @pytest.mark.parametrize("stage", list(CalibrationStage))
    def test_can_be_cancelled_at_every_stage(self, stage: CalibrationStage) -> None:
        def cancel(now: CalibrationStage, share: float) -> None:
            if now is stage:
                raise Cancelled("asked to stop")

        with pytest.raises(Cancelled):
            calibrate(TRACE, SETTINGS, cancel)
