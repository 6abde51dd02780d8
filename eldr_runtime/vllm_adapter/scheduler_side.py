"""The half of the plugin in vLLM's scheduler: what is computed where, and counts into the answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request, RequestStatus

from eldr_runtime.array_types import ExpertIds
from eldr_runtime.count_codec import encode_counts
from eldr_runtime.decode_profile import DecodeProfile, EncodedCounts
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.vllm_adapter.decode_profiles import DecodeTally, ProfilePush, ProfileTarget, TargetFile
from eldr_runtime.vllm_adapter.step_plan import PromptSpan, StepCounts, StepPlan
from eldr_runtime.vllm_adapter.wire_format import COUNTS_FIELD, DECODE_COUNTS_FIELD

_Json = dict[str, str | int]


@dataclass(slots=True, kw_only=True)
class _Tracked:
    """What is known of a request between its first look at the cache and its end.

    `counts` is the object that goes into the answer: it is filled in place, since vLLM asks for the answer's
    parameters before it hands over what the worker counted in the same step.
    """

    n_prompt_tokens: int
    is_answer_wanted: bool
    is_profile_pushed: bool
    n_local_tokens: int = 0
    n_cached: int | None = None
    block_ids: list[int] = field(default_factory=list)
    is_counted: bool = False
    counts: _Json = field(default_factory=dict)
    tally: DecodeTally | None = None


@dataclass(slots=True, kw_only=True)
class _Finishing:
    """A finished request whose last step the worker has not told yet."""

    tracked: _Tracked
    decode_counts: _Json = field(default_factory=dict)


class SchedulerSide:
    """Tracks requests and their blocks; asks the worker for counts, and puts them into answers and profiles.

    Parameters
    ----------
    model, n_experts
        Name of the model and experts a layer; how many layers it has, only the worker can tell.
    group
        KV cache group whose blocks index the worker's table.
    block_size
        Slots of its blocks.
    is_producer, is_consumer
        Whether prompts are counted for a router, and whether decode steps are.
    """

    def __init__(
        self,
        *,
        model: str,
        n_experts: int,
        group: int,
        block_size: int,
        is_producer: bool,
        is_consumer: bool,
        worker_id: str,
        target: ProfileTarget,
        target_file: TargetFile | None,
    ) -> None:
        self._model = model
        self._n_experts = n_experts
        self._group = group
        self._block_size = block_size
        self._is_producer = is_producer
        self._is_consumer = is_consumer
        self._worker_id = worker_id
        self._target = target
        self._target_file = target_file
        self._push = ProfilePush()
        self._tracked: dict[str, _Tracked] = {}
        self._finishing: dict[str, _Finishing] = {}
        self._cleared: list[int] = []

    def looked_up(self, request: Request, n_local_tokens: int) -> None:
        """Take how many tokens the prefix cache of this worker holds of a request."""
        tracked = self._track(request)
        tracked.n_local_tokens = n_local_tokens
        tracked.block_ids = []
        if tracked.n_cached is None:
            tracked.n_cached = min(n_local_tokens, tracked.n_prompt_tokens)

    def allocated(self, request: Request, block_ids: Sequence[Sequence[int]]) -> None:
        """Take all blocks of a request; those behind the local hit and the ones known already are new.

        KV that comes from elsewhere goes into such new blocks too, and no experts with it.
        """
        tracked = self._track(request)
        blocks = list(block_ids[self._group])
        n_known = max(len(tracked.block_ids), tracked.n_local_tokens // self._block_size)
        self._cleared.extend(blocks[n_known:])
        tracked.block_ids = blocks

    def plan(self, output: SchedulerOutput) -> StepPlan:
        """Return what the worker does in this step."""
        starts = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        for request_id, new_blocks, start in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            starts[request_id] = start
            # A request that was resumed has told all its blocks in `allocated`.
            if new_blocks is not None and request_id not in cached.resumed_req_ids:
                self._cleared.extend(new_blocks[self._group])
                self._tracked[request_id].block_ids.extend(new_blocks[self._group])
        prompts: list[PromptSpan] = []
        slots: list[int] = []
        profiled: list[tuple[str, int]] = []
        for request_id, n_tokens in output.num_scheduled_tokens.items():
            tracked = self._tracked[request_id]
            start = starts[request_id]
            if self._is_producer and not tracked.is_counted and start + n_tokens >= tracked.n_prompt_tokens:
                prompts.append(self._span(request_id, tracked))
            if n_tokens == 1 and start >= tracked.n_prompt_tokens - 1:
                if tracked.is_answer_wanted or tracked.is_profile_pushed:
                    profiled.append((request_id, len(slots)))
                block = tracked.block_ids[start // self._block_size]
                slots.append(block * self._block_size + start % self._block_size)
        cleared, self._cleared = self._cleared, []
        return StepPlan(
            cleared_blocks=tuple(cleared),
            prompts=tuple(prompts),
            decode_slots=np.asarray(slots, dtype=np.int64),
            is_pure_decode=len(slots) == len(output.num_scheduled_tokens),
            profiled=tuple(profiled),
        )

    def finished(self, request: Request) -> dict[str, _Json] | None:
        """Return what goes into the answer's `kv_transfer_params`; it is filled in before vLLM sends it."""
        tracked = self._tracked.pop(request.request_id, None)
        if tracked is None or request.status == RequestStatus.FINISHED_ABORTED:
            return None
        answer: dict[str, _Json] = {}
        finishing = _Finishing(tracked=tracked)
        if tracked.is_counted:
            answer[COUNTS_FIELD] = tracked.counts
        if tracked.is_answer_wanted:
            answer[DECODE_COUNTS_FIELD] = finishing.decode_counts
        self._finishing[request.request_id] = finishing
        return answer or None

    def counted(self, counts: StepCounts | None) -> None:
        """Take what the worker counted in a step, and complete the requests that ended with it."""
        if counts is not None:
            for request_id, message in counts.prompts.items():
                if (tracked := self._find(request_id)) is not None:
                    tracked.counts.update(message)
            for request_id, row in counts.decode_rows.items():
                tracked = self._find(request_id)
                if tracked is not None:
                    self._add_step(tracked, row)
        finishing, self._finishing = self._finishing, {}
        for request_id, ended in finishing.items():
            self._complete(request_id, ended)

    def close(self) -> None:
        """Send the profiles that wait."""
        self._push.close()

    def _track(self, request: Request) -> _Tracked:
        tracked = self._tracked.get(request.request_id)
        if tracked is None:
            asked = request.kv_transfer_params or {}
            tracked = _Tracked(
                n_prompt_tokens=request.num_prompt_tokens,
                is_answer_wanted=self._is_consumer and asked.get(DECODE_COUNTS_FIELD) is True,
                is_profile_pushed=self._is_consumer and self._current_target().wants(request.request_id),
            )
            self._tracked[request.request_id] = tracked
        return tracked

    def _find(self, request_id: str) -> _Tracked | None:
        finishing = self._finishing.get(request_id)
        return self._tracked.get(request_id) if finishing is None else finishing.tracked

    def _span(self, request_id: str, tracked: _Tracked) -> PromptSpan:
        tracked.is_counted = True
        n_blocks = -(-tracked.n_prompt_tokens // self._block_size)
        return PromptSpan(
            request_id=request_id,
            block_ids=tuple(tracked.block_ids[:n_blocks]),
            n_tokens=tracked.n_prompt_tokens,
            n_cached=tracked.n_cached or 0,
        )

    def _add_step(self, tracked: _Tracked, row: ExpertIds) -> None:
        if tracked.tally is None:
            n_layers, top_k = row.shape
            tracked.tally = DecodeTally(
                ModelShape(model=self._model, n_layers=n_layers, n_experts=self._n_experts, top_k=top_k)
            )
        tracked.tally.add(row)

    def _complete(self, request_id: str, ended: _Finishing) -> None:
        tally = ended.tracked.tally
        if tally is None:
            return
        total = tally.total()
        if ended.tracked.is_answer_wanted:
            ended.decode_counts.update(encode_counts(total))
        if ended.tracked.is_profile_pushed:
            profile = DecodeProfile(
                request_id=request_id,
                worker_id=self._worker_id,
                steps=tally.n_steps,
                counts=EncodedCounts.from_counts(total),
            )
            self._push.offer(profile, self._current_target().urls)

    def _current_target(self) -> ProfileTarget:
        return self._target if self._target_file is None else self._target_file.current()
