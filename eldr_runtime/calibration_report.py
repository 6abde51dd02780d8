"""What a calibration found out about its version, for pages, files and the command line."""

from dataclasses import dataclass

from eldr_runtime.array_types import Ints
from eldr_runtime.held_out_union import HeldOutUnion
from eldr_runtime.signature import TransformName
from eldr_runtime.signature_projection import SignatureProjection
from eldr_runtime.signature_quality import RhoEstimate

COORDINATE_DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformRho:
    """rho of one transform on the whole trace, with every layer kept."""

    transform: TransformName
    rho: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibrationReport:
    """Figures of one calibration; what needs decode counts is None or empty without them.

    Attributes
    ----------
    n_requests, n_left_out
        Requests used, and those left out because no prompt token was covered.
    rho
        Of the fitted version, layer mask included.
    rho_by_transform
        Of every transform the trace allows. It describes; the held-out union decides.
    rho_by_layer_count
        By number of layers in the order of selection; None where no layers were selected.
    cluster_sizes
        Requests in each cluster as fitted.
    silhouette
        By cosine, on at most 2,000 requests; None for a single cluster.
    held_out
        One entry a batch size that the clusters of a half can fill.
    control_random_labels_percent
        Held-out change of groups drawn at random, at `control_batch_size`.
    projection, labels
        Principal components of the signatures; cluster of each request, int64 `(n_requests,)`.
    point_labels
        True label of each projected point, where the trace has labels.
    """

    n_clusters: int
    transform: TransformName
    content_hash: str
    n_requests: int
    n_left_out: int
    signature_note: str | None
    n_layers_kept: int
    rho: RhoEstimate | None
    rho_by_transform: tuple[TransformRho, ...]
    rho_by_layer_count: tuple[float, ...] | None
    cluster_sizes: tuple[int, ...]
    silhouette: float | None
    held_out: tuple[HeldOutUnion, ...]
    held_out_batch_sizes: tuple[int, ...]
    control_batch_size: int
    control_random_labels_percent: float | None
    projection: SignatureProjection
    labels: Ints
    point_labels: tuple[str, ...] | None

    def held_out_at(self, batch_size: int) -> HeldOutUnion | None:
        """Held-out union at one batch size, None where it was not or could not be judged."""
        return next((one for one in self.held_out if one.batch_size == batch_size), None)

    def to_json(self) -> dict[str, object]:
        """Plain values for `json.dumps`; batch sizes that no cluster fills are null."""
        return {
            "n_clusters": self.n_clusters,
            "transform": self.transform.value,
            "content_hash": self.content_hash,
            "n_requests": self.n_requests,
            "n_left_out": self.n_left_out,
            "signature_note": self.signature_note,
            "n_layers_kept": self.n_layers_kept,
            "rho": None if self.rho is None else self.rho.rho,
            "rho_interval": None if self.rho is None else list(self.rho.interval),
            "rho_n_pairs": None if self.rho is None else self.rho.n_pairs,
            "rho_by_transform": {one.transform.value: one.rho for one in self.rho_by_transform},
            "rho_by_layer_count": _listed(self.rho_by_layer_count),
            "cluster_sizes": list(self.cluster_sizes),
            "silhouette": self.silhouette,
            "held_out": {
                f"batch_{size}": _held_out_json(self.held_out_at(size)) for size in self.held_out_batch_sizes
            },
            "control": {
                "random_labels_percent": self.control_random_labels_percent,
                "batch_size": self.control_batch_size,
            },
            "projection": self._projection_json(),
        }

    def _projection_json(self) -> dict[str, object]:
        shown = self.projection
        return {
            "explained_share": shown.explained_share.tolist(),
            "centroids": shown.centroid_points.round(COORDINATE_DIGITS).tolist(),
            "points": shown.points.round(COORDINATE_DIGITS).tolist(),
            "clusters": self.labels[shown.rows].tolist(),
            "labels": _listed(self.point_labels),
        }


def _listed(values: tuple[float, ...] | tuple[str, ...] | None) -> list[object] | None:
    return None if values is None else list(values)


def _held_out_json(judged: HeldOutUnion | None) -> dict[str, object] | None:
    if judged is None:
        return None
    return {
        "mean_percent": judged.mean_percent,
        "seeds": list(judged.seeds),
        "interval": list(judged.interval),
        "covered_share": judged.covered_share,
        "by_cluster": [
            {"cluster": one.cluster, "n_requests": one.n_requests, "percent": one.percent}
            for one in judged.by_cluster
        ],
    }
