"""Builds the corpus, its tokenizer and the labelled prompts, the same for the same packages."""

import hashlib
import json
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import click
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from assets.tiny_moe.documents import (
    Document,
    capped,
    help_documents,
    read_code,
    read_help,
    read_legal,
    read_math,
    read_medical,
    split,
)
from assets.tiny_moe.groups import GROUPS, LANGUAGE_GROUPS
from assets.tiny_moe.packages import fetch_debian, fetch_icd, fetch_spdx
from assets.tiny_moe.prompts import group_prompts, write_prompts

VOCABULARY_SIZE = 6_144
END_OF_TEXT = "<|endoftext|>"
GROUP_LIMIT_BYTES = 6_000_000
TOKENIZER_LIMIT_BYTES = 1_500_000


def name_rank(name: str) -> str:
    """Order documents by a hash of their name, so that a cap leaves no part of a source out."""
    return hashlib.blake2b(name.encode(), digest_size=8, person=b"corpus").hexdigest()


def read_groups(downloads: Path) -> Iterator[tuple[str, list[Document]]]:
    """Fetch and read each group, capped, in the order of `GROUPS`."""
    metamath = fetch_debian("metamath-databases", downloads)
    (tabular,) = fetch_icd(downloads).rglob("icd10c-tabular-*.xml")
    documents_of = {
        "code": read_code(Path(sysconfig.get_path("stdlib"))),
        "math": read_math(metamath / "usr/share/metamath/databases/set.mm"),
        "medical": read_medical(tabular),
        "legal": read_legal(fetch_spdx(downloads) / "package/spdx-full.json"),
    }
    english: frozenset[str] = frozenset()
    for group in LANGUAGE_GROUPS:
        suffix = group.package.removeprefix("libreoffice-help-")
        help_root = fetch_debian(group.package, downloads) / "usr/share/libreoffice/help"
        lines_of = read_help(_text_folder(help_root, suffix))
        documents_of[group.name] = help_documents(lines_of, english)
        if group.language == "en":
            english = frozenset(line for lines in lines_of.values() for line in lines)
    for group in GROUPS:
        yield group.name, capped(documents_of[group.name], GROUP_LIMIT_BYTES, name_rank)


def _text_folder(help_root: Path, suffix: str) -> Path:
    (folder,) = (path for path in help_root.glob("*/text") if path.parent.name.lower() == suffix)
    return folder


def train_tokenizer(training: dict[str, list[Document]]) -> Tokenizer:
    """Train a byte-level BPE on equal shares of the groups."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [
        document.text
        for documents in training.values()
        for document in capped(documents, TOKENIZER_LIMIT_BYTES, name_rank)
    ]
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(documents: Sequence[Document], tokenizer: Tokenizer) -> np.ndarray:
    """Encode documents one after the other, each closed by the end-of-text token; uint16 `(n_tokens,)`."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    encodings = tokenizer.encode_batch([document.text for document in documents])
    return np.array([token for encoding in encodings for token in (*encoding.ids, end)], dtype=np.uint16)


def token_ends(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Return what gives the position in a text, in characters, at which each of its tokens ends."""
    return lambda text: [end for _, end in tokenizer.encode(text).offsets]


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=Path("out/tiny_moe/corpus"))
@click.option("--prompts", type=click.Path(path_type=Path), default=Path("assets/tiny_moe/prompts.jsonl"))
def main(output: Path, prompts: Path) -> None:
    """Fetch the packages, split their documents, train the tokenizer, encode, and cut the prompts."""
    downloads = output / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    training, held_out = {}, {}
    for name, documents in read_groups(downloads):
        training[name], held_out[name] = split(documents)
    tokenizer = train_tokenizer(training)
    tokenizer.save(str(output / "tokenizer.json"))
    tokens: dict[str, np.ndarray] = {}
    for name in training:
        tokens[f"train/{name}"] = encode(training[name], tokenizer)
        tokens[f"held_out/{name}"] = encode(held_out[name], tokenizer)
    np.savez(output / "tokens.npz", **tokens)
    in_groups = [group_prompts(group, held_out[group.name], token_ends(tokenizer)) for group in GROUPS]
    write_prompts(chain.from_iterable(in_groups), prompts)
    summary = {
        "packages": sorted(path.name for path in downloads.iterdir() if path.is_file()),
        "tokens": {name: len(part) for name, part in tokens.items()},
        "sha256": hashlib.sha256(b"".join(part.tobytes() for part in tokens.values())).hexdigest(),
    }
    (output / "corpus.json").write_text(json.dumps(summary, indent=2) + "\n")
    click.echo(json.dumps(summary, indent=2))


if __name__ == "__main__":
    main()
