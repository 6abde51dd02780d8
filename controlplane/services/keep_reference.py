"""What live traffic is compared with under a version: projection and drift reference, as safetensors."""

import json
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from eldr_runtime.array_types import Floats, Floats32, Ints
from eldr_runtime.drift import DriftReference
from eldr_runtime.errors import UnreadableFile
from eldr_runtime.placed_traffic import PlacedTraffic

Tensors: TypeAlias = dict[str, NDArray[np.generic]]
METADATA = "metadata"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProjectionReference:
    """The principal components of a calibration, its requests and centroids on them.

    `mean` float32 `(n_features,)`, `components` float32 `(n_components, n_features)`, `explained_share`
    float64 `(n_components,)`, `centroids` `(n_centroids, n_components)`, `points` `(n_points, n_components)`,
    `clusters` int64 and `similarities` float32 `(n_points,)`, `occupancy` int64 `(n_centroids,)`.
    """

    mean: Floats32
    components: Floats32
    explained_share: Floats
    centroids: Floats
    points: Floats
    clusters: Ints
    similarities: Floats32
    occupancy: Ints
    labels: tuple[str, ...] | None

    def place(self, signatures: Floats32) -> Floats32:
        """Place signatures, float32 `(n, n_features)`, as float32 `(n, n_components)`."""
        return np.asarray((signatures - self.mean) @ self.components.T, dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredReference:
    """A drift reference, and how far its union ratio differed by worker."""

    reference: DriftReference
    ratio_by_worker: dict[str, float]

    def ratio_of(self, worker_id: str) -> float:
        """Observed over predicted experts of a worker then, of all where that worker was not measured."""
        return self.ratio_by_worker.get(worker_id, self.reference.union_ratio)


def write_projection(projection: ProjectionReference) -> bytes:
    """Serialise a projection."""
    return _write(
        {
            "mean": projection.mean.astype(np.float32),
            "components": np.ascontiguousarray(projection.components, dtype=np.float32),
            "explained_share": projection.explained_share.astype(np.float64),
            "centroids": np.ascontiguousarray(projection.centroids, dtype=np.float64),
            "points": np.ascontiguousarray(projection.points, dtype=np.float64),
            "clusters": projection.clusters.astype(np.int64),
            "similarities": projection.similarities.astype(np.float32),
            "occupancy": projection.occupancy.astype(np.int64),
        },
        {"labels": None if projection.labels is None else list(projection.labels)},
    )


def read_projection(data: bytes) -> ProjectionReference:
    """Read what `write_projection` wrote."""
    tensors, metadata = _read(data)
    labels = metadata.get("labels")
    return ProjectionReference(
        mean=tensors["mean"].astype(np.float32),
        components=tensors["components"].astype(np.float32),
        explained_share=tensors["explained_share"].astype(np.float64),
        centroids=tensors["centroids"].astype(np.float64),
        points=tensors["points"].astype(np.float64),
        clusters=tensors["clusters"].astype(np.int64),
        similarities=tensors["similarities"].astype(np.float32),
        occupancy=tensors["occupancy"].astype(np.int64),
        labels=tuple(labels) if isinstance(labels, list) else None,
    )


def write_drift(stored: StoredReference) -> bytes:
    """Serialise a drift reference."""
    traffic = stored.reference.traffic
    return _write(
        {
            "similarities": traffic.similarities.astype(np.float64),
            "clusters": traffic.clusters.astype(np.int64),
            "sessions": traffic.sessions.astype(np.int64),
        },
        {
            "version_hash": stored.reference.version_hash,
            "n_clusters": traffic.n_clusters,
            "union_ratio": stored.reference.union_ratio,
            "ratio_by_worker": stored.ratio_by_worker,
        },
    )


def read_drift(data: bytes) -> StoredReference:
    """Read what `write_drift` wrote."""
    tensors, metadata = _read(data)
    by_worker = metadata["ratio_by_worker"]
    n_clusters, union_ratio = metadata["n_clusters"], metadata["union_ratio"]
    if (
        not isinstance(by_worker, dict)
        or not isinstance(n_clusters, int)
        or not isinstance(union_ratio, float)
    ):
        raise UnreadableFile("the drift reference is damaged")
    return StoredReference(
        reference=DriftReference(
            version_hash=str(metadata["version_hash"]),
            traffic=PlacedTraffic(
                similarities=tensors["similarities"].astype(np.float64),
                clusters=tensors["clusters"].astype(np.int64),
                sessions=tensors["sessions"].astype(np.int64),
                n_clusters=n_clusters,
            ),
            union_ratio=union_ratio,
        ),
        ratio_by_worker={str(worker): float(ratio) for worker, ratio in by_worker.items()},
    )


def _write(tensors: Tensors, metadata: dict[str, object]) -> bytes:
    return save(tensors, {METADATA: json.dumps(metadata, sort_keys=True)})


def _read(data: bytes) -> tuple[Tensors, dict[str, object]]:
    """Read tensors and metadata; safetensors' own reader of bytes leaves the metadata out."""
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        metadata: dict[str, object] = json.loads(header["__metadata__"][METADATA])
        return dict(load(data)), metadata
    except (SafetensorError, ValueError, KeyError) as error:
        raise UnreadableFile("the reference of the version is damaged") from error
