"""One routed request: the decision, its reason, and what came of it. No prompt or output text is in it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Self

from eldr_runtime.array_types import Floats32
from eldr_runtime.decode_profile import EncodedCounts
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.json_values import check_wire_version, message_from_json, message_to_json
from eldr_runtime.policies.choice import Reason

N_SIMILARITIES = 8


class Outcome(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"
    CLIENT_GONE = "client_gone"
    PREFILL_FAILED = "prefill_failed"
    DECODE_FAILED = "decode_failed"
    TIMED_OUT = "timed_out"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingEvent:
    """The record of one routed request.

    Parameters
    ----------
    version
        Content hash of the centroid version, None where the arm has none.
    prefill_worker, decode_worker
        None where the request did not get that far.
    cluster
        The nearest centroid, None without a signature.
    similarities
        Of the most similar workers, at most 8, the most similar first.
    in_flight
        Load of the candidates when the choice was made.
    tpot_ms
        None with fewer than two output tokens.
    counts
        The prefill counts, for a sampled share.
    decode_counts, decode_steps
        The decode profile, where it was sampled and arrived in time; both or neither.
    """

    WIRE_VERSION: ClassVar[int] = 1

    v: int = WIRE_VERSION
    request_id: str
    at: datetime
    arm: str
    generation: int
    version: str | None
    prefill_worker: str | None
    decode_worker: str | None
    cluster: int | None
    similarities: Mapping[str, float]
    band: tuple[str, ...]
    in_flight: Mapping[str, int]
    reason: Reason | None
    ttft_ms: float | None
    tpot_ms: float | None
    prompt_tokens: int
    output_tokens: int
    outcome: Outcome
    counts: EncodedCounts | None = None
    decode_counts: EncodedCounts | None = None
    decode_steps: int | None = None

    def __post_init__(self) -> None:
        check_wire_version(self.v, self.WIRE_VERSION)
        if not self.request_id:
            raise InvalidMessage(field="request_id", value=self.request_id, limit="a non-empty id")
        if self.at.tzinfo is None:
            raise InvalidMessage(field="at", value=self.at, limit="a time with its zone")
        if len(self.similarities) > N_SIMILARITIES:
            limit = f"at most {N_SIMILARITIES}"
            raise InvalidMessage(field="similarities", value=len(self.similarities), limit=limit)
        if (self.decode_counts is None) != (self.decode_steps is None):
            limit = "present where decode_counts is, and only there"
            raise InvalidMessage(field="decode_steps", value=self.decode_steps, limit=limit)
        for name in (
            "generation",
            "prompt_tokens",
            "output_tokens",
            "cluster",
            "ttft_ms",
            "tpot_ms",
            "decode_steps",
        ):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise InvalidMessage(field=name, value=value, limit="finite, 0 or more")

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read an event from JSON text."""
        return message_from_json(cls, text)

    def to_json(self) -> str:
        """Write the event as JSON text."""
        return message_to_json(self)


def most_similar(worker_ids: Sequence[str], similarities: Floats32 | None) -> Mapping[str, float]:
    """Return the similarities an event carries: the 8 most similar workers, the most similar first.

    Parameters
    ----------
    similarities
        float32 `(n_workers,)`, or None, which gives nothing.
    """
    if similarities is None:
        return {}
    order = (-similarities).argsort(kind="stable")[:N_SIMILARITIES]
    return {worker_ids[i]: round(float(similarities[i]), 6) for i in order.tolist()}
