"""From an expert trace to a centroid version and a report of what it is worth."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version as installed_version
from typing import TypeAlias

import numpy as np
from sklearn.metrics import silhouette_score

from eldr_runtime.array_types import Floats32, Ints
from eldr_runtime.balanced_kmeans import BalancedSphericalKMeans
from eldr_runtime.calibration_report import CalibrationReport, TransformRho
from eldr_runtime.centroid_version import CentroidVersion, Metric, VersionOrigin
from eldr_runtime.errors import InvalidConfig, InvalidTrace, ModelMismatch
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.expert_use import mean_use
from eldr_runtime.held_out_union import HeldOutUnion, judge, random_labels_control
from eldr_runtime.layer_selection import LayerSelection, select_layers
from eldr_runtime.signature import SignatureTransform, TransformName, fit_signature_transform, usage_of
from eldr_runtime.signature_projection import project
from eldr_runtime.signature_quality import RhoEstimate, estimate_rho, rho, sample_pairs

__all__ = [
    "CalibrationReport",
    "CalibrationResult",
    "CalibrationSettings",
    "CalibrationStage",
    "TransformRho",
    "calibrate",
    "fit_version",
]

MAX_SELECTION_REQUESTS = 8_000
MAX_SILHOUETTE_REQUESTS = 2_000
LARGEST_SEED = 2**32 - 1  # of the principal components
CURVE = "rho_by_layer_count"
LIBRARIES = ("numpy", "safetensors", "scikit-learn", "scipy")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """How a version is fitted and judged; the defaults are the published fit but for `n_starts`.

    Attributes
    ----------
    n_clusters
        K, the number of decode workers as published.
    balanced
        False clusters without a capacity, the published control.
    n_starts
        Starts of the clustering, of which the best is kept. The published fit has 1, and comes to rest
        where its seed leads it: with 2 clusters of the tiny MoE's trace 1 saves 8.2 % on requests it did
        not see, 4 save 9.5 %.
    select_layers
        False keeps every layer, and needs no decode counts.
    n_pairs
        Pairs of requests that rho is taken over.
    held_out_batch_sizes
        Batches for the held-out union.
    n_splits
        Splits of the held-out union, at least 2.
    """

    n_clusters: int
    transform: TransformName = TransformName.COUNT_IDF
    seed: int = 1
    balanced: bool = True
    n_starts: int = 4
    select_layers: bool = True
    n_pairs: int = 30_000
    held_out_batch_sizes: tuple[int, ...] = (8, 16, 32, 64)
    n_splits: int = 20

    @property
    def control_batch_size(self) -> int:
        """Batch size of the random-label control: 16, or the smallest where 16 is not asked for."""
        return 16 if 16 in self.held_out_batch_sizes else min(self.held_out_batch_sizes)

    def __post_init__(self) -> None:
        if not isinstance(self.transform, TransformName):
            limit = f"one of {', '.join(TransformName)}"
            raise InvalidConfig(field="transform", value=self.transform, limit=limit)
        if not self.held_out_batch_sizes:
            raise InvalidConfig(field="held_out_batch_sizes", value=(), limit="at least one batch size")
        for name, value, lowest in (
            ("n_clusters", self.n_clusters, 1),
            ("seed", self.seed, 0),
            ("n_starts", self.n_starts, 1),
            ("n_pairs", self.n_pairs, 2),
            ("n_splits", self.n_splits, 2),
            *(("held_out_batch_sizes", size, 1) for size in self.held_out_batch_sizes),
        ):
            if not _is_integer(value) or value < lowest:
                raise InvalidConfig(field=name, value=value, limit=f"an integer of at least {lowest}")
        if self.seed > LARGEST_SEED:
            raise InvalidConfig(field="seed", value=self.seed, limit=f"at most {LARGEST_SEED}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class CalibrationStage(StrEnum):
    """What a calibration is doing."""

    CHECK = "check"
    WEIGHTS = "weights"
    LAYERS = "layers"
    CLUSTERS = "clusters"
    QUALITY = "quality"
    HELD_OUT = "held_out"


OnProgress: TypeAlias = Callable[[CalibrationStage, float], None]
"""Called with the stage and the share of it that is done; what it raises (`Cancelled`) stops the work."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibrationResult:
    """A version and the report on it."""

    version: CentroidVersion
    report: CalibrationReport


