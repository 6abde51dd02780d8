"""One request on its way through the router: what it asks, and what is known of it so far."""

import json
from collections.abc import Mapping

from eldr_runtime.decode_profile import EncodedCounts
from eldr_runtime.experiment_design import ArmWindow
from eldr_runtime.router.decode_choice import Unsigned
from eldr_runtime.router.errors import (
    BadRequest,
    ClientGone,
    RouterError,
    StreamBroken,
    UpstreamFailed,
    UpstreamTimeout,
)
from eldr_runtime.router.request_clock import RequestClock
from eldr_runtime.router.snapshot import CompiledArm, RoutingSnapshot
from eldr_runtime.routing_event import Outcome
from eldr_runtime.serving_engine import JsonObject
from eldr_runtime.worker_choice import Decision

COMPLETIONS = "/v1/completions"
CHAT_COMPLETIONS = "/v1/chat/completions"
NESTED_TOO_DEEPLY = "the body is nested too deeply"


def outcome_of(error: RouterError, *, has_decision: bool) -> Outcome:
    """Return the outcome that an error stands for."""
    if isinstance(error, ClientGone):
        return Outcome.CLIENT_GONE
    if isinstance(error, UpstreamTimeout):
        return Outcome.TIMED_OUT
    if isinstance(error, UpstreamFailed | StreamBroken):
        return Outcome.DECODE_FAILED if has_decision else Outcome.PREFILL_FAILED
    return Outcome.REFUSED


class Call:
    """What the client asks for, and the headers that go on to the workers."""

    __slots__ = ("body", "headers", "is_stream", "is_usage_wanted", "n_choices", "path")

    def __init__(self, path: str, body: JsonObject, headers: Mapping[str, str]) -> None:
        self.path = path
        self.body = body
        self.headers = headers
        self.is_stream = body.get("stream") is True
        options = body.get("stream_options")
        self.is_usage_wanted = isinstance(options, dict) and options.get("include_usage") is True
        n_choices = body.get("n")
        self.n_choices = n_choices if isinstance(n_choices, int) else 1


def parse_call(path: str, data: bytes, headers: Mapping[str, str]) -> Call:
    """Read a request's body.

    A list of prompts is refused: one set of transfer parameters hands over the KV of one prompt.
    """
    try:
        body = json.loads(data)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise BadRequest(NESTED_TOO_DEEPLY) from error
    if not isinstance(body, dict):
        raise BadRequest(f"the body is a JSON {type(body).__name__}; must be an object")
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        # vLLM takes 1 and "yes" for true: it would stream where the router waits for one document.
        raise BadRequest(f"stream is {str(stream)[:80]!r}; must be true or false", parameter="stream")
    prompt = body.get("prompt")
    if (
        path == COMPLETIONS
        and isinstance(prompt, list)
        and any(isinstance(each, list | str) for each in prompt)
    ):
        if len(prompt) != 1:
            message = f"prompt is a list of {len(prompt)} prompts; must be one prompt a request"
            raise BadRequest(message, parameter="prompt")
        body["prompt"] = prompt[0]
    return Call(path, body, headers)


class Exchange:
    """The record of one request, filled in by the steps that serve it.

    Attributes
    ----------
    arrived_at
        UTC, seconds since 1970; it decides the arm.
    failed_workers
        Workers that failed it already and are not asked again.
    candidates
        Decode workers that the decision was made among, in its order.
    attempt_id
        Id of the decode attempt whose answer the client gets.
    """

    __slots__ = (
        "arm", "arrived_at", "attempt_id", "call", "candidates", "clock", "completion_tokens", "counts",
        "decision", "failed_workers", "outcome", "prefill_worker", "prompt_tokens", "request_id", "snapshot",
        "unsigned", "window",
    )  # fmt: skip

    def __init__(
        self,
        *,
        request_id: str,
        call: Call,
        clock: RequestClock,
        arrived_at: float,
        snapshot: RoutingSnapshot,
        window: ArmWindow,
        arm: CompiledArm,
    ) -> None:
        self.request_id = request_id
        self.call = call
        self.clock = clock
        self.arrived_at = arrived_at
        self.snapshot = snapshot
        self.window = window
        self.arm = arm
        self.failed_workers: set[str] = set()
        self.prefill_worker: str | None = None
        self.candidates: tuple[str, ...] = ()
        self.decision: Decision | None = None
        self.counts: EncodedCounts | None = None
        self.unsigned: Unsigned | None = None
        self.attempt_id: str | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        # What stands if nobody says otherwise: the router was stopped, or has a fault.
        self.outcome = Outcome.DECODE_FAILED

    @property
    def ttft_ms(self) -> float | None:
        """Time to first token; None without a stream, where no chunk tells when it was."""
        return self.clock.ttft_ms

    @property
    def tpot_ms(self) -> float | None:
        """Time per output token; None for several choices, whose tokens come at the same time."""
        if self.completion_tokens is None or self.call.n_choices != 1:
            return None
        return self.clock.tpot_ms(self.completion_tokens)
