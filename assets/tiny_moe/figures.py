"""What a checkpoint is judged by: locality of its expert use, what its signatures foretell, its samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assets.tiny_moe.groups import GROUPS, LANGUAGE_GROUPS, TASK_GROUPS
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.held_out_union import union_changes
from eldr_runtime.signature import TransformName, fit_signature_transform
from eldr_runtime.signature_quality import estimate_rho

BATCH_SIZES = (8, 16, 32)
TASK_UNION_LIMIT_PERCENT = -15.0
LANGUAGE_UNION_LIMIT_PERCENT = -20.0
CORRELATION_LIMIT = 0.8
DISTINCT_LIMIT_SHARE = 0.95
MIN_SEEDS = 2
GRAM_TOKENS = 4

SCOPES = {
    "task": tuple(group.name for group in TASK_GROUPS),
    "language": tuple(group.name for group in LANGUAGE_GROUPS),
    "all": tuple(group.name for group in GROUPS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeFigures:
    """Figures over the requests of some groups.

    Attributes
    ----------
    union_percent
        By batch size, the change of the expected union in batches of one group against batches drawn from
        all groups of the scope; below 0 is fewer experts.
    prefill_decode_correlation
        Pearson correlation, over layers and experts, of a request's prefill and decode counts; mean over
        requests.
    rho_count, rho_count_idf
        Paper arXiv 2607.00466, Eq. 1.
    """

    union_percent: Mapping[int, float]
    prefill_decode_correlation: float
    rho_count: float
    rho_count_idf: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFigures:
    """Figures of one checkpoint; losses in nats a token, `distinct_share` and losses by group."""

    seed: int
    held_out_loss: Mapping[str, float]
    distinct_share: Mapping[str, float]
    scopes: Mapping[str, ScopeFigures]

    @property
    def mean_distinct_share(self) -> float:
        """Distinct 4-grams over all groups."""
        return float(np.mean(list(self.distinct_share.values())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A figure and the limit it is held to."""

    name: str
    value: float
    limit: float
    is_passed: bool


def scope_figures(trace: ExpertTrace, groups: Sequence[str]) -> ScopeFigures:
    """Judge the requests of a trace, with decode counts and labels, that belong to `groups`."""
    labels = np.array(trace.labels)
    part = trace.select(np.isin(labels, groups))
    codes = np.array([groups.index(label) for label in part.labels or ()])
    changes = union_changes(part.decode_share, codes, BATCH_SIZES)
    return ScopeFigures(
        union_percent={change.batch_size: change.percent for change in changes if change.percent is not None},
        prefill_decode_correlation=prefill_decode_correlation(part),
        rho_count=_rho(part, TransformName.COUNT),
        rho_count_idf=_rho(part, TransformName.COUNT_IDF),
    )


def prefill_decode_correlation(trace: ExpertTrace) -> float:
    """Pearson correlation of a request's prefill and decode counts; mean over requests."""
    sides = []
    for counts in (trace.prefill_counts, trace.decode_share):
        rows = counts.reshape(len(trace), -1).astype(np.float64)
        rows -= rows.mean(axis=1, keepdims=True)
        sides.append(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return float((sides[0] * sides[1]).sum(axis=1).mean())


def _rho(trace: ExpertTrace, name: TransformName) -> float:
    signatures = fit_signature_transform(name, trace).apply(trace.prefill_counts)
    if trace.decode_counts is None:
        raise ValueError("the trace has no decode counts")
    return estimate_rho(signatures, trace.decode_counts, seed=0).rho


def distinct_share(sampled: NDArray[np.int64], n: int = GRAM_TOKENS) -> float:
    """Share of the n-grams of a request that are distinct, mean over the requests `(n_requests, n_steps)`.

    Examples
    --------
    >>> distinct_share(np.array([[1, 2, 1, 2, 1]]), n=2)
    0.5
    """
    grams = np.lib.stride_tricks.sliding_window_view(sampled, n, axis=1)
    return float(np.mean([len(np.unique(request, axis=0)) / len(request) for request in grams]))


def bars(checkpoints: Sequence[CheckpointFigures]) -> list[Bar]:
    """Hold every checkpoint to the limits, and their number to two seeds."""
    found = []
    for figures in checkpoints:
        for scope, limit in (("task", TASK_UNION_LIMIT_PERCENT), ("language", LANGUAGE_UNION_LIMIT_PERCENT)):
            percent = figures.scopes[scope].union_percent[16]
            name = f"seed {figures.seed}: union at batch 16, {scope}, %"
            found.append(Bar(name=name, value=percent, limit=limit, is_passed=percent <= limit))
        for scope, part in figures.scopes.items():
            value = part.prefill_decode_correlation
            name = f"seed {figures.seed}: prefill-decode correlation, {scope}"
            found.append(_at_least(name, value, CORRELATION_LIMIT))
        name = f"seed {figures.seed}: distinct 4-grams, share"
        found.append(_at_least(name, figures.mean_distinct_share, DISTINCT_LIMIT_SHARE))
    n_seeds = len({figures.seed for figures in checkpoints})
    return [*found, _at_least("seeds compared", n_seeds, MIN_SEEDS)]


def _at_least(name: str, value: float, limit: float) -> Bar:
    return Bar(name=name, value=value, limit=limit, is_passed=value >= limit)


def seed_spreads(checkpoints: Sequence[CheckpointFigures]) -> dict[str, float]:
    """Largest less smallest value of each figure over checkpoints."""
    rows = [_flat(figures) for figures in checkpoints]
    return {name: max(row[name] for row in rows) - min(row[name] for row in rows) for name in rows[0]}


def _flat(figures: CheckpointFigures) -> dict[str, float]:
    flat = {
        "held_out_loss": float(np.mean(list(figures.held_out_loss.values()))),
        "distinct_share": figures.mean_distinct_share,
    }
    for scope, part in figures.scopes.items():
        flat |= {f"{scope}.union_percent.{size}": percent for size, percent in part.union_percent.items()}
        flat[f"{scope}.prefill_decode_correlation"] = part.prefill_decode_correlation
        flat[f"{scope}.rho_count"] = part.rho_count
        flat[f"{scope}.rho_count_idf"] = part.rho_count_idf
    return flat
