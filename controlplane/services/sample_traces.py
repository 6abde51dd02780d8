"""Make an expert trace of sampled live requests."""

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from controlplane.errors import InvalidField
from controlplane.services.keep_version import shape_of
from controlplane.services.manage_fleets import get_fleet
from controlplane.services.place_samples import open_counts
from controlplane.settings import Settings
from controlplane.storage.database import ReadSession
from controlplane.storage.repositories import samples
from controlplane.storage.repositories.samples import SampleFilter, StoredCounts
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.model_shape import ModelShape

MOST_REQUESTS = 5000
# A cluster of fewer requests has no centroid worth the name.
REQUESTS_A_CLUSTER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTraffic:
    """Which sampled requests: those that came since a time, the newest `limit` of them."""

    since: datetime | None = None
    limit: int = MOST_REQUESTS


def least_requests(n_clusters: int, settings: Settings) -> int:
    """Fewest sampled requests a calibration is started on."""
    return max(REQUESTS_A_CLUSTER * n_clusters, settings.calibration_minimum_samples)


def check_traffic(
    session: ReadSession, fleet: str, traffic: LiveTraffic, n_clusters: int, settings: Settings
) -> int:
    """Count the samples there are, at most `limit`; refuse too few."""
    n_samples = samples.count_counts(session, fleet, SampleFilter(since=traffic.since))
    n_requests, least = min(n_samples, traffic.limit), least_requests(n_clusters, settings)
    if n_requests < least:
        limit = (
            f"at least {least}: {REQUESTS_A_CLUSTER} for each of {n_clusters} clusters, and "
            f"{settings.calibration_minimum_samples} (ELDR_CALIBRATION_MINIMUM_SAMPLES); "
            f"{n_samples} samples with counts are stored"
        )
        raise InvalidField(field="n_live_requests", value=n_requests, limit=limit)
    return n_requests


def sample_trace(session: ReadSession, fleet: str, traffic: LiveTraffic, least: int) -> ExpertTrace:
    """Build the trace, oldest request first.

    Decode profiles may be sampled more thinly than signatures, or come late. Mask and judgement need them,
    so where enough requests have one, the others are left out.
    """
    shape = shape_of(get_fleet(session, fleet))
    wanted = SampleFilter(since=traffic.since)
    n_with_decode = samples.count_counts(session, fleet, wanted, needs_decode=True)
    has_decode = n_with_decode >= least
    stored = samples.read_counts(session, fleet, wanted, limit=traffic.limit, needs_decode=has_decode)
    if len(stored) < least:
        raise InvalidField(field="n_live_requests", value=len(stored), limit=f"at least {least}")
    return to_trace(stored[::-1], shape, has_decode=has_decode, source=f"live traffic of fleet {fleet}")


def to_trace(stored: list[StoredCounts], shape: ModelShape, *, has_decode: bool, source: str) -> ExpertTrace:
    """Build a trace of stored samples; sessions are not known, as no user or session is ever stored."""
    prompt_tokens = np.array([each.prompt_tokens for each in stored], dtype=np.int64)
    covered_tokens = np.array([each.covered_tokens for each in stored], dtype=np.int64)
    labels = tuple(each.label for each in stored if each.label is not None)
    decode = [each.decode_counts for each in stored if each.decode_counts is not None]
    steps = [each.decode_steps for each in stored if each.decode_steps is not None]
    return ExpertTrace(
        shape=shape,
        prefill_counts=open_counts([each.prefill_counts for each in stored], shape),
        prompt_tokens=prompt_tokens,
        covered_tokens=covered_tokens,
        decode_counts=open_counts(decode, shape) if has_decode else None,
        decode_steps=np.array(steps, dtype=np.int64) if has_decode else None,
        labels=labels if len(labels) == len(stored) else None,
        arrival_seconds=np.array([each.at.timestamp() for each in stored], dtype=np.float64),
        source=source,
        licence="traffic of this fleet",
    )
