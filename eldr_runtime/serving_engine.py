"""What the router needs of a serving engine that splits prefill from decode."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from eldr_runtime.decode_profile import EncodedCounts

JsonObject = dict[str, object]
"""A request or an answer of the engine's API; fields nobody here knows pass through untouched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetrics:
    """Counters of one worker as scraped; None where the worker does not export one.

    Parameters
    ----------
    n_running, n_waiting
        Requests in the running batch and in the queue.
    n_steps
        Decode steps since the worker started.
    batch_sum
        Sum of the batch size over those steps.
    distinct_experts_sum
        For each layer the sum over those steps of the distinct experts loaded.
    """

    n_running: float | None = None
    n_waiting: float | None = None
    generation_tokens: float | None = None
    kv_cache_usage_share: float | None = None
    n_steps: float | None = None
    batch_sum: float | None = None
    distinct_experts_sum: tuple[float, ...] | None = None


class ServingEngine(Protocol):
    """Turns one client request into the two legs of an engine and reads what the engine answers."""

    def prefill_request(self, body: Mapping[str, object]) -> JsonObject:
        """Return the body of the prefill leg: no stream, one token, KV kept for another worker."""

    def decode_request(self, body: Mapping[str, object], hand_off: Mapping[str, object] | None) -> JsonObject:
        """Return the body of the decode leg, which fetches the KV that `hand_off` names.

        A stream always ends with its usage. Without a hand-off the decode worker computes the prompt itself.
        """

    def release_request(self, body: Mapping[str, object], hand_off: Mapping[str, object]) -> JsonObject:
        """Return the body of a decode leg that only makes the prefill worker let go of the KV."""

    def read_hand_off(self, answer: Mapping[str, object]) -> JsonObject | None:
        """Return what the decode worker needs to fetch the KV, expert counts taken out; None without any."""

    def read_counts(self, answer: Mapping[str, object]) -> EncodedCounts | None:
        """Return the counts of a prefill answer unopened, None without any; InvalidMessage if malformed."""

    def wants_counts(self, body: Mapping[str, object]) -> bool:
        """Return whether the client asks for the expert counts of its prompt."""

    def put_counts(self, answer: Mapping[str, object], counts: EncodedCounts) -> JsonObject:
        """Return a whole answer with the expert counts of its prompt, for a client that asks for them."""

    def read_metrics(self, text: str) -> EngineMetrics:
        """Return the counters in a worker's metrics page."""
