from dataclasses import replace

import numpy as np
import pytest

from eldr_runtime.errors import Cancelled, InvalidTrace, InvalidValue, ModelMismatch
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.held_out_union import expected_unions
from eldr_runtime.json_values import to_json_value
from eldr_runtime.latency_model import LatencyModel, LatencyPreset
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.readiness import ReadinessStage, assess
from eldr_runtime.readiness_report import CategoryFinding, ReadinessReport, Verdict

SHAPE = ModelShape(model="tiny", n_layers=2, n_experts=16, top_k=2)
PRESET = LatencyPreset(
    name="made-up",
    model=LatencyModel(t0_ms=5.0, per_expert_ms=0.5, per_request_ms=0.1, per_kv_token_ms=0.001),
    shape=SHAPE,
    kv_bytes_per_token=1.0,
    expert_bytes=1.0,
    source="made up",
    uncertainty_percent=30.0,
)


def build_trace(n_requests: int, n_topics: int, seed: int = 0) -> ExpertTrace:
    """Topics of four experts each, or one even mix of all experts; a category "rest" draws from all."""
    rng = np.random.default_rng(seed)
    topics = np.arange(n_requests) % n_topics
    weights = np.ones((n_topics, 16))
    if n_topics > 1:
        for topic in range(n_topics - 1):
            weights[topic] = np.where(np.arange(16) // 4 == topic, 1.0, 0.0)
    counts = np.zeros((2, n_requests, 2, 16), dtype=np.uint32)
    scores = (
        rng.exponential(size=(2, n_requests, 2, 20, 16)) / np.maximum(weights[topics], 1e-9)[:, None, None]
    )
    chosen = np.argpartition(scores, 2, axis=-1)[..., :2]
    for token in range(20):
        np.put_along_axis(
            counts,
            chosen[..., token, :],
            np.take_along_axis(counts, chosen[..., token, :], axis=-1) + 1,
            axis=-1,
        )
    tokens = np.full(n_requests, 20)
    names = ("first", "second", "third", "rest") if n_topics > 1 else ("all",)
    return ExpertTrace(
        shape=SHAPE,
        prefill_counts=counts[0],
        prompt_tokens=tokens,
        covered_tokens=tokens,
        decode_counts=counts[1],
        decode_steps=tokens,
        labels=tuple(names[topic] for topic in topics),
        signature_note="made up",
    )


TOPICS = build_trace(320, 4)


@pytest.fixture(scope="module")
def report() -> ReadinessReport:
    return assess(TOPICS, n_clusters=4, step_time=PRESET, batch_sizes=(8, 16, 64), n_splits=6)


class TestVerdict:
    def test_topics_are_worth_it_with_figures(self, report: ReadinessReport) -> None:
        assert report.verdict is Verdict.WORTH_IT
        assert report.decided_at_batch_size == 16
        judged = {one.batch_size: one for one in report.gain}
        assert judged[16].interval[1] < -10.0
        assert 64 not in judged
        assert report.sentences[0].startswith("Worth it: ")
        assert sum(cluster.n_requests for cluster in report.clusters) == 160
        assert report.signature_note == "made up"

    def test_a_uniform_mix_has_nothing_to_gain(self) -> None:
        flat = assess(build_trace(320, 1), n_clusters=4, batch_sizes=(8, 16), n_splits=6)
        assert flat.verdict is Verdict.NOTHING_TO_GAIN
        assert flat.sentences[0].startswith("Nothing to gain: ")
        assert flat.predicted_tpot == ()

    def test_a_threshold_inside_the_interval_is_inconclusive(self, report: ReadinessReport) -> None:
        judged = next(one for one in report.gain if one.batch_size == 16)
        asked = -judged.mean_percent
        result = assess(TOPICS, n_clusters=4, batch_sizes=(8, 16), n_splits=6, least_gain_percent=asked)
        assert result.verdict is Verdict.INCONCLUSIVE

    def test_too_few_requests_for_a_batch_are_inconclusive(self) -> None:
        result = assess(build_trace(24, 4), n_clusters=4, batch_sizes=(16,), n_splits=2)
        assert result.verdict is Verdict.INCONCLUSIVE
        assert result.decided_at_batch_size is None
        assert "No batch size could be judged" in result.sentences[0]


class TestFindings:
    def test_categories_that_gain_and_one_that_does_not(self, report: ReadinessReport) -> None:
        finding = {one.category: one.finding for one in report.categories}
        assert finding == {
            "first": CategoryFinding.GAINS,
            "second": CategoryFinding.GAINS,
            "third": CategoryFinding.GAINS,
            "rest": CategoryFinding.GAINS_NOTHING,
        }
        percents = [one.percent for one in report.categories]
        assert percents == sorted(percents, key=lambda percent: percent or 0.0)
        assert any("gain nothing: rest." in sentence for sentence in report.sentences)

    def test_clusters_are_told_of(self, report: ReadinessReport) -> None:
        percents = [one.percent for one in report.clusters if one.percent is not None]
        low, high = min(percents), max(percents)
        start = f"By cluster (first split): {low:+.1f} to {high:+.1f} % over {len(percents)} clusters;"
        assert any(sentence.startswith(start) for sentence in report.sentences)

    def test_sizes_no_cluster_holds_are_told_of(self) -> None:
        result = assess(TOPICS, n_clusters=4, batch_sizes=(8, 200), n_splits=2)
        asked = "batches of 200: on some split no cluster holds one."
        assert result.sentences[-1] == f"Too few requests to judge {asked}"

    def test_small_categories_are_named_as_such(self) -> None:
        labels = ("few",) * 15 + ("some",) * 20 + ("more",) * 21 + ("many",) * 264
        result = assess(replace(TOPICS, labels=labels), n_clusters=4, batch_sizes=(8,), n_splits=2)
        found = {one.category: one for one in result.categories}
        assert (found["few"].finding, found["few"].percent) == (CategoryFinding.TOO_SMALL, None)
        assert (found["some"].finding, found["some"].interval) == (CategoryFinding.UNCERTAIN, None)
        assert found["some"].percent is not None
        assert found["many"].interval is not None
        # 21 requests: draws of 16 leave 5 out, more than sqrt(21); of 20 only 4.
        assert found["more"].interval is not None
        assert found["more"].percent is not None
        assert found["more"].interval[0] < found["more"].percent < found["more"].interval[1]
        assert any(s.endswith("fewer than 16 requests: 1 of 4 categories.") for s in result.sentences)

    def test_oracle_is_no_worse_than_what_was_found(self, report: ReadinessReport) -> None:
        oracle = {one.batch_size: one.percent for one in report.oracle}
        judged = {one.batch_size: one.mean_percent for one in report.gain}
        assert oracle[16] < judged[16] + 1.0

    def test_predicted_time_by_hand(self, report: ReadinessReport) -> None:
        # 5 + 0.5 * union + 0.1 * 16 + 0.001 * 16 * (20 + 10) = 7.08 + 0.5 * union.
        (mixed,) = expected_unions(TOPICS.decode_share, [16])
        assert mixed is not None
        judged = next(one for one in report.gain if one.batch_size == 16)
        tpot = next(one for one in report.predicted_tpot if one.batch_size == 16)
        assert tpot.mixed_ms == pytest.approx(7.08 + 0.5 * mixed)
        assert tpot.clustered_ms == pytest.approx(7.08 + 0.5 * mixed * (1 + judged.mean_percent / 100))
        assert tpot.percent == pytest.approx(100 * (tpot.clustered_ms / tpot.mixed_ms - 1))
        assert tpot.interval[0] < tpot.percent < tpot.interval[1]
        assert report.preset_uncertainty_percent == 30.0

    def test_has_a_json_form(self, report: ReadinessReport) -> None:
        values = to_json_value(report)
        assert isinstance(values, dict)
        assert values["verdict"] == "worth_it"


class TestRefusals:
    def test_a_preset_of_another_shape(self) -> None:
        other = replace(PRESET, shape=replace(SHAPE, n_experts=32))
        with pytest.raises(ModelMismatch, match="preset made-up is for"):
            assess(TOPICS, n_clusters=4, step_time=other)

    def test_no_decode_counts(self) -> None:
        bare = replace(TOPICS, decode_counts=None, decode_steps=None)
        with pytest.raises(InvalidTrace, match="decode_counts is None"):
            assess(bare, n_clusters=4)

    def test_a_least_gain_of_zero(self) -> None:
        with pytest.raises(InvalidValue, match=r"least_gain_percent is 0\.0; must be above 0"):
            assess(TOPICS, n_clusters=4, least_gain_percent=0.0)

    @pytest.mark.parametrize("stage", list(ReadinessStage))
    def test_can_be_cancelled_at_every_stage(self, stage: ReadinessStage) -> None:
        def cancel(now: ReadinessStage, share: float) -> None:
            if now is stage:
                raise Cancelled("asked to stop")

        with pytest.raises(Cancelled):
            assess(TOPICS, n_clusters=4, batch_sizes=(8,), n_splits=2, on_progress=cancel)
