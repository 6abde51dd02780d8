"""The half of the plugin beside the model: captures, counts, and tells the scheduler."""

import logging

import numpy as np

from eldr_runtime.count_codec import ExpertCounts, encode_counts
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.expert_trace import count_topk
from eldr_runtime.vllm_adapter.decode_unions import UnionStats, distinct_experts
from eldr_runtime.vllm_adapter.self_test import CaptureCheck
from eldr_runtime.vllm_adapter.slot_table import SlotTable
from eldr_runtime.vllm_adapter.step_plan import PromptSpan, StepCounts, StepPlan

logger = logging.getLogger(__name__)


class WorkerSide:
    """Runs each step's plan against the table that the hooks fill.

    Attributes
    ----------
    check
        Whether the ids that come in are real.
    """

    def __init__(self, table: SlotTable, check: CaptureCheck) -> None:
        self._table = table
        self._plan = StepPlan()
        self._counts: StepCounts | None = None
        self._stats = UnionStats()
        self.check = check

    def begin(self, plan: StepPlan) -> None:
        """Take a step's plan, before its forward pass; both of vLLM's model runners call this then."""
        self._plan = plan
        self._table.clear_blocks(plan.cleared_blocks)

    def end(self) -> None:
        """Count what the step's forward pass has shown."""
        plan, self._plan = self._plan, StepPlan()
        prompts: dict[str, dict[str, str | int]] = {}
        for span in plan.prompts:
            message = self._count(span)
            if message is not None:
                prompts[span.request_id] = message
        rows = {}
        if len(plan.decode_slots):
            ids = self._table.rows(plan.decode_slots)
            rows = {request_id: ids[position] for request_id, position in plan.profiled}
            if plan.is_pure_decode and self._table.is_known(ids).all():
                self._stats.add_step(len(ids), distinct_experts(ids, self._table.shape.n_experts))
            else:
                self._stats.data["unknown_steps" if plan.is_pure_decode else "mixed_steps"] += 1
        if prompts or rows:
            self._counts = StepCounts(prompts=prompts, decode_rows=rows)

    def take_counts(self) -> StepCounts | None:
        """Return what the step showed; None where it showed nothing of interest."""
        counts, self._counts = self._counts, None
        return counts

    def take_stats(self) -> UnionStats | None:
        """Return what was counted since the last call; None if nothing was."""
        if self._stats.is_empty():
            return None
        stats, self._stats = self._stats, UnionStats()
        return stats

    def _count(self, span: PromptSpan) -> dict[str, str | int] | None:
        rows = self._table.rows(self._table.slots_of(span.block_ids, span.n_tokens))
        is_known = self._table.is_known(rows)
        if self.check.look_at(rows, is_known):
            self._tell_result()
        if not self.check.is_open:
            return None
        try:
            counts = ExpertCounts(
                shape=self._table.shape,
                counts=count_topk(rows[is_known], self._table.shape.n_experts),
                tokens=span.n_tokens,
                covered=int(np.count_nonzero(is_known)),
                cached=span.n_cached,
            )
            return encode_counts(counts)
        except InvalidMessage as error:
            self.check.fail(str(error))
            self._tell_result()
            return None

    def _tell_result(self) -> None:
        if self.check.is_passed:
            logger.info("self-test passed: captured experts are handed out")
        else:
            logger.error("self-test failed, no experts are handed out: %s", self.check.reason)
