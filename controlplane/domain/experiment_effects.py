"""What a switchback measured: its windows, and the effect on each metric from paired windows."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import numpy as np

from controlplane.domain.arms import TREATMENT_ARM
from controlplane.domain.metric_series import ExperimentSpan, SeriesTotals
from controlplane.domain.telemetry import Effect, ExperimentWindow
from eldr_runtime.experiment_design import SignFlipResult, sign_flip_test

# A quantile of fewer requests says nothing; such a window is as good as missing.
MINIMUM_REQUESTS = 10
METRICS = ("tpot_p50_ms", "tpot_p99_ms", "ttft_p50_ms", "active_experts")


class EffectVerdict(StrEnum):
    """What an effect says."""

    LOWER = "lower"
    HIGHER = "higher"
    NO_EFFECT = "no_effect"
    INCONCLUSIVE = "inconclusive"


def measure_windows(
    span: ExperimentSpan, totals_of: Mapping[int, SeriesTotals]
) -> tuple[ExperimentWindow, ...]:
    """Summarise each window that has data: requests that came after its washout, over the whole pool."""
    windows = []
    for index in span.windows:
        totals = totals_of.get(index)
        if totals is None:
            continue
        arm_window = span.arm_window(index)
        assert arm_window.pair is not None, "a switchback has pairs"
        windows.append(
            ExperimentWindow(
                index=index,
                pair=arm_window.pair - span.first_window // 2,
                arm=arm_window.arm,
                start=span.start_of(index),
                n_requests=totals.n_requests,
                tpot_p50_ms=totals.tpot.quantile_ms(0.5),
                tpot_p99_ms=totals.tpot.quantile_ms(0.99),
                ttft_p50_ms=totals.ttft.quantile_ms(0.5),
                active_experts=totals.active_experts,
            )
        )
    return tuple(windows)


def complete_pairs(
    span: ExperimentSpan, windows: Sequence[ExperimentWindow], now: datetime
) -> list[tuple[ExperimentWindow, ExperimentWindow]]:
    """Pair treatment and control where both windows are over and have requests enough."""
    length = timedelta(seconds=span.window_seconds)
    usable = {
        (window.pair, window.arm == TREATMENT_ARM): window
        for window in windows
        if window.start + length <= now and window.n_requests >= MINIMUM_REQUESTS
    }
    return [
        (usable[pair, True], usable[pair, False])
        for pair in range(span.n_pairs)
        if (pair, True) in usable and (pair, False) in usable
    ]


def measure_effects(pairs: Sequence[tuple[ExperimentWindow, ExperimentWindow]]) -> tuple[Effect, ...]:
    """Test the log ratio of treatment over control, pair by pair, for each metric."""
    return tuple(_effect(metric, _log_ratios(metric, pairs)) for metric in METRICS)


def _log_ratios(metric: str, pairs: Sequence[tuple[ExperimentWindow, ExperimentWindow]]) -> list[float]:
    ratios = []
    for treatment, control in pairs:
        above, below = getattr(treatment, metric), getattr(control, metric)
        if above is not None and below is not None and above > 0 and below > 0:
            ratios.append(math.log(above / below))
    return ratios


def _effect(metric: str, log_ratios: list[float]) -> Effect:
    result = sign_flip_test(np.array(log_ratios, dtype=np.float64))
    return Effect(
        metric=metric,
        mean_percent=result.change_percent,
        interval_percent=_percent(result.interval),
        p_value=result.p_value,
        n_pairs=result.n_pairs,
        verdict=_verdict(result),
    )


def _percent(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    if interval is None or not all(math.isfinite(end) for end in interval):
        return None
    return 100 * math.expm1(interval[0]), 100 * math.expm1(interval[1])


def _verdict(result: SignFlipResult) -> EffectVerdict:
    if not result.is_conclusive or result.mean is None:
        return EffectVerdict.INCONCLUSIVE
    if not result.has_effect:
        return EffectVerdict.NO_EFFECT
    return EffectVerdict.LOWER if result.mean < 0 else EffectVerdict.HIGHER
