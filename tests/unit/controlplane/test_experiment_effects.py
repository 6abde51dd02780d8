from datetime import UTC, datetime, timedelta

import pytest

from controlplane.domain.experiment_effects import complete_pairs, measure_effects, measure_windows
from controlplane.domain.latency_counts import LatencyCounts
from controlplane.domain.metric_series import ExperimentSpan, SeriesTotals

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
FAR_LATER = START + timedelta(days=1)


def span_of(n_pairs: int) -> ExperimentSpan:
    return ExperimentSpan(
        id="e1",
        first_window=int(START.timestamp()) // 60,
        n_pairs=n_pairs,
        window_seconds=60,
        washout_seconds=20,
        seed=1,
    )


def totals(tpot_us: int, *, n_requests: int = 20, active: float = 40.0) -> SeriesTotals:
    return SeriesTotals(
        n_requests=n_requests,
        n_steps=10,
        active_experts_sum=(10 * active, 10 * active),
        tpot=LatencyCounts(by_index={tpot_us: n_requests}),
        ttft=LatencyCounts(by_index={200: n_requests}),
    )


def run(n_pairs: int, treated_us: int = 900, control_us: int = 1000, **values: object):
    span = span_of(n_pairs)
    by_window = {
        index: totals(treated_us if span.arm_window(index).arm == "treatment" else control_us, **values)
        for index in span.windows
    }
    return span, by_window


def effects_of(span: ExperimentSpan, by_window: dict[int, SeriesTotals], now: datetime = FAR_LATER):
    pairs = complete_pairs(span, measure_windows(span, by_window), now)
    return pairs, {effect.metric: effect for effect in measure_effects(pairs)}


def test_six_pairs_of_ten_percent_less_by_hand() -> None:
    _, effects = effects_of(*run(6))
    tpot = effects["tpot_p50_ms"]
    # 900 us against 1,000 us in every pair: -10 %, and 2 of the 64 sign vectors are as extreme.
    assert tpot.mean_percent == pytest.approx(-10.0)
    assert tpot.p_value == pytest.approx(2 / 64)
    assert tpot.interval_percent == pytest.approx((-10.0, -10.0))
    assert (tpot.n_pairs, tpot.verdict) == (6, "lower")
    assert effects["active_experts"].verdict == "no_effect"


def test_more_is_called_higher() -> None:
    _, effects = effects_of(*run(6, treated_us=1100))
    assert effects["tpot_p99_ms"].verdict == "higher"
    assert effects["tpot_p99_ms"].mean_percent == pytest.approx(10.0)


def test_five_pairs_are_inconclusive_whatever_they_say() -> None:
    _, effects = effects_of(*run(5, treated_us=100))
    tpot = effects["tpot_p50_ms"]
    assert (tpot.verdict, tpot.n_pairs, tpot.interval_percent, tpot.p_value) == (
        "inconclusive",
        5,
        None,
        None,
    )
    assert tpot.mean_percent == pytest.approx(-90.0)


def test_a_pair_counts_when_both_windows_are_over_and_have_requests() -> None:
    span, by_window = run(3)
    pairs, _ = effects_of(span, by_window, START + timedelta(seconds=4 * 60))
    assert len(pairs) == 2
    del by_window[span.first_window]
    pairs, _ = effects_of(span, by_window)
    assert [treatment.pair for treatment, _ in pairs] == [1, 2]
    by_window[span.first_window] = totals(1000, n_requests=9)
    assert len(effects_of(span, by_window)[0]) == 2


def test_each_pair_has_the_treatment_first() -> None:
    pairs, _ = effects_of(*run(4))
    assert [(one.arm, other.arm) for one, other in pairs] == [("treatment", "control")] * 4
    assert {abs((one.start - other.start).total_seconds()) for one, other in pairs} == {60.0}


def test_nothing_measured() -> None:
    pairs, effects = effects_of(span_of(6), {})
    assert pairs == []
    assert {effect.verdict for effect in effects.values()} == {"inconclusive"}
    assert {effect.mean_percent for effect in effects.values()} == {None}


def test_a_metric_that_some_windows_lack_has_fewer_pairs() -> None:
    span, by_window = run(6)
    bare = by_window[span.first_window]
    by_window[span.first_window] = SeriesTotals(n_requests=20, tpot=bare.tpot, ttft=bare.ttft)
    _, effects = effects_of(span, by_window)
    assert (effects["tpot_p50_ms"].n_pairs, effects["active_experts"].n_pairs) == (6, 5)
    assert effects["active_experts"].verdict == "inconclusive"
