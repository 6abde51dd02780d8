"""What the plugin's two sides tell each other every step."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata

from eldr_runtime.array_types import ExpertIds


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSpan:
    """A prompt whose last token is computed in this step, and the blocks it lies in."""

    request_id: str
    block_ids: tuple[int, ...]
    n_tokens: int
    n_cached: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepPlan(KVConnectorMetadata):
    """Scheduler to worker, before the forward pass.

    Attributes
    ----------
    cleared_blocks
        Blocks given out anew: whatever is known of their slots is of another request.
    prompts
        To be counted after the forward pass.
    decode_slots
        int64 `(n_decode_tokens,)`: where the tokens lie that are computed one a request to get the next.
    is_pure_decode
        Whether the step computes nothing else.
    profiled
        Requests whose decode steps are wanted, each with its position in `decode_slots`.
    """

    cleared_blocks: tuple[int, ...] = ()
    prompts: tuple[PromptSpan, ...] = ()
    decode_slots: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    is_pure_decode: bool = False
    profiled: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepCounts(KVConnectorWorkerMetadata):
    """Worker to scheduler, after the forward pass.

    Attributes
    ----------
    prompts
        Counts in their wire form by request id.
    decode_rows
        Expert ids `(n_layers, top_k)` of one decode step by request id.
    """

    prompts: dict[str, dict[str, str | int]] = field(default_factory=dict)
    decode_rows: dict[str, ExpertIds] = field(default_factory=dict)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "StepCounts":
        """Join with what another worker tells; there is only one as long as tensor parallelism is refused."""
        if not isinstance(other, StepCounts):
            raise TypeError(f"cannot join counts with {type(other).__name__}")
        return StepCounts(
            prompts={**self.prompts, **other.prompts},
            decode_rows={**self.decode_rows, **other.decode_rows},
        )
