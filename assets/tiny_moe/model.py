"""The model: Qwen3's mixture-of-experts architecture, small, returning which experts each token used."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyMoeConfig:
    """Sizes of the model: the sparsity of Qwen3-30B-A3B, and experts as narrow as vLLM's CPU kernel takes."""

    vocabulary_size: int = 6_144
    hidden_size: int = 128
    n_layers: int = 6
    n_experts: int = 64
    top_k: int = 4
    expert_width: int = 32
    n_heads: int = 4
    n_kv_heads: int = 2
    head_width: int = 32
    rope_theta: float = 10_000.0
    norm_epsilon: float = 1e-6
    max_positions: int = 2_048


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeOutput:
    """What a forward pass returns; `n_tokens` is batch times length.

    Attributes
    ----------
    hidden
        float32 `(n_batch, n_positions, hidden_size)`, normed: times the embedding, it is the logits.
    expert_ids
        int64 `(n_tokens, n_layers, top_k)`.
    router_probabilities
        float32 `(n_layers, n_experts)`, mean over tokens.
    """

    hidden: Tensor
    expert_ids: Tensor
    router_probabilities: Tensor


class KvCache:
    """Keys and values of one layer, each `(n_batch, n_kv_heads, n_positions, head_width)`; grows as used."""

    def __init__(self) -> None:
        self._kept: tuple[Tensor, Tensor] | None = None

    @property
    def n_positions(self) -> int:
        """Positions held."""
        return 0 if self._kept is None else self._kept[0].shape[2]

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append, and return all there are."""
        if self._kept is not None:
            keys = torch.cat([self._kept[0], keys], dim=2)
            values = torch.cat([self._kept[1], values], dim=2)
        self._kept = (keys, values)
        return keys, values


class Attention(nn.Module):
    """Grouped-query attention with normed queries and keys, and rotary positions."""

    def __init__(self, config: TinyMoeConfig) -> None:
        super().__init__()
        self.config = config
        query_width = config.n_heads * config.head_width
        kv_width = config.n_kv_heads * config.head_width
        self.q_proj = nn.Linear(config.hidden_size, query_width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(query_width, config.hidden_size, bias=False)
        self.q_norm = nn.RMSNorm(config.head_width, eps=config.norm_epsilon)
        self.k_norm = nn.RMSNorm(config.head_width, eps=config.norm_epsilon)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], cache: KvCache | None) -> Tensor:
        n_batch, n_positions, _ = x.shape
        heads = (n_batch, n_positions, -1, self.config.head_width)
        queries = _rotated(self.q_norm(self.q_proj(x).view(heads)).transpose(1, 2), rotation)
        keys = _rotated(self.k_norm(self.k_proj(x).view(heads)).transpose(1, 2), rotation)
        values = self.v_proj(x).view(heads).transpose(1, 2)
        if cache is not None:
            keys, values = cache.extend(keys, values)
        shared_by = self.config.n_heads // self.config.n_kv_heads
        mixed = functional.scaled_dot_product_attention(
            queries,
            keys.repeat_interleave(shared_by, dim=1),
            values.repeat_interleave(shared_by, dim=1),
            is_causal=n_positions > 1,
        )
        return self.o_proj(mixed.transpose(1, 2).reshape(n_batch, n_positions, -1))


class Experts(nn.Module):
    """Router and experts of one layer; weights as Hugging Face lays them out, stacked over experts."""

    def __init__(self, config: TinyMoeConfig) -> None:
        super().__init__()
        self.top_k = config.top_k
        shape = (config.n_experts, config.expert_width, config.hidden_size)
        self.router = nn.Parameter(torch.empty(config.n_experts, config.hidden_size))
        self.gate_proj = nn.Parameter(torch.empty(shape))
        self.up_proj = nn.Parameter(torch.empty(shape))
        self.down_proj = nn.Parameter(torch.empty(shape[0], shape[2], shape[1]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mix the experts of each token of `(n_tokens, hidden_size)`; also ids and mean probabilities."""
        probabilities = functional.softmax(x @ self.router.T, dim=-1)
        weights, ids = probabilities.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        # Sorted by expert, each expert's tokens are one slice: one pair of matrix products an expert.
        order = ids.flatten().argsort(stable=True)
        token = order // self.top_k
        n_tokens_of = ids.flatten().bincount(minlength=len(self.router)).tolist()
        gate_up = torch.cat([self.gate_proj, self.up_proj], dim=1)
        # unbind and split have one backward for all experts; indexing would zero-fill the whole for each.
        outputs = [
            _expert(part, first, second)
            for part, first, second in zip(
                x[token].split(n_tokens_of), gate_up.unbind(), self.down_proj.unbind(), strict=True
            )
        ]
        weighted = torch.cat(outputs) * weights.flatten()[order, None]
        return torch.zeros_like(x).index_add(0, token, weighted), ids, probabilities.mean(dim=0)


class Layer(nn.Module):
    """Attention, then experts, each normed before and added after."""

    def __init__(self, config: TinyMoeConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_epsilon)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_epsilon)
        self.mlp = Experts(config)

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], cache: KvCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = x + self.self_attn(self.input_layernorm(x), rotation, cache)
        mixed, ids, probabilities = self.mlp(self.post_attention_layernorm(x).flatten(0, 1))
        return x + mixed.view_as(x), ids, probabilities


class TinyMoe(nn.Module):
    """The language model, its output tied to its embedding."""

    def __init__(self, config: TinyMoeConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocabulary_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_epsilon)

    def initialise(self, seed: int) -> None:
        """Draw every matrix anew: the embedding with deviation 0.02, the others with `fan_in ** -0.5`."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                deviation = 0.02 if name == "embed_tokens.weight" else parameter.shape[-1] ** -0.5
                nn.init.normal_(parameter, std=deviation, generator=generator)

    def new_caches(self) -> list[KvCache]:
        """Return an empty cache for each layer."""
        return [KvCache() for _ in self.layers]

    def forward(self, tokens: Tensor, caches: list[KvCache] | None = None) -> MoeOutput:
        """Run int64 `(n_batch, n_positions)`; with caches, after the positions that they hold."""
        start = 0 if caches is None else caches[0].n_positions
        rotation = _rotation(self.config, start, tokens.shape[1])
        x = self.embed_tokens(tokens)
        ids, probabilities = [], []
        for index, layer in enumerate(self.layers):
            x, layer_ids, layer_probabilities = layer(x, rotation, None if caches is None else caches[index])
            ids.append(layer_ids)
            probabilities.append(layer_probabilities)
        return MoeOutput(
            hidden=self.norm(x),
            expert_ids=torch.stack(ids, dim=1),
            router_probabilities=torch.stack(probabilities),
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """Score every token of the vocabulary, `(..., vocabulary_size)`."""
        return hidden @ self.embed_tokens.weight.T


def _expert(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    gate, up = functional.linear(x, gate_up).chunk(2, dim=-1)
    return functional.linear(functional.silu(gate) * up, down)


def _rotation(config: TinyMoeConfig, start: int, n_positions: int) -> tuple[Tensor, Tensor]:
    half = torch.arange(0, config.head_width, 2) / config.head_width
    angles = torch.outer(torch.arange(start, start + n_positions).float(), config.rope_theta**-half)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def _rotated(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    cosine, sine = rotation
    return x * cosine + torch.cat([-second, first], dim=-1) * sine
