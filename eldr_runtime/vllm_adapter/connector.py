"""The connector that vLLM loads beside the one that moves KV; it moves none."""

import logging
from collections.abc import Mapping, Sequence

import torch
import vllm
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats
from vllm.forward_context import ForwardContext
from vllm.v1.attention.backend import AttentionMetadata
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request

from eldr_runtime.errors import UnsupportedEngine
from eldr_runtime.vllm_adapter.capture import bind_capture
from eldr_runtime.vllm_adapter.decode_unions import UnionMetrics, UnionStats
from eldr_runtime.vllm_adapter.engine_set_up import read_set_up, served_name, served_shape, table_group
from eldr_runtime.vllm_adapter.plugin_settings import PluginSettings
from eldr_runtime.vllm_adapter.scheduler_side import SchedulerSide
from eldr_runtime.vllm_adapter.self_test import CaptureCheck, is_vouched, refusals
from eldr_runtime.vllm_adapter.slot_table import SlotTable
from eldr_runtime.vllm_adapter.step_plan import StepCounts, StepPlan
from eldr_runtime.vllm_adapter.worker_side import WorkerSide

logger = logging.getLogger(__name__)


class EldrConnector(KVConnectorBase_V1, SupportsHMA):
    """Counts experts by request, and tells them in `kv_transfer_params`, profiles and metrics.

    A producer counts prompts, a consumer decode steps, `kv_both` does both.
    """

    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        reasons = refusals(read_set_up(vllm_config, kv_cache_config))
        if reasons:
            raise UnsupportedEngine(f"the ELDR plugin does not start: {'; '.join(reasons)}")
        transfer = self._kv_transfer_config
        self._settings = PluginSettings.from_extra_config(transfer.kv_connector_extra_config)
        self._group = table_group(kv_cache_config)
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        if role is KVConnectorRole.SCHEDULER:
            self._scheduler = SchedulerSide(
                model=served_name(vllm_config, self._settings.model),
                n_experts=vllm_config.model_config.get_num_experts(),
                group=self._group.index,
                block_size=self._group.block_size,
                is_producer=transfer.is_kv_producer,
                is_consumer=transfer.is_kv_consumer,
                worker_id=self._settings.worker_id or str(transfer.engine_id),
                target=self._settings.decode_profiles,
                target_file=self._settings.target_file(),
            )

    @property
    def requires_kv_delivery(self) -> bool:
        """Whether KV is lost if this connector does not take it: it takes none."""
        return False

    # Worker side

    def register_kv_caches(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        """Make the table and hook the routers; the model is loaded by now."""
        device = next(iter(kv_caches.values())).device
        shape = served_shape(self._vllm_config, self._settings.model)
        table = SlotTable(
            shape=shape,
            n_blocks=self._kv_cache_config.num_blocks,
            block_size=self._group.block_size,
            device=device,
        )
        bind_capture(self._vllm_config, table, self._group.layer)
        self._worker = WorkerSide(table, CaptureCheck(vllm.__version__))
        vouched = (
            "vouched for" if is_vouched(vllm.__version__) else "not vouched for: waits for its self-test"
        )
        logger.info(
            "ELDR plugin: vLLM %s, %s; %d layers x %d experts, top %d; %.1f MB of ids",
            vllm.__version__, vouched, shape.n_layers, shape.n_experts, shape.top_k,
            table.n_bytes / 1e6,
        )  # fmt: skip

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """Take the step's plan; the only call that both model runners make before the forward pass."""
        super().bind_connector_metadata(connector_metadata)
        if self._worker is not None and isinstance(connector_metadata, StepPlan):
            self._worker.begin(connector_metadata)

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: object) -> None:
        """Load nothing."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Wait for nothing."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: AttentionMetadata, **kwargs: object
    ) -> None:
        """Save nothing."""

    def wait_for_save(self) -> None:
        """Count: the forward pass is over, and what it showed has not been asked for yet."""
        if self._worker is not None:
            self._worker.end()

    def build_connector_worker_meta(self) -> StepCounts | None:
        """Return what the step's forward pass showed."""
        return None if self._worker is None else self._worker.take_counts()

    def get_kv_connector_stats(self) -> UnionStats | None:
        """Return the decode unions since the last call."""
        return None if self._worker is None else self._worker.take_stats()

    # Scheduler side

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int, bool]:
        """Offer nothing; the call tells how much of the request the local prefix cache holds."""
        if self._scheduler is not None:
            self._scheduler.looked_up(request, num_computed_tokens)
        return 0, False

    def update_state_after_alloc(
        self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        """Take the blocks of a request."""
        if self._scheduler is not None:
            self._scheduler.allocated(request, blocks.get_block_ids())

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> StepPlan:
        """Return the step's plan."""
        return StepPlan() if self._scheduler is None else self._scheduler.plan(scheduler_output)

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        """Take what the worker counted."""
        counts = connector_output.kv_connector_worker_meta
        if self._scheduler is not None:
            self._scheduler.counted(counts if isinstance(counts, StepCounts) else None)

    def request_finished(
        self, request: Request, block_ids: Sequence[int]
    ) -> tuple[bool, dict[str, dict[str, str | int]] | None]:
        """Return that the blocks are not needed any more, and what goes into the answer."""
        return False, None if self._scheduler is None else self._scheduler.finished(request)

    def request_finished_all_groups(
        self, request: Request, block_ids: Sequence[Sequence[int]]
    ) -> tuple[bool, dict[str, dict[str, str | int]] | None]:
        """Do the same for a model with several groups of KV caches."""
        return self.request_finished(request, block_ids[self._group.index])

    def shutdown(self) -> None:
        """Send what waits."""
        if self._scheduler is not None:
            self._scheduler.close()

    # Metrics

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, object] | None = None) -> KVConnectorStats:
        """Return statistics from the form in which they travel."""
        return UnionStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: Mapping[type, type],
        labelnames: Sequence[str],
        per_engine_labelvalues: Mapping[int, Sequence[object]],
    ) -> UnionMetrics:
        """Return the metrics for vLLM's page."""
        return UnionMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
