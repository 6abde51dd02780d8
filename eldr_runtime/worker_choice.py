"""Choosing the decode worker: candidates, their similarities, one policy, one decision with its reason."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from eldr_runtime.array_types import Floats32, Ints
from eldr_runtime.centroid_map import CentroidMap, assign
from eldr_runtime.errors import InvalidConfig, InvalidValue
from eldr_runtime.policies.choice import PolicySettings, Reason, RoutingPolicy, RoutingRequest
from eldr_runtime.policies.registry import build_policy
from eldr_runtime.worker_load import PoolView


class HasCentroids(Protocol):
    """What routing needs of a centroid version."""

    @property
    def centroids(self) -> Floats32:
        """Return float32 `(n_centroids, n_features)`."""

    @property
    def content_hash(self) -> str:
        """Return the hash that names the version."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoutingTable:
    """What one arm of a configuration compiles to; built once a change, read by every request.

    Parameters
    ----------
    worker_ids
        Sorted ids of the workers that the map covers.
    centroids
        float32 `(n_centroids, n_features)`, contiguous, or None: then every choice is by load.
    centroid_map
        None exactly where `centroids` is.
    version_hash
        Content hash of the version, or None.
    """

    worker_ids: tuple[str, ...]
    centroids: Floats32 | None
    centroid_map: CentroidMap | None
    policy: RoutingPolicy
    version_hash: str | None
    position_of: Mapping[str, int]

    def centroid_similarities(self, signature: Floats32) -> Floats32:
        """Return the similarity to each centroid, float32 `(n_centroids,)`."""
        if self.centroids is None:
            raise InvalidConfig(field="centroids", value=None, limit="present to score a signature")
        _check_signature(signature, self.centroids.shape[1])
        similarities: Floats32 = self.centroids.dot(signature)
        return similarities

    def positions(self, worker_ids: tuple[str, ...]) -> Ints | None:
        """Return where the candidates stand in the table; None if they are its workers in its order."""
        if worker_ids == self.worker_ids:
            return None
        try:
            return np.array([self.position_of[worker_id] for worker_id in worker_ids], dtype=np.int64)
        except KeyError as error:
            limit = "a worker of the routing table"
            raise InvalidValue(field="worker_id", value=error.args[0], limit=limit) from error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """Where one request goes, and all that led there.

    Parameters
    ----------
    index
        Place of the worker in the candidates of the pool view.
    similarities
        float32 `(n_workers,)` in the order of the candidates; None without a signature or a version.
    band
        Ids of the candidates that were left when the least loaded was picked.
    in_flight
        Load of the candidates before this request.
    nearest_centroid, nearest_similarity
        The centroid most similar to the signature, whoever carries it.
    """

    worker_id: str
    index: int
    similarities: Floats32 | None
    band: tuple[str, ...]
    in_flight: tuple[int, ...]
    reason: Reason
    nearest_centroid: int | None
    nearest_similarity: float | None


def build_routing_table(
    version: HasCentroids | None,
    worker_ids: Sequence[str],
    settings: PolicySettings,
    *,
    absent_workers: Sequence[str] = (),
    label_shares: Mapping[str, float] | None = None,
) -> RoutingTable:
    """Compile a version and policy settings for a set of ready workers.

    Without a version the table routes by load alone; `absent_workers` as in `centroid_map.assign`.
    """
    policy = build_policy(settings, label_shares=label_shares)
    if version is None:
        centroid_map = centroids = None
        ids = tuple(sorted(set(worker_ids)))
    else:
        centroids = _frozen(version.centroids)
        centroid_map = assign(version.content_hash, len(centroids), worker_ids, absent_workers=absent_workers)
        ids = centroid_map.worker_ids
    return RoutingTable(
        worker_ids=ids,
        centroids=centroids,
        centroid_map=centroid_map,
        policy=policy,
        version_hash=None if version is None else version.content_hash,
        position_of={worker_id: position for position, worker_id in enumerate(ids)},
    )


def choose_worker(
    signature: Floats32 | None,
    pool: PoolView,
    router: RoutingTable,
    rng: np.random.Generator,
    label: str | None = None,
) -> Decision:
    """Choose one of the pool's workers.

    Parameters
    ----------
    signature
        float32 `(n_features,)`, unit norm or zero; None where the request has none.
    pool
        The candidates: all workers of the table or some of them, with their load.
    router
        The table in force.
    rng
        Settles ties and draws.
    label
        True category, for the `domain` oracle.
    """
    positions = router.positions(pool.worker_ids)
    by_centroid = (
        None if signature is None or router.centroids is None else router.centroid_similarities(signature)
    )
    similarities = None
    if by_centroid is not None and router.centroid_map is not None:
        similarities = router.centroid_map.worker_similarities(by_centroid)
        if positions is not None:
            similarities = similarities[positions]
    choice = router.policy.choose(RoutingRequest(similarities=similarities, label=label), pool, rng)
    nearest = None if by_centroid is None else int(by_centroid.argmax())
    return Decision(
        worker_id=pool.worker_ids[choice.index],
        index=choice.index,
        similarities=similarities,
        band=tuple([pool.worker_ids[index] for index in choice.band]),
        in_flight=tuple(pool.in_flight.tolist()),
        reason=choice.reason,
        nearest_centroid=nearest,
        nearest_similarity=None if by_centroid is None or nearest is None else float(by_centroid[nearest]),
    )


def _frozen(centroids: Floats32) -> Floats32:
    if centroids.ndim != 2 or not np.isfinite(centroids).all():
        raise InvalidConfig(
            field="centroids", value=centroids.shape, limit="finite, (n_centroids, n_features)"
        )
    copy = np.array(centroids, dtype=np.float32, order="C")
    copy.setflags(write=False)
    return copy


def _check_signature(signature: Floats32, n_features: int) -> None:
    if signature.shape != (n_features,):
        raise InvalidValue(field="signature shape", value=signature.shape, limit=f"({n_features},)")
    if signature.dtype != np.float32:
        raise InvalidValue(field="signature dtype", value=str(signature.dtype), limit="float32")
    # One pass that NaN and infinity both survive, cheaper than isfinite over all features.
    squared_norm = float(signature.dot(signature))
    if not math.isfinite(squared_norm):
        raise InvalidValue(field="signature squared norm", value=squared_norm, limit="finite")
