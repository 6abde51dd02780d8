"""From the counts of a prefill answer to the signature that places the request, or the reason why not."""

from enum import StrEnum

from eldr_runtime.array_types import Floats32
from eldr_runtime.decode_profile import EncodedCounts
from eldr_runtime.errors import EldrError
from eldr_runtime.router.snapshot import CompiledArm, RoutingSnapshot


class Unsigned(StrEnum):
    """Why a request was routed without a signature."""

    NO_HAND_OFF = "no_hand_off"
    """The prefill answer named no KV; the decode worker computes the prompt itself."""
    NO_COUNTS = "no_counts"
    """A dense model, an old worker, or a capture that failed."""
    INVALID_COUNTS = "invalid_counts"
    OTHER_MODEL = "other_model"
    LOW_COVERAGE = "low_coverage"
    PUSH_TRANSFER = "push_transfer"
    """The connector pushes KV, so it must know the decode worker before there is a signature."""
    NO_VERSION = "no_version"
    NEEDS_GATES = "needs_gates"
    """The version was fitted on gate values, which no worker sends."""


def sign(
    encoded: EncodedCounts | None,
    arm: CompiledArm,
    snapshot: RoutingSnapshot,
    minimum_coverage_share: float,
) -> Floats32 | Unsigned:
    """Return a request's signature in its arm's version, float32 `(n_features,)`, or why there is none."""
    if snapshot.has_push_transfer:
        return Unsigned.PUSH_TRANSFER
    if encoded is None:
        return Unsigned.NO_COUNTS
    try:
        counts = encoded.to_counts()
    except EldrError:
        return Unsigned.INVALID_COUNTS
    if snapshot.shape is not None and counts.shape != snapshot.shape:
        return Unsigned.OTHER_MODEL
    if counts.covered < minimum_coverage_share * counts.tokens or counts.covered == 0:
        return Unsigned.LOW_COVERAGE
    if arm.version is None:
        return Unsigned.NO_VERSION
    if arm.version.transform.name.needs_gates:
        return Unsigned.NEEDS_GATES
    return arm.version.signature(counts.counts)
