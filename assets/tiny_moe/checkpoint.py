"""The checkpoint: Hugging Face's `Qwen3MoeForCausalLM`, in bfloat16, with its tokenizer."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from assets.tiny_moe.build_corpus import END_OF_TEXT
from assets.tiny_moe.model import TinyMoe, TinyMoeConfig

MAX_BYTES = 12_000_000
_STACKED = ("gate_proj", "up_proj", "down_proj")


def load_weights(path: Path) -> TinyMoe:
    """Load what training wrote, rounded to bfloat16 as a checkpoint holds it; computes in float32."""
    model = TinyMoe(TinyMoeConfig())
    model.load_state_dict({name: tensor.bfloat16().float() for name, tensor in load_file(path).items()})
    return model.eval()


def write_checkpoint(model: TinyMoe, tokenizer: Path, folder: Path) -> None:
    """Write weights, configuration and tokenizer.

    Raises
    ------
    ValueError
        The weights take `MAX_BYTES` or more.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, tensor in model.state_dict().items():
        tensors.update(_hugging_face_tensors(f"model.{name}", tensor.bfloat16()))
    weights = folder / "model.safetensors"
    save_file(tensors, weights, metadata={"format": "pt"})
    if weights.stat().st_size >= MAX_BYTES:
        raise ValueError(f"the weights take {weights.stat().st_size} bytes; the limit is {MAX_BYTES}")
    _write_json(folder / "config.json", hugging_face_config(model.config))
    _write_json(folder / "generation_config.json", {"do_sample": True, "temperature": 0.8, "eos_token_id": 0})
    special = {
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "model_max_length": model.config.max_positions,
    }
    _write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **special})
    shutil.copyfile(tokenizer, folder / "tokenizer.json")


def load_checkpoint(folder: Path) -> TinyMoe:
    """Load a checkpoint as the model it was trained as; computes in float32."""
    written = json.loads((folder / "config.json").read_text())
    if written != hugging_face_config(TinyMoeConfig()):
        raise ValueError(f"{folder / 'config.json'} is not this model's configuration")
    tensors = load_file(folder / "model.safetensors")
    model = TinyMoe(TinyMoeConfig())
    model.load_state_dict(
        {
            name: _from_hugging_face(f"model.{name}", tensors, like)
            for name, like in model.state_dict().items()
        }
    )
    return model.eval()


def hugging_face_config(config: TinyMoeConfig) -> dict[str, object]:
    """Describe the model as `config.json` does."""
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.n_layers,
        "num_experts": config.n_experts,
        "num_experts_per_tok": config.top_k,
        "norm_topk_prob": True,
        "moe_intermediate_size": config.expert_width,
        "intermediate_size": config.expert_width,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_width,
        "attention_bias": False,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rope_theta,
        "max_position_embeddings": config.max_positions,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "eos_token_id": 0,
        "dtype": "bfloat16",
    }


def _hugging_face_tensors(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Name a tensor as Hugging Face does, a stack of experts as one tensor each."""
    path, _, last = name.rpartition(".")
    if last == "router":
        return {f"{path}.gate.weight": tensor}
    if last in _STACKED:
        return {f"{path}.experts.{e}.{last}.weight": part.clone() for e, part in enumerate(tensor)}
    return {name: tensor}


def _from_hugging_face(name: str, tensors: dict[str, Tensor], like: Tensor) -> Tensor:
    parts = [tensors[key].float() for key in _hugging_face_tensors(name, like)]
    return torch.stack(parts) if name.rpartition(".")[2] in _STACKED else parts[0]


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
