"""Which experts recent traffic uses in decode, and what a random mix of it would load.

A batch drawn at random from traffic with pooled use `p` leaves an expert unused with `(1 - p) ** batch`. At
the mean batch of many steps the union is somewhat more than the mean over the steps, as it grows ever more
slowly with the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controlplane.services.keep_version import shape_of
from controlplane.services.manage_fleets import get_fleet
from controlplane.services.place_samples import open_counts
from controlplane.storage.database import ReadSession
from controlplane.storage.repositories import samples
from controlplane.storage.repositories.samples import SampleFilter, StoredCounts
from eldr_runtime.array_types import Floats, Floats32
from eldr_runtime.expert_use import HIGHEST_PROBABILITY
from eldr_runtime.model_shape import ModelShape

# Enough that pooled use is known to a percent, and opened in a few hundredths of a second.
SAMPLES = 400


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampledUse:
    """Pooled use of experts by recent requests, float32 `(n_layers, n_experts)`: of all, and by worker.

    Each request counts alike. `is_decode` tells use in decode from use in prefill, which stands in for it
    where no sample has a decode profile.
    """

    pooled: Floats32
    by_worker: dict[str, Floats32]
    n_samples: int
    is_decode: bool


def sample_use(
    session: ReadSession, fleet: str, wanted: SampleFilter, limit: int = SAMPLES
) -> SampledUse | None:
    """Pool the use of the newest samples; None where there are none."""
    shape = shape_of(get_fleet(session, fleet))
    stored = samples.read_counts(session, fleet, wanted, limit=limit, needs_decode=True)
    is_decode = bool(stored)
    if not stored:
        stored = samples.read_counts(session, fleet, wanted, limit=limit)
    if not stored:
        return None
    use = decode_use(stored, shape) if is_decode else prefill_use(stored, shape)
    workers = np.array([each.decode_worker for each in stored])
    return SampledUse(
        pooled=use.mean(axis=0),
        by_worker={str(worker): use[workers == worker].mean(axis=0) for worker in np.unique(workers)},
        n_samples=len(stored),
        is_decode=is_decode,
    )


def prefill_use(stored: Sequence[StoredCounts], shape: ModelShape) -> Floats32:
    """Share of prompt tokens that used each expert, float32 `(n_requests, n_layers, n_experts)`."""
    counts = open_counts([each.prefill_counts for each in stored], shape)
    tokens = np.array([each.covered_tokens for each in stored], dtype=np.float32)
    return counts.astype(np.float32) / tokens[:, None, None]


def decode_use(stored: Sequence[StoredCounts], shape: ModelShape) -> Floats32:
    """Share of decode steps that used each expert, float32 `(n_requests, n_layers, n_experts)`."""
    packed = [each.decode_counts for each in stored]
    counts = open_counts([each for each in packed if each is not None], shape)
    steps = np.array([each.decode_steps for each in stored], dtype=np.float32)
    return counts.astype(np.float32) / steps[:, None, None]


def random_union_by_layer(pooled: Floats32, batch: float) -> Floats:
    """Distinct experts that a batch drawn at random loads in each layer, float64 `(n_layers,)`.

    Examples
    --------
    >>> random_union_by_layer(np.array([[0.5, 0.5]], dtype=np.float32), 2.0)
    array([1.5])
    """
    unused = 1.0 - np.minimum(pooled.astype(np.float64), HIGHEST_PROBABILITY)
    return np.asarray(pooled.shape[1] - (unused**batch).sum(axis=1), dtype=np.float64)