def fit_version(
    trace: ExpertTrace,
    settings: CalibrationSettings,
    on_progress: OnProgress | None = None,
    *,
    inherit: CentroidVersion | None = None,
    origin: VersionOrigin = VersionOrigin.CALIBRATION,
    parent_hash: str | None = None,
) -> CentroidVersion:
    """Fit weights, layer mask and centroids; equal input gives an equal content hash.

    Parameters
    ----------
    trace : ExpertTrace
        Requests without covered prompt tokens are left out. Layer selection needs decode counts; of more than
        8,000 requests it sees 8,000.
    settings : CalibrationSettings
    on_progress : callable, optional
    inherit : CentroidVersion, optional
        Take its transform, weights and mask, and fit the centroids only: the one way to refit without
        decode counts that keeps the mask. The result names it as its parent, and its metric
        `inherits_transform` is 1.
    origin : VersionOrigin
    parent_hash : str, optional
        Content hash of the version this one refits in full; that of `inherit` otherwise.
    """
    version, _ = _fit(trace, settings, on_progress or _nobody, inherit, origin, parent_hash)
    return version


def calibrate(
    trace: ExpertTrace,
    settings: CalibrationSettings,
    on_progress: OnProgress | None = None,
    *,
    inherit: CentroidVersion | None = None,
    origin: VersionOrigin = VersionOrigin.CALIBRATION,
    parent_hash: str | None = None,
) -> CalibrationResult:
    """Fit a version and judge it; parameters as :func:`fit_version`.

    Figures that need decode counts are None (or empty) for a trace without them. Nothing is written.
    """
    report_to = on_progress or _nobody
    version, labels = _fit(trace, settings, report_to, inherit, origin, parent_hash)
    report_to(CalibrationStage.QUALITY, 0.0)
    covered, n_left_out = trace.without_uncovered()
    signatures = version.transform.apply(usage_of(version.transform.name, covered))
    projection = project(signatures, version.centroids, min(3, *signatures.shape), seed=settings.seed)
    report = CalibrationReport(
        n_clusters=settings.n_clusters,
        transform=version.transform.name,
        content_hash=version.content_hash,
        n_requests=len(covered),
        n_left_out=n_left_out,
        signature_note=covered.signature_note,
        n_layers_kept=int(version.transform.layer_mask.sum()),
        rho=_rho(signatures, covered, settings),
        rho_by_transform=_rho_by_transform(covered, settings, report_to),
        rho_by_layer_count=_curve(version),
        cluster_sizes=tuple(np.bincount(labels, minlength=settings.n_clusters).tolist()),
        silhouette=_silhouette(signatures, labels, settings.seed),
        held_out=_judge(covered, settings, inherit, report_to),
        held_out_batch_sizes=settings.held_out_batch_sizes,
        control_batch_size=settings.control_batch_size,
        control_random_labels_percent=_control(covered, settings),
        projection=projection,
        labels=labels,
        point_labels=None if covered.labels is None else tuple(covered.labels[r] for r in projection.rows),
    )
    return CalibrationResult(version=version, report=report)


def _fit(
    trace: ExpertTrace,
    settings: CalibrationSettings,
    report_to: OnProgress,
    inherit: CentroidVersion | None,
    origin: VersionOrigin,
    parent_hash: str | None,
) -> tuple[CentroidVersion, Ints]:
    trace = _checked(trace, settings, inherit)
    report_to(CalibrationStage.CHECK, 1.0)
    transform = fit_signature_transform(settings.transform, trace) if inherit is None else inherit.transform
    report_to(CalibrationStage.WEIGHTS, 1.0)
    selection = None
    if settings.select_layers and inherit is None:
        selection = _select(trace, transform, settings, report_to)
        transform = transform.with_mask(selection.mask)
    report_to(CalibrationStage.CLUSTERS, 0.0)
    clusters = BalancedSphericalKMeans(
        settings.n_clusters, balanced=settings.balanced, seed=settings.seed, n_starts=settings.n_starts
    ).fit(transform.apply(usage_of(transform.name, trace)))
    report_to(CalibrationStage.CLUSTERS, 1.0)
    version = CentroidVersion(
        shape=trace.shape,
        transform=transform,
        centroids=clusters.centroids_,
        mean_use=mean_use(trace.prefill_counts, trace.covered_tokens),
        seed=settings.seed,
        origin=origin,
        parent_hash=parent_hash if inherit is None else inherit.content_hash,
        n_requests=len(trace),
        created_at=datetime.now(UTC),
        library_versions=tuple((name, installed_version(name)) for name in LIBRARIES),
        metrics=_fit_metrics(settings, clusters, transform, selection, inherit),
    )
    return version, clusters.labels_


def _checked(
    trace: ExpertTrace, settings: CalibrationSettings, inherit: CentroidVersion | None
) -> ExpertTrace:
    if inherit is not None and inherit.shape != trace.shape:
        raise ModelMismatch(f"the version to inherit is for {inherit.shape}; the trace is of {trace.shape}")
    covered, _ = trace.without_uncovered()
    if len(covered) < settings.n_clusters:
        limit = f"at least the {settings.n_clusters} clusters"
        raise InvalidTrace(field="n_requests", value=len(covered), limit=limit)
    if settings.select_layers and inherit is None and not trace.has_decode:
        limit = "present for layer selection; without them inherit a version, or turn the selection off"
        raise InvalidTrace(field="decode_counts", value=None, limit=limit)
    return covered


