"""Whether there is anything to gain on this traffic, before anything is deployed (ours).

The verdict rests on the interval of the held-out union change at one batch size, not on a bare figure: worth
it if the whole interval is beyond the least gain that matters, nothing to gain if all of it is short of that.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeAlias

import numpy as np

from eldr_runtime.array_types import Bools, Floats32
from eldr_runtime.calibration import CalibrationSettings, fit_version
from eldr_runtime.errors import InvalidValue, ModelMismatch
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.held_out_union import HeldOutUnion, expected_unions, judge, split_half, union_changes
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
    """Assess a trace.

    Parameters
    ----------
    trace : ExpertTrace
        With decode counts.
    n_clusters : int
        Decode workers to route between.
    step_time : LatencyPreset, optional
        Predicts decode step times; must have the layers and experts of the trace. Each request is taken to
        hold the mean prompt and half the mean output of the trace.
    batch_sizes : sequence of int
        The verdict rests on 16 where clusters that hold a batch cover 90 % of the requests, else on the
        largest size where they do.
    seed : int
        Of the fit, the draws and the oracle grouping; splits are seeded 0, 1, ...
    n_splits : int
        At least 2.
    least_gain_percent : float
        Least gain that matters, above 0.
    on_progress : callable, optional
    """
    if not least_gain_percent > 0:
        raise InvalidValue(field="least_gain_percent", value=least_gain_percent, limit="above 0")
    if step_time is not None:
        _check_preset(step_time, trace)
    report_to = on_progress or _nobody
    trace, n_left_out = trace.without_uncovered()
    gain = _gain(trace, n_clusters, batch_sizes, seed, n_splits, report_to)
    deciding = _deciding(gain)
    report_to(ReadinessStage.CATEGORIES, 0.0)
    categories = _categories(trace, CATEGORY_BATCH_SIZE, seed)
    report_to(ReadinessStage.CATEGORIES, 1.0)
    oracle = _oracle(trace, n_clusters, batch_sizes, seed, report_to)
    tpot = () if step_time is None else _predict(trace, gain, step_time)
    verdict = _verdict(deciding, least_gain_percent)
    return ReadinessReport(
        verdict=verdict,
        decided_at_batch_size=None if deciding is None else deciding.batch_size,
        least_gain_percent=least_gain_percent,
        n_requests=len(trace),
        n_left_out=n_left_out,
        n_clusters=n_clusters,
        gain=gain,
        clusters=() if deciding is None else deciding.by_cluster,
        category_batch_size=CATEGORY_BATCH_SIZE,
        categories=categories,
        oracle=oracle,
        predicted_tpot=tpot,
        preset_name=None if step_time is None else step_time.name,
        preset_source=None if step_time is None else step_time.source,
        preset_uncertainty_percent=None if step_time is None else step_time.uncertainty_percent,
        signature_note=trace.signature_note,
        sentences=describe(verdict, deciding, categories, oracle, tpot, step_time, least_gain_percent),
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


def _categories(trace: ExpertTrace, batch_size: int, seed: int) -> tuple[CategoryGain, ...]:
    if trace.labels is None:
        return ()
    labels = np.asarray(trace.labels)
    p = trace.decode_share
    (mixed,) = expected_unions(p, [batch_size])
    gains = [_category(p, labels == name, str(name), mixed, batch_size, seed) for name in np.unique(labels)]
    return tuple(sorted(gains, key=lambda one: (one.percent is None, one.percent or 0.0, one.category)))


def _category(
    p: Floats32, is_member: Bools, name: str, mixed: float | None, batch_size: int, seed: int
) -> CategoryGain:
    members = p[is_member]
    (union,) = expected_unions(members, [batch_size])
    if union is None or mixed is None:
        return CategoryGain(
            category=name,
            n_requests=len(members),
            percent=None,
            interval=None,
            finding=CategoryFinding.TOO_SMALL,
        )
    percent = 100.0 * (union / mixed - 1.0)
    interval = _category_interval(members, percent, mixed, batch_size, seed)
    finding = CategoryFinding.UNCERTAIN
    if interval is not None:
        finding = CategoryFinding.GAINS if interval[1] < 0.0 else CategoryFinding.GAINS_NOTHING
    return CategoryGain(
        category=name, n_requests=len(members), percent=percent, interval=interval, finding=finding
    )


def _category_interval(
    members: Floats32, percent: float, mixed: float, batch_size: int, seed: int
) -> tuple[float, float] | None:
    """Take the spread of halves about the whole for that of the whole about the truth."""
    if len(members) < 2 * batch_size:
        return None
    draws = []
    for draw in range(N_CATEGORY_DRAWS // 2):
        for half in split_half(None, len(members), seed + draw):
            (union,) = expected_unions(members[half], [batch_size])
            if union is not None:
                draws.append(100.0 * (union / mixed - 1.0))
    low, high = np.quantile(np.array(draws) - np.mean(draws), [0.025, 0.975]) + percent
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
