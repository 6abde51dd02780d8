"""What the plugin vouches for: which engines it refuses, and the check that the ids it captures are real."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eldr_runtime.count_codec import decode_counts
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.vllm_adapter.wire_format import COUNTS_FIELD, DECODE_COUNTS_FIELD

VOUCHED_VERSION = "0.32"
MIN_TEST_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSetUp:
    """How an engine was started, as far as the plugin cares."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    context_parallel_size: int = 1
    is_expert_parallel: bool = False
    is_expert_load_balanced: bool = False
    is_speculative: bool = False
    is_async_scheduled: bool = False
    is_micro_batched: bool = False
    is_compiled_on_cpu: bool = False
    n_experts: int = 0
    has_full_attention: bool = True


def refusals(engine: EngineSetUp) -> tuple[str, ...]:
    """Return why the plugin does not start in this engine; empty where it does.

    Examples
    --------
    >>> refusals(EngineSetUp(n_experts=64, tensor_parallel_size=2))
    ('tensor_parallel_size is 2; must be 1: ranks were never checked to see the same',)
    """
    sizes = (
        ("tensor_parallel_size", engine.tensor_parallel_size, "ranks were never checked to see the same"),
        ("pipeline_parallel_size", engine.pipeline_parallel_size, "each stage sees its own layers alone"),
        ("data_parallel_size", engine.data_parallel_size, "ranks gather their tokens"),
        ("context parallel size", engine.context_parallel_size, "a prompt is spread over ranks"),
    )  # fmt: skip
    flags = (
        (engine.n_experts < 2, "the model has no experts"),
        (not engine.has_full_attention, "no KV cache group keeps every token, so no slot can be counted on"),
        (engine.is_expert_parallel, "expert parallelism: tokens move between ranks before they are routed"),
        (engine.is_expert_load_balanced, "expert load balancing has not been checked"),
        (engine.is_speculative, "speculative decoding: rejected tokens would be counted"),
        (
            engine.is_async_scheduled,
            "async scheduling has not been checked; start with --no-async-scheduling",
        ),
        (engine.is_micro_batched, "dual batch overlap splits a step's slots"),
        (
            engine.is_compiled_on_cpu,
            "torch.compile on a CPU traces the layers before they are hooked; start with --enforce-eager",
        ),
    )
    found = [f"{name} is {size}; must be 1: {reason}" for name, size, reason in sizes if size != 1]
    return (*found, *(reason for is_so, reason in flags if is_so))


def is_vouched(version: str) -> bool:
    """Return whether counts of this vLLM were proven equal to an independent computation.

    Examples
    --------
    >>> is_vouched("0.32.1"), is_vouched("0.33.0"), is_vouched("0.320")
    (True, False, False)
    """
    return version == VOUCHED_VERSION or version.startswith(f"{VOUCHED_VERSION}.")


def why_not_real(rows: NDArray[np.generic], *, is_varied: bool) -> str | None:
    """Return what is wrong with the ids of a prompt's tokens; None if nothing is.

    Parameters
    ----------
    rows
        Integers `(n_tokens, n_layers, top_k)`, all known.
    is_varied
        Whether the prompt has many different tokens, so that every layer must choose differently for some.
    """
    if rows.shape[2] > 1:
        ordered = np.sort(rows, axis=2)
        repeated = (ordered[:, :, 1:] == ordered[:, :, :-1]).any(axis=(0, 2))
        if repeated.any():
            return f"layer {int(repeated.argmax())} gives a token the same expert twice"
    if is_varied:
        constant = (rows == rows[:1]).all(axis=(0, 2))
        if constant.any():
            return f"layer {int(constant.argmax())} chooses the same experts for every token"
    return None


class CaptureCheck:
    """The first whole prompt with enough different tokens decides whether counts are handed out.

    In a version that is vouched for, counts flow until a check fails; in another, not before one has passed.

    Attributes
    ----------
    is_passed
        What the check said; None before.
    reason
        Why it failed.
    """

    def __init__(self, version: str) -> None:
        self._is_vouched = is_vouched(version)
        self.is_passed: bool | None = None
        self.reason: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether counts may be handed out."""
        return self._is_vouched if self.is_passed is None else self.is_passed

    def look_at(self, rows: NDArray[np.generic], is_known: Sequence[bool] | NDArray[np.bool_]) -> bool:
        """Look at a prompt if no earlier one has decided; returns whether this one did.

        A prompt part of whose KV came from elsewhere, or of few or uniform tokens, decides nothing, unless
        it shows what no router can do.
        """
        n_known = int(np.count_nonzero(is_known))
        if self.is_passed is not None or n_known < MIN_TEST_TOKENS or n_known < len(rows):
            return False
        reason = why_not_real(rows, is_varied=False)
        if reason is not None:
            self.fail(reason)
        elif why_not_real(rows, is_varied=True) is None:
            self.is_passed = True
        return self.is_passed is not None

    def fail(self, reason: str) -> None:
        """Hand out no counts from now on."""
        self.is_passed = False
        self.reason = reason


def probe_request(model: str, *, is_prefill: bool) -> dict[str, object]:
    """Return the body of a completion that shows whether a worker's experts are real.

    No KV is to be kept for another worker, so that nothing waits for its lease to end. The answer is
    sampled: a greedy one may repeat one token, whose experts are then the same by right.
    """
    words = [f"{word}{number}" for number in range(12) for word in ("amber", "Birch", "cedar:", "delta,")]
    parameters = {} if is_prefill else {"kv_transfer_params": {DECODE_COUNTS_FIELD: True}}
    return {
        "model": model, "prompt": " ".join(words), "max_tokens": 1 if is_prefill else MIN_TEST_TOKENS,
        "temperature": 1.0, "seed": 1, "ignore_eos": True, "stream": False, **parameters,
    }  # fmt: skip


def why_probe_failed(answer: Mapping[str, object], *, is_prefill: bool) -> str | None:
    """Return what is wrong with a worker's answer to the probe; None if nothing is."""
    parameters = answer.get("kv_transfer_params")
    field = COUNTS_FIELD if is_prefill else DECODE_COUNTS_FIELD
    message = parameters.get(field) if isinstance(parameters, dict) else None
    if not message:
        return f"no kv_transfer_params.{field} in the answer: the plugin is missing, or its own check failed"
    try:
        counts = decode_counts(message)
    except InvalidMessage as error:
        return str(error)
    if counts.covered != counts.tokens:
        return f"experts of {counts.covered} of {counts.tokens} tokens are known; must be of all"
    if (np.count_nonzero(counts.counts, axis=1) == counts.shape.top_k).any():
        return "a layer chooses the same experts for every token"
    return None
