"""Drift on traffic in sessions: topics in shares, sessions around topics, requests around sessions."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from eldr_runtime.array_types import Floats, Floats32
from eldr_runtime.drift import (
    DriftMeasure,
    DriftReference,
    DriftReport,
    DriftSettings,
    DriftVerdict,
    RefitReason,
    WorkerUnions,
    decide_refit,
    measure_drift,
    population_stability_index,
)
from eldr_runtime.errors import InvalidValue
from eldr_runtime.placed_traffic import PlacedTraffic, place_traffic

N_TOPICS, N_FEATURES = 8, 256
SETTINGS = DriftSettings(n_bootstrap=1000)


def unit(vectors: Floats) -> Floats:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


WORLD = np.random.default_rng(99)
TOPICS = unit(WORLD.random((N_TOPICS, N_FEATURES)) ** 3)
SPREAD = WORLD.uniform(0.3, 0.6, N_TOPICS)  # topics differ in how alike their requests are
UNSEEN = unit(WORLD.random(N_FEATURES) ** 3)
ASIDE = unit(WORLD.random((N_TOPICS, N_FEATURES)) ** 3)


def draw_traffic(
    seed: int,
    *,
    topics: Floats = TOPICS,
    mix: Floats | None = None,
    unseen_share: float = 0,
    n_sessions: int = 140,
) -> tuple[Floats32, list[str]]:
    """About 20 requests a session; a session keeps to one topic and to its own corner of it."""
    rng = np.random.default_rng(seed)
    signatures, sessions = [], []
    for session in range(n_sessions):
        topic = rng.choice(N_TOPICS, p=mix)
        centre, spread = topics[topic], SPREAD[topic]
        if rng.random() < unseen_share:
            centre = UNSEEN
        corner = centre + spread / 2 * rng.normal(size=N_FEATURES) / math.sqrt(N_FEATURES)
        n_requests = 1 + rng.poisson(19)
        noise = spread * rng.normal(size=(n_requests, N_FEATURES)) / math.sqrt(N_FEATURES)
        signatures.append(unit(np.clip(corner + noise, 0, None)))
        sessions += [f"session-{session}"] * n_requests
    return np.concatenate(signatures).astype(np.float32), sessions


def fit_centroids() -> Floats32:
    signatures, _ = draw_traffic(1)
    topic_of = (signatures @ TOPICS.T).argmax(axis=1)
    return unit(np.stack([signatures[topic_of == topic].mean(axis=0) for topic in range(N_TOPICS)])).astype(
        np.float32
    )


CENTROIDS = fit_centroids()


def place(seed: int, **changes: object) -> PlacedTraffic:
    signatures, sessions = draw_traffic(seed, **changes)
    return place_traffic(signatures, CENTROIDS, sessions)


REFERENCE = DriftReference(version_hash="v1", traffic=place(2))


def measure(seed: int, **changes: object) -> DriftReport:
    return measure_drift(REFERENCE, place(seed, **changes), settings=SETTINGS)


class TestOnTraffic:
    def test_no_false_alarm_on_traffic_in_sessions(self) -> None:
        for seed in range(100, 110):
            report = measure(seed)
            assert report.fit_degradation.verdict is DriftVerdict.OK
            assert report.mix_shift.verdict is DriftVerdict.OK
            assert report.version_hash == "v1"

    def test_chi_square_on_occupancy_would_fire_on_no_drift(self) -> None:
        """Why bounds come from sessions: taken as independent, requests of unchanged traffic look shifted."""
        expected = REFERENCE.traffic.occupancy() / len(REFERENCE.traffic)
        n_fired = 0
        for seed in range(100, 110):
            found = place(seed).occupancy()
            statistic = ((found - expected * found.sum()) ** 2 / (expected * found.sum())).sum()
            n_fired += statistic > 24.3  # 99.9 % of chi-square with 7 degrees of freedom
        assert n_fired >= 8

    @pytest.mark.parametrize("seed", [200, 201, 202])
    def test_fires_on_centroids_turned_by_15_percent(self, seed: int) -> None:
        turned = unit(0.85 * TOPICS + 0.15 * ASIDE)
        report = measure(seed, topics=turned)
        assert report.fit_degradation.verdict is DriftVerdict.DRIFT
        assert report.fit_degradation.value is not None
        assert report.fit_degradation.threshold is not None
        assert report.fit_degradation.value < report.fit_degradation.threshold

    @pytest.mark.parametrize(("share", "seed"), [(0.15, 300), (0.15, 301), (0.2, 302), (0.3, 303)])
    def test_fires_on_an_unseen_topic(self, share: float, seed: int) -> None:
        assert measure(seed, unseen_share=share).fit_degradation.verdict is DriftVerdict.DRIFT

    def test_a_mix_shift_is_a_notice_and_no_degradation(self) -> None:
        to_loose = SPREAD**6 / (SPREAD**6).sum()
        to_few = np.array([0.4, 0.02, 0.02, 0.4, 0.04, 0.04, 0.04, 0.04])
        for mix in (to_loose, to_few):
            report = measure(400, mix=mix)
            assert report.mix_shift.verdict is DriftVerdict.DRIFT
            assert report.fit_degradation.verdict is DriftVerdict.OK

    def test_equal_arguments_give_equal_reports(self) -> None:
        assert measure(100) == measure(100)

    def test_below_the_floors_there_is_no_verdict(self) -> None:
        few = measure(100, n_sessions=20)  # about 400 requests
        assert few.fit_degradation.verdict is few.mix_shift.verdict is DriftVerdict.INSUFFICIENT_DATA
        assert few.fit_degradation.value is few.fit_degradation.threshold is None
        assert 300 < few.fit_degradation.n < 500
        enough_for_one = measure(100, n_sessions=60)  # about 1,200 requests
        assert enough_for_one.fit_degradation.verdict is DriftVerdict.OK
        assert enough_for_one.mix_shift.verdict is DriftVerdict.INSUFFICIENT_DATA

    def test_a_long_window_of_few_sessions_has_no_verdict(self) -> None:
        signatures, _ = draw_traffic(100)
        one_session = place_traffic(signatures, CENTROIDS, ["only"] * len(signatures))
        report = measure_drift(REFERENCE, one_session, settings=SETTINGS)
        assert report.fit_degradation.verdict is report.mix_shift.verdict is DriftVerdict.INSUFFICIENT_DATA

    def test_no_traffic_at_all(self) -> None:
        empty = place_traffic(np.zeros((0, N_FEATURES), dtype=np.float32), CENTROIDS, [])
        report = measure_drift(REFERENCE, empty, settings=SETTINGS)
        assert report.fit_degradation == DriftMeasure(
            verdict=DriftVerdict.INSUFFICIENT_DATA, n=0, value=None, threshold=None
        )

    def test_refuses_traffic_of_other_centroids(self) -> None:
        other = place_traffic(TOPICS.astype(np.float32), CENTROIDS[:3])
        with pytest.raises(InvalidValue, match="n_clusters is 3; must be 8"):
            measure_drift(REFERENCE, other)


def test_population_stability_index_by_hand() -> None:
    # (150.5 - 100.5) / 201 * ln(150.5 / 100.5) + (50.5 - 100.5) / 201 * ln(50.5 / 100.5)
    found = population_stability_index(np.array([100, 100]), np.array([150, 50]))
    assert found == pytest.approx(50 / 201 * math.log(150.5 / 50.5))
    assert math.isfinite(population_stability_index(np.array([10, 0]), np.array([0, 10])))


class TestUnionSurprise:
    few = place(100, n_sessions=1)

    def measure(self, *unions: WorkerUnions, ratio: float = 1) -> DriftMeasure:
        reference = DriftReference(version_hash="v1", traffic=REFERENCE.traffic, union_ratio=ratio)
        return measure_drift(reference, self.few, unions, SETTINGS).union_surprise

    def unions(self, worker_id: str, observed: float, n_steps: int = 2000) -> WorkerUnions:
        return WorkerUnions(
            worker_id=worker_id,
            n_steps=n_steps,
            observed_sum=observed * n_steps,
            predicted_sum=50.0 * n_steps,
        )

    def test_the_worst_worker_by_hand(self) -> None:
        measure = self.measure(self.unions("a", 50), self.unions("b", 56), self.unions("c", 40))
        assert measure == DriftMeasure(
            verdict=DriftVerdict.DRIFT, n=6000, value=pytest.approx(1.12), threshold=1.1, subject="b"
        )
        assert self.measure(self.unions("a", 54)).verdict is DriftVerdict.OK

    def test_it_is_relative_to_the_reference(self) -> None:
        assert self.measure(self.unions("b", 56), ratio=1.05).verdict is DriftVerdict.OK

    def test_workers_below_the_floor_do_not_count(self) -> None:
        measure = self.measure(self.unions("a", 50), self.unions("b", 100, n_steps=999))
        assert (measure.verdict, measure.subject) == (DriftVerdict.OK, "a")
        none = self.measure(self.unions("b", 100, n_steps=999))
        assert (none.verdict, none.n, none.value) == (DriftVerdict.INSUFFICIENT_DATA, 999, None)
        assert self.measure().verdict is DriftVerdict.INSUFFICIENT_DATA

    @pytest.mark.parametrize(
        ("n_steps", "observed", "predicted"), [(-1, 1, 1), (1, 0, 1), (1, 1, 0), (1, math.nan, 1), (1, 1, -1)]
    )
    def test_refuses(self, n_steps: int, observed: float, predicted: float) -> None:
        with pytest.raises(InvalidValue):
            WorkerUnions(worker_id="a", n_steps=n_steps, observed_sum=observed, predicted_sum=predicted)


@pytest.mark.parametrize(
    "change",
    [
        {"minimum_requests": 0},
        {"minimum_sessions": 1},
        {"mix_minimum_requests": 1999},
        {"mix_threshold": 0},
        {"union_minimum_steps": 0},
        {"union_threshold": 1},
        {"false_alarm_share": 0},
        {"n_bootstrap": 999},
        {"seed": -1},
    ],
)
def test_refuses_settings(change: dict[str, float]) -> None:
    with pytest.raises(InvalidValue) as refused:
        DriftSettings(**change)
    assert refused.value.field == next(iter(change))


def test_refuses_a_reference() -> None:
    with pytest.raises(InvalidValue, match="union_ratio"):
        DriftReference(version_hash="v1", traffic=REFERENCE.traffic, union_ratio=0)


NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOTHING = DriftMeasure(verdict=DriftVerdict.INSUFFICIENT_DATA, n=0, value=None, threshold=None)
PLAIN = {
    "last_refit_at": NOW - timedelta(hours=2),
    "cooldown_seconds": 3600,
    "now": NOW,
    "n_samples": 5000,
    "minimum_samples": 2000,
    "refits_today": 1,
    "max_per_day": 4,
}


def report_of(verdict: DriftVerdict, *, mix: DriftVerdict = DriftVerdict.OK) -> DriftReport:
    known = verdict is not DriftVerdict.INSUFFICIENT_DATA
    fit = DriftMeasure(
        verdict=verdict, n=3000, value=0.7 if known else None, threshold=0.8 if known else None
    )
    return DriftReport(
        version_hash="v1",
        fit_degradation=fit,
        mix_shift=DriftMeasure(verdict=mix, n=3000, value=0.3, threshold=0.1),
        union_surprise=NOTHING,
    )


@pytest.mark.parametrize(
    ("verdict", "change", "reason"),
    [
        (DriftVerdict.DRIFT, {}, RefitReason.FIT_DEGRADED),
        (DriftVerdict.DRIFT, {"last_refit_at": None}, RefitReason.FIT_DEGRADED),
        (DriftVerdict.DRIFT, {"last_refit_at": NOW - timedelta(seconds=3600)}, RefitReason.FIT_DEGRADED),
        (DriftVerdict.OK, {}, RefitReason.NO_DRIFT),
        (DriftVerdict.INSUFFICIENT_DATA, {}, RefitReason.INSUFFICIENT_DATA),
        (DriftVerdict.DRIFT, {"is_refit_running": True}, RefitReason.ALREADY_RUNNING),
        (DriftVerdict.DRIFT, {"last_refit_at": NOW - timedelta(seconds=3599)}, RefitReason.COOLING_DOWN),
        (DriftVerdict.DRIFT, {"n_samples": 1999}, RefitReason.TOO_FEW_SAMPLES),
        (DriftVerdict.DRIFT, {"refits_today": 4}, RefitReason.DAILY_LIMIT),
    ],
)
def test_a_refit_is_decided_with_a_reason(
    verdict: DriftVerdict, change: dict[str, object], reason: RefitReason
) -> None:
    decision = decide_refit(report_of(verdict), **(PLAIN | change))
    assert decision.reason is reason
    assert decision.should_refit is (reason is RefitReason.FIT_DEGRADED)
    assert decision.explanation


def test_a_mix_shift_alone_starts_no_refit() -> None:
    decision = decide_refit(report_of(DriftVerdict.OK, mix=DriftVerdict.DRIFT), **PLAIN)
    assert (decision.should_refit, decision.reason) == (False, RefitReason.NO_DRIFT)
