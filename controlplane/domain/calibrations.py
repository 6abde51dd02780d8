"""Trace packs and calibration runs, as the API speaks of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from eldr_runtime.centroid_version import VersionOrigin


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePack:
    """Expert traces that a calibration can start from: uploaded, or sampled from live traffic."""

    id: str
    fleet: str
    name: str
    origin: str
    n_requests: int
    has_decode: bool
    size_bytes: int
    content_hash: str
    created_at: datetime
    created_by: str


class RunState(StrEnum):
    """Life of a calibration run."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRun:
    """A calibration as a job: where it stands and what came of it."""

    id: str
    fleet: str
    state: RunState
    stage: str | None
    progress_share: float
    origin: str
    trace_pack_id: str | None
    n_live_requests: int | None
    n_clusters: int
    transform: str
    seed: int
    version_id: str | None
    error: str | None
    actor: str
    reason: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def is_refit(self) -> bool:
        """Whether it follows an active version whose traffic or workers have changed."""
        return self.origin in (VersionOrigin.DRIFT_REFIT, VersionOrigin.TOPOLOGY_REFIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCalibration:
    """Command: calibrate from a pack, or from live samples where `trace_pack_id` is left out.

    `n_clusters` defaults to the number of ready decode workers; `n_live_requests` to all samples kept,
    newest first, up to 5,000; `since` takes only samples that arrived after it.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    reason: str
    trace_pack_id: str | None = None
    n_live_requests: int | None = None
    since: datetime | None = None
    n_clusters: int | None = None
    transform: str = "count_idf"
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedPoint:
    """One request in the PCA of a version's calibration, or of live traffic on the version's basis."""

    request_id: str
    at: datetime | None
    coordinates: tuple[float, ...]
    cluster: int
    worker_id: str | None
    label: str | None
    version_number: int | None
    similarity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """PCA of signatures on a version's basis, with its centroids drawn in."""

    version_id: str
    version_number: int
    explained_share: tuple[float, ...]
    centroids: tuple[tuple[float, ...], ...]
    points: tuple[ProjectedPoint, ...]
    occupancy: tuple[int, ...]
    reference_occupancy: tuple[int, ...]
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterExperts:
    """Mean use of experts by one cluster's recent requests: `use[layer][expert]`, tokens' share."""

    version_id: str
    cluster: int
    n_requests: int
    use: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    """Held-out change of active experts in one cluster; None where it holds fewer requests than a batch."""

    cluster: int
    n_requests: int
    percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutChange:
    """Change of active experts against mixed batches, in percent: mean, one value a seed, 95 % interval."""

    mean_percent: float
    seeds: tuple[float, ...]
    interval: tuple[float, ...]
    covered_share: float
    by_cluster: tuple[ClusterChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomLabelControl:
    """The same change for groups drawn at random; None where it was not judged."""

    random_labels_percent: float | None
    batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """What a calibration found out about its version; what needs decode counts is None or empty without.

    Attributes
    ----------
    rho_by_transform
        Of every transform the trace allows, all layers kept.
    rho_by_layer_count
        By number of layers in the order of selection, the first of one layer; None where none were selected.
    held_out
        By ``batch_<size>``; None where no cluster fills such a batch.
    """

    n_clusters: int
    transform: str
    n_requests: int
    n_left_out: int
    signature_note: str | None
    n_layers_kept: int
    rho: float | None
    rho_interval: tuple[float, ...] | None
    rho_n_pairs: int | None
    rho_by_transform: Mapping[str, float]
    rho_by_layer_count: tuple[float, ...] | None
    cluster_sizes: tuple[int, ...]
    silhouette: float | None
    held_out: Mapping[str, HeldOutChange | None]
    control: RandomLabelControl

    def held_out_by_batch(self) -> tuple[tuple[int, HeldOutChange], ...]:
        """Return what could be judged, with its batch size, smallest first."""
        judged = [
            (int(name.removeprefix("batch_")), change)
            for name, change in self.held_out.items()
            if change is not None
        ]
        return tuple(sorted(judged, key=lambda each: each[0]))
