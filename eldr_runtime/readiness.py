"""Whether there is anything to gain on this traffic, before anything is deployed (ours).

The verdict rests on the interval of the held-out union change at one batch size, not on a bare figure: worth
it if the whole interval is beyond the least gain that matters, nothing to gain if all of it is short of that.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TypeAlias

import numpy as np

from eldr_runtime.array_types import Floats32
from eldr_runtime.calibration import CalibrationSettings, fit_version
from eldr_runtime.errors import InvalidValue, ModelMismatch
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.held_out_union import HeldOutUnion, expected_unions, judge, union_changes
from eldr_runtime.latency_model import LatencyPreset
from eldr_runtime.oracle_grouping import oracle_groups
from eldr_runtime.readiness_report import (
    CATEGORY_BATCH_SIZE,
    CategoryFinding,
    CategoryGain,
    OracleChange,
    PredictedTpot,
    ReadinessReport,
    Verdict,
    describe,
)

__all__ = [
    "CategoryFinding",
    "CategoryGain",
    "OracleChange",
    "PredictedTpot",
    "ReadinessReport",
    "ReadinessStage",
    "Verdict",
    "assess",
]

LEAST_GAIN_PERCENT = 1.0
LEAST_COVERED_SHARE = 0.9
N_CATEGORY_DRAWS = 40
MAX_ORACLE_REQUESTS = 2_000


class ReadinessStage(StrEnum):
    """What an assessment is doing."""

    GAIN = "gain"
    CATEGORIES = "categories"
    ORACLE = "oracle"


OnStage: TypeAlias = Callable[[ReadinessStage, float], None]
"""Called with the stage and the share of it that is done; what it raises (`Cancelled`) stops the work."""


def assess(
    trace: ExpertTrace,
    *,
    n_clusters: int,
    step_time: LatencyPreset | None = None,
    batch_sizes: Sequence[int] = (8, 16, 32, 64),
    seed: int = 1,
    n_splits: int = 20,
    least_gain_percent: float = LEAST_GAIN_PERCENT,
    on_progress: OnStage | None = None,
) -> ReadinessReport:
    """Assess a trace with decode counts.

    A `step_time` predicts decode step times, with the mean prompt and half the mean output of the trace in
    each request; it must have the layers and experts of the trace. The verdict rests on batches of 16 where
    clusters that hold one cover 90 % of the requests, else on the largest of `batch_sizes` where they do.
    Splits, at least 2, are seeded 0, 1, ...; `seed` is of the fit, the draws and the oracle grouping.
    """
    if not least_gain_percent > 0:
        raise InvalidValue(field="least_gain_percent", value=least_gain_percent, limit="above 0")
    if step_time is not None:
        _check_preset(step_time, trace)
    report_to = on_progress or _nobody
    trace, n_left_out = trace.without_uncovered()
    gain = _gain(trace, n_clusters, batch_sizes, seed, n_splits, report_to)
    report_to(ReadinessStage.CATEGORIES, 0.0)
    categories = _categories(trace, least_gain_percent, seed)
    report_to(ReadinessStage.CATEGORIES, 1.0)
    deciding = _deciding(gain)
    report = ReadinessReport(
        verdict=_verdict(deciding, least_gain_percent),
        decided_at_batch_size=None if deciding is None else deciding.batch_size,
        least_gain_percent=least_gain_percent,
        n_requests=len(trace),
        n_left_out=n_left_out,
        n_clusters=n_clusters,
        gain=gain,
        clusters=() if deciding is None else deciding.by_cluster,
        category_batch_size=CATEGORY_BATCH_SIZE,
        categories=categories,
        oracle=_oracle(trace, n_clusters, batch_sizes, seed, report_to),
        signature_note=trace.signature_note,
    )
    if step_time is not None:
        report = _with_prediction(report, trace, step_time)
    return replace(report, sentences=describe(report, batch_sizes))


def _with_prediction(report: ReadinessReport, trace: ExpertTrace, preset: LatencyPreset) -> ReadinessReport:
    return replace(
        report,
        predicted_tpot=_predict(trace, report.gain, preset),
        preset_name=preset.name,
        preset_source=preset.source,
        preset_uncertainty_percent=preset.uncertainty_percent,
    )


def _check_preset(preset: LatencyPreset, trace: ExpertTrace) -> None:
    if preset.shape.counts_shape != trace.shape.counts_shape:
        raise ModelMismatch(f"preset {preset.name} is for {preset.shape}; the trace is of {trace.shape}")


def _gain(
    trace: ExpertTrace,
    n_clusters: int,
    batch_sizes: Sequence[int],
    seed: int,
    n_splits: int,
    report_to: OnStage,
) -> tuple[HeldOutUnion, ...]:
    report_to(ReadinessStage.GAIN, 0.0)
    settings = CalibrationSettings(n_clusters=n_clusters, seed=seed, n_splits=n_splits)
    return judge(
        trace,
        lambda half, _: fit_version(half, settings),
        batch_sizes=batch_sizes,
        split_seeds=range(n_splits),
        on_split=lambda done, total: report_to(ReadinessStage.GAIN, done / total),
    )


def _deciding(gain: Sequence[HeldOutUnion]) -> HeldOutUnion | None:
    by_size = {one.batch_size: one for one in gain if one.covered_share >= LEAST_COVERED_SHARE}
    return by_size.get(CATEGORY_BATCH_SIZE) or (by_size[max(by_size)] if by_size else None)


def _verdict(deciding: HeldOutUnion | None, least_gain_percent: float) -> Verdict:
    if deciding is None:
        return Verdict.INCONCLUSIVE
    low, high = deciding.interval
    if high <= -least_gain_percent:
        return Verdict.WORTH_IT
    return Verdict.NOTHING_TO_GAIN if low > -least_gain_percent else Verdict.INCONCLUSIVE


def _categories(trace: ExpertTrace, least_gain_percent: float, seed: int) -> tuple[CategoryGain, ...]:
    if trace.labels is None:
        return ()
    labels = np.asarray(trace.labels)
    p = trace.decode_share
    (mixed,) = expected_unions(p, [CATEGORY_BATCH_SIZE])
    gains = [
        _category(p[labels == name], str(name), mixed, least_gain_percent, seed) for name in np.unique(labels)
    ]
    return tuple(sorted(gains, key=lambda one: (one.percent is None, one.percent or 0.0, one.category)))


def _category(
    members: Floats32, name: str, mixed: float | None, least_gain_percent: float, seed: int
) -> CategoryGain:
    (union,) = expected_unions(members, [CATEGORY_BATCH_SIZE])
    if union is None or mixed is None:
        return CategoryGain(
            category=name,
            n_requests=len(members),
            percent=None,
            interval=None,
            finding=CategoryFinding.TOO_SMALL,
        )
    percent = 100.0 * (union / mixed - 1.0)
    interval = _category_interval(members, percent, mixed, CATEGORY_BATCH_SIZE, seed)
    finding = CategoryFinding.UNCERTAIN
    if interval is not None and interval[1] < 0.0:
        finding = CategoryFinding.GAINS
    elif interval is not None and interval[0] > -least_gain_percent:
        finding = CategoryFinding.GAINS_NOTHING
    return CategoryGain(
        category=name, n_requests=len(members), percent=percent, interval=interval, finding=finding
    )


def _category_interval(
    members: Floats32, percent: float, mixed: float, batch_size: int, seed: int
) -> tuple[float, float] | None:
    """Give a 95 % interval from draws of some of the members: a jackknife that deletes d of n.

    The deviation of the rest about the whole times `sqrt((n - d) / d)` is that of the whole about the truth,
    for d of more than `sqrt(n)` (Shao and Wu, 1989). The rest must hold a batch; d is n / 2 where it can be.
    """
    n_members = len(members)
    n_drawn = max(n_members // 2, batch_size)
    n_deleted = n_members - n_drawn
    if n_deleted**2 <= n_members:
        return None
    rng = np.random.default_rng(seed)
    draws = np.empty(N_CATEGORY_DRAWS)
    for draw in range(N_CATEGORY_DRAWS):
        (union,) = expected_unions(members[rng.permutation(n_members)[:n_drawn]], [batch_size])
        draws[draw] = np.nan if union is None else 100.0 * (union / mixed - 1.0)
    deviations = (draws - draws.mean()) * np.sqrt(n_drawn / n_deleted)
    low, high = np.quantile(deviations, [0.025, 0.975]) + percent
    return float(low), float(high)


def _oracle(
    trace: ExpertTrace, n_clusters: int, batch_sizes: Sequence[int], seed: int, report_to: OnStage
) -> tuple[OracleChange, ...]:
    """Group for batches of 16, and say what that grouping does at every size."""
    report_to(ReadinessStage.ORACLE, 0.0)
    p = trace.decode_share
    if len(p) > MAX_ORACLE_REQUESTS:
        p = p[np.sort(np.random.default_rng(seed).choice(len(p), MAX_ORACLE_REQUESTS, replace=False))]
    changes = union_changes(p, oracle_groups(p, n_clusters, CATEGORY_BATCH_SIZE, seed=seed), batch_sizes)
    report_to(ReadinessStage.ORACLE, 1.0)
    return tuple(
        OracleChange(batch_size=change.batch_size, percent=change.percent)
        for change in changes
        if change.percent is not None
    )


def _predict(
    trace: ExpertTrace, gain: Sequence[HeldOutUnion], preset: LatencyPreset
) -> tuple[PredictedTpot, ...]:
    if trace.decode_steps is None:
        return ()
    context = float(np.mean(trace.prompt_tokens + trace.decode_steps / 2.0))
    mixed = expected_unions(trace.decode_share, [one.batch_size for one in gain])
    return tuple(
        _predict_one(preset, judged, union, judged.batch_size * context)
        for judged, union in zip(gain, mixed, strict=True)
        if union is not None
    )


def _predict_one(
    preset: LatencyPreset, judged: HeldOutUnion, mixed: float, kv_tokens: float
) -> PredictedTpot:
    def step_ms(union_percent: float) -> float:
        union = mixed * (1.0 + union_percent / 100.0)
        return preset.model.step_ms(union, float(judged.batch_size), kv_tokens)

    before = step_ms(0.0)
    low, high = (100.0 * (step_ms(end) / before - 1.0) for end in judged.interval)
    after = step_ms(judged.mean_percent)
    return PredictedTpot(
        batch_size=judged.batch_size,
        mixed_experts=mixed,
        mixed_ms=before,
        clustered_ms=after,
        percent=100.0 * (after / before - 1.0),
        interval=(low, high),
    )


def _nobody(stage: ReadinessStage, share: float) -> None:
    """Report to nobody."""
