"""Decode profiles: which experts the decode steps of a request used, for a sampled share of requests."""

from dataclasses import dataclass
from typing import ClassVar, Self

from eldr_runtime.count_codec import ExpertCounts, decode_counts, encode_counts
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.json_values import (
    check_wire_version,
    from_json_value,
    message_from_json,
    message_to_json,
    to_json_value,
)

# What one sender pushes at most: a second, a message, and waiting to be sent.
PUSHED_PER_SECOND = 50
PUSHED_AT_ONCE = 50
MOST_TO_PUSH = 500
PUSH_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedCounts:
    """Expert counts in their wire form, carried along unopened; `to_counts` checks and opens them."""

    v: int
    model: str
    layers: int
    experts: int
    top_k: int
    encoding: str
    counts: str
    tokens: int
    covered: int
    cached: int = 0

    @classmethod
    def from_counts(cls, counts: ExpertCounts) -> Self:
        """Encode counts."""
        return from_json_value(cls, encode_counts(counts))

    def to_counts(self) -> ExpertCounts:
        """Decode the counts; refuses what breaks a limit or does not add up."""
        wire_form = to_json_value(self)
        if not isinstance(wire_form, dict):
            raise TypeError("a dataclass is written as an object")
        return decode_counts(wire_form)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeProfile:
    """Counts of one request's decode steps; the router joins them with the request's prefill counts."""

    WIRE_VERSION: ClassVar[int] = 1

    v: int = WIRE_VERSION
    request_id: str
    worker_id: str
    steps: int
    counts: EncodedCounts

    def __post_init__(self) -> None:
        check_wire_version(self.v, self.WIRE_VERSION)
        if self.steps < 1:
            raise InvalidMessage(field="steps", value=self.steps, limit="at least 1")
        if self.counts.tokens != self.steps:
            limit = f"the number of steps, {self.steps}"
            raise InvalidMessage(field="counts.tokens", value=self.counts.tokens, limit=limit)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a profile from JSON text."""
        return message_from_json(cls, text)

    def to_json(self) -> str:
        """Write the profile as JSON text."""
        return message_to_json(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeProfileBatch:
    """Profiles as a decode worker posts them; those of other routers' requests are among them."""

    WIRE_VERSION: ClassVar[int] = 1

    v: int = WIRE_VERSION
    profiles: tuple[DecodeProfile, ...]
