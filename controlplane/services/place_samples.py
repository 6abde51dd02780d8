"""Open the expert counts of sampled requests and place them among the centroids of a version."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controlplane.services.keep_version import load_version
from controlplane.storage.database import ReadSession
from controlplane.storage.repositories import versions
from eldr_runtime.array_types import Counts, Floats32, Ints
from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.errors import EldrError, InvalidMessage
from eldr_runtime.model_shape import ModelShape

# Counts of 48 x 128 take 25 KB as float32: a block of signatures stays within a few megabytes.
REQUESTS_AT_ONCE = 128
# Similarities are kept to so many digits, of live requests and of those they are compared with.
SIMILARITY_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedVersion:
    """A version that requests were routed by; its centroids are None where they cannot place counts."""

    number: int
    version: CentroidVersion | None


def load_by_hash(session: ReadSession, fleet: str, content_hash: str) -> RoutedVersion | None:
    """Load a version of a fleet by what it contains; None where there is none."""
    row = versions.find_by_hash(session, fleet, content_hash)
    if row is None:
        return None
    try:
        version = load_version(session, row)
    except EldrError:  # a damaged artifact is the promotion gate's to report; telemetry still counts
        version = None
    if version is not None and version.transform.name.needs_gates:
        version = None
    return RoutedVersion(number=row.number, version=version)


def sign_counts(version: CentroidVersion, counts: Counts) -> Floats32:
    """Make the signatures of requests.

    Parameters
    ----------
    counts
        uint32 `(n_requests, n_layers, n_experts)`.

    Returns
    -------
    float32 `(n_requests, n_features)`.
    """
    blocks = [
        version.transform.apply(counts[start : start + REQUESTS_AT_ONCE])
        for start in range(0, len(counts), REQUESTS_AT_ONCE)
    ]
    return np.concatenate(blocks) if blocks else np.zeros((0, version.transform.n_features), np.float32)


def nearest(version: CentroidVersion, signatures: Floats32) -> tuple[Ints, Floats32]:
    """Nearest centroid of each signature, int64 `(n_requests,)`, and the similarity to it, float32."""
    similarities = signatures @ version.centroids.T
    return similarities.argmax(axis=1).astype(np.int64), similarities.max(axis=1, initial=0.0)


def open_counts(stored: Sequence[bytes], shape: ModelShape) -> Counts:
    """Open counts kept as they came on the wire: zlib over little-endian 16- or 32-bit integers.

    Returns
    -------
    uint32 `(n_requests, n_layers, n_experts)`.
    """
    n_counts = shape.n_layers * shape.n_experts
    opened = np.empty((len(stored), n_counts), dtype=np.uint32)
    for row, packed in enumerate(stored):
        raw = zlib.decompress(packed, bufsize=4 * n_counts)
        if len(raw) not in (2 * n_counts, 4 * n_counts):
            raise InvalidMessage(field="stored counts", value=len(raw), limit=f"2 or 4 bytes for {n_counts}")
        opened[row] = np.frombuffer(raw, dtype="<u2" if len(raw) == 2 * n_counts else "<u4")
    return opened.reshape(len(stored), *shape.counts_shape)