def _select(
    trace: ExpertTrace, transform: SignatureTransform, settings: CalibrationSettings, report_to: OnProgress
) -> LayerSelection:
    if len(trace) > MAX_SELECTION_REQUESTS:
        rng = np.random.default_rng(settings.seed)
        trace = trace.select(np.sort(rng.choice(len(trace), MAX_SELECTION_REQUESTS, replace=False)))
    if trace.decode_counts is None:
        raise AssertionError("checked before")
    report_to(CalibrationStage.LAYERS, 0.0)
    return select_layers(
        transform.weigh(usage_of(transform.name, trace)),
        trace.decode_counts,
        sample_pairs(len(trace), settings.n_pairs, settings.seed),
        lambda done, total: report_to(CalibrationStage.LAYERS, done / total),
    )


def _fit_metrics(
    settings: CalibrationSettings,
    clusters: BalancedSphericalKMeans,
    transform: SignatureTransform,
    selection: LayerSelection | None,
    inherit: CentroidVersion | None,
) -> tuple[tuple[str, Metric], ...]:
    metrics: list[tuple[str, Metric]] = [
        ("cost", clusters.cost_),
        ("inherits_transform", float(inherit is not None)),
        ("is_balanced", float(settings.balanced)),
        ("n_iterations", float(clusters.n_iterations_)),
        ("n_layers_kept", float(transform.layer_mask.sum())),
        ("n_starts", float(settings.n_starts)),
    ]
    if selection is not None:
        metrics.append((CURVE, tuple(selection.rho_by_length.tolist())))
        metrics.append(("layer_order", tuple(float(layer) for layer in selection.order)))
    return tuple(metrics)


def _curve(version: CentroidVersion) -> tuple[float, ...] | None:
    curve = dict(version.metrics).get(CURVE)
    return curve if isinstance(curve, tuple) else None


def _rho(signatures: Floats32, trace: ExpertTrace, settings: CalibrationSettings) -> RhoEstimate | None:
    if trace.decode_counts is None:
        return None
    return estimate_rho(signatures, trace.decode_counts, n_pairs=settings.n_pairs, seed=settings.seed)


def _rho_by_transform(
    trace: ExpertTrace, settings: CalibrationSettings, report_to: OnProgress
) -> tuple[TransformRho, ...]:
    if trace.decode_counts is None:
        return ()
    has_gates = {
        TransformName.GATE_PROB: trace.gate_prob is not None,
        TransformName.GATE_LOGIT: trace.gate_logit is not None,
    }
    names = [name for name in TransformName if has_gates.get(name, True)]
    pairs = sample_pairs(len(trace), settings.n_pairs, settings.seed)
    rows = []
    for done, name in enumerate(names, start=1):
        signatures = fit_signature_transform(name, trace).apply(usage_of(name, trace))
        rows.append(TransformRho(transform=name, rho=rho(signatures, trace.decode_counts, pairs)))
        report_to(CalibrationStage.QUALITY, done / len(names))
    return tuple(rows)


def _judge(
    trace: ExpertTrace,
    settings: CalibrationSettings,
    inherit: CentroidVersion | None,
    report_to: OnProgress,
) -> tuple[HeldOutUnion, ...]:
    if not _can_judge(trace, settings):
        return ()
    report_to(CalibrationStage.HELD_OUT, 0.0)
    return judge(
        trace,
        lambda half, _: fit_version(half, settings, inherit=inherit),
        batch_sizes=settings.held_out_batch_sizes,
        split_seeds=range(settings.n_splits),
        on_split=lambda done, total: report_to(CalibrationStage.HELD_OUT, done / total),
    )


def _control(trace: ExpertTrace, settings: CalibrationSettings) -> float | None:
    if not _can_judge(trace, settings):
        return None
    control = random_labels_control(
        trace,
        n_clusters=settings.n_clusters,
        batch_size=settings.control_batch_size,
        split_seeds=range(settings.n_splits),
    )
    return None if control is None else control.mean_percent


def _can_judge(trace: ExpertTrace, settings: CalibrationSettings) -> bool:
    return trace.has_decode and len(trace) // 2 >= settings.n_clusters


def _silhouette(signatures: Floats32, labels: Ints, seed: int) -> float | None:
    rows = np.arange(len(signatures))
    if len(rows) > MAX_SILHOUETTE_REQUESTS:
        rows = np.random.default_rng(seed).choice(len(rows), MAX_SILHOUETTE_REQUESTS, replace=False)
    if not 2 <= len(np.unique(labels[rows])) < len(rows):
        return None
    return float(silhouette_score(signatures[rows], labels[rows], metric="cosine"))


def _nobody(stage: CalibrationStage, share: float) -> None:
    """Report to nobody."""
