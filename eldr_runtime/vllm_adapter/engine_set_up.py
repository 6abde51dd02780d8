"""Reads from vLLM's configuration what the plugin has to know of its engine."""

from dataclasses import dataclass

from vllm.config import VllmConfig
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheSpec, UniformTypeKVCacheSpecs

from eldr_runtime.errors import UnsupportedEngine
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.vllm_adapter.self_test import EngineSetUp


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGroup:
    """The KV cache group by whose slots ids are kept: its index, a layer of it, and its block size."""

    index: int
    layer: str
    block_size: int


def read_set_up(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> EngineSetUp:
    """Return how the engine was started."""
    parallel = vllm_config.parallel_config
    return EngineSetUp(
        tensor_parallel_size=parallel.tensor_parallel_size,
        pipeline_parallel_size=parallel.pipeline_parallel_size,
        data_parallel_size=parallel.data_parallel_size,
        context_parallel_size=(
            parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size
        ),
        is_expert_parallel=parallel.enable_expert_parallel,
        is_expert_load_balanced=parallel.enable_eplb,
        is_speculative=vllm_config.speculative_config is not None,
        is_async_scheduled=bool(vllm_config.scheduler_config.async_scheduling),
        is_micro_batched=parallel.enable_dbo or parallel.ubatch_size > 1,
        is_compiled_on_cpu=current_platform.is_cpu() and not vllm_config.model_config.enforce_eager,
        n_experts=vllm_config.model_config.get_num_experts(),
        has_full_attention=_find_group(kv_cache_config) is not None,
    )


def served_name(vllm_config: VllmConfig, name: str | None) -> str:
    """Return `name`, or the first of those by which the model is served."""
    served = vllm_config.model_config.served_model_name
    return name or (served if isinstance(served, str) else served[0])


def served_shape(vllm_config: VllmConfig, name: str | None) -> ModelShape:
    """Return the shape of the model; known in the worker alone, and only when the model is loaded."""
    model = vllm_config.model_config
    return ModelShape(
        model=served_name(vllm_config, name),
        n_layers=len(vllm_config.compilation_config.static_all_moe_layers),
        n_experts=model.get_num_experts(),
        top_k=model.get_num_experts_per_tok(),
    )


def table_group(kv_cache_config: KVCacheConfig) -> TableGroup:
    """Return the group by whose slots ids are kept."""
    group = _find_group(kv_cache_config)
    if group is None:
        raise UnsupportedEngine("no KV cache group keeps every token")
    return group


def _find_group(kv_cache_config: KVCacheConfig) -> TableGroup | None:
    for index, group in enumerate(kv_cache_config.kv_cache_groups):
        if _keeps_every_token(group.kv_cache_spec) and group.layer_names:
            return TableGroup(
                index=index, layer=group.layer_names[0], block_size=group.kv_cache_spec.block_size
            )
    return None


def _keeps_every_token(spec: KVCacheSpec) -> bool:
    if isinstance(spec, UniformTypeKVCacheSpecs):
        return all(_keeps_every_token(inner) for inner in spec.kv_cache_specs.values())
    return isinstance(spec, FullAttentionSpec) and getattr(spec, "sliding_window", None) is None
