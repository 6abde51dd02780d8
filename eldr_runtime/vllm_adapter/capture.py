"""Takes the experts of every token from vLLM's own router, inside the forward pass."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from vllm.config import VllmConfig
from vllm.forward_context import get_forward_context, is_forward_context_available

from eldr_runtime.errors import UnsupportedEngine
from eldr_runtime.vllm_adapter.slot_table import SlotTable

Hook: TypeAlias = Callable[[torch.Tensor], None]


def bind_capture(vllm_config: VllmConfig, table: SlotTable, attention_layer: str) -> None:
    """Put a hook on the router of every layer that has experts; what was hooked there goes on being called.

    Parameters
    ----------
    vllm_config
        Of the worker whose model is loaded.
    table
        Where the ids go.
    attention_layer
        A layer of the KV cache group whose slots index the table.
    """
    compilation = vllm_config.compilation_config
    for index, name in enumerate(compilation.static_all_moe_layers):
        layer = compilation.static_forward_context[name]
        router = getattr(layer, "router", None)
        if router is None or not hasattr(router, "set_capture_fn"):
            raise UnsupportedEngine(f"layer {name} has no router that tells its choice")
        if getattr(layer, "is_monolithic", False):
            raise UnsupportedEngine(f"layer {name} routes inside its kernel, where no hook sees the choice")
        before = getattr(router, "capture_fn", None)
        router.set_capture_fn(_hook(table, index, attention_layer, before))


def _hook(table: SlotTable, layer: int, attention_layer: str, before: Hook | None) -> Hook:
    def capture(topk_ids: torch.Tensor) -> None:
        if before is not None:
            before(topk_ids)
        slots = _slots(attention_layer)
        # Tokens that were split or gathered among ranks do not line up with the slots: they stay unknown.
        if slots is not None and slots.shape[0] == topk_ids.shape[0]:
            table.record(layer, slots, topk_ids)

    return capture


def _slots(attention_layer: str) -> torch.Tensor | None:
    """Return the slots of this forward pass, int64 `(n_tokens,)`; None for one that writes no KV."""
    if not is_forward_context_available():
        return None
    mapping = get_forward_context().slot_mapping
    if not isinstance(mapping, dict):
        return None
    slots: torch.Tensor | None = mapping.get(attention_layer)
    return slots
