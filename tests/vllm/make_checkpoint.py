"""Writes a tiny mixture-of-experts model of random weights into a folder: `make_checkpoint.py FOLDER`."""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

END = 256


def main(folder: Path) -> None:
    torch.manual_seed(7)
    config = Qwen3MoeConfig(
        vocab_size=320, hidden_size=128, intermediate_size=256, moe_intermediate_size=32, num_hidden_layers=6,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, num_experts=64, num_experts_per_tok=4,
        norm_topk_prob=True, max_position_embeddings=4096, decoder_sparse_step=1, tie_word_embeddings=True,
        initializer_range=0.1, eos_token_id=END, bos_token_id=None, dtype="float32",
    )  # fmt: skip
    Qwen3MoeForCausalLM(config).float().save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(folder)


main(Path(sys.argv[1]))
