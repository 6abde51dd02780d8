"""Prompts cut from held-out documents: from the start of a line, a fixed number of tokens long."""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from pathlib import Path

from assets.tiny_moe.documents import Document
from assets.tiny_moe.groups import Group

PROMPT_TOKENS = 160
PROMPTS_PER_GROUP = 120
# Addresses of people, of machines and of the web are nobody's prompt.
_NOT_SHIPPED = re.compile(r"\S@\S+\.\w|https?://|www\.|/(?:home|root|usr)/|\.org\b|\.com\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPrompt:
    """A prompt to be written; `source` is the package, as assets/NOTICE names it, and the document."""

    id: str
    group: str
    task: str
    language: str
    text: str
    source: str


def group_prompts(
    group: Group, documents: Sequence[Document], token_ends: Callable[[str], Sequence[int]]
) -> list[LabelledPrompt]:
    """Cut the prompts of a group, a document in turn.

    Parameters
    ----------
    group, documents
        The group and its held-out documents.
    token_ends
        Gives the position in a text at which each of its tokens ends.

    Raises
    ------
    ValueError
        Fewer than `PROMPTS_PER_GROUP` can be cut.
    """
    by_document = [
        [(document, text) for text in excerpts(document.text, token_ends(document.text))]
        for document in documents
    ]
    in_turn = [found for found in chain.from_iterable(zip_longest(*by_document)) if found is not None]
    if len(in_turn) < PROMPTS_PER_GROUP:
        raise ValueError(f"{len(in_turn)} prompts in group {group.name}; {PROMPTS_PER_GROUP} are needed")
    return [
        LabelledPrompt(
            id=f"{group.name}-{number:03d}",
            group=group.name,
            task=group.task,
            language=group.language,
            text=text,
            source=f"{group.package}: {document.name}",
        )
        for number, (document, text) in enumerate(in_turn[:PROMPTS_PER_GROUP])
    ]


def excerpts(text: str, token_ends: Sequence[int], n_tokens: int = PROMPT_TOKENS) -> list[str]:
    r"""Cut a text in excerpts of `n_tokens` tokens, each from the start of a line, none overlapping.

    Examples
    --------
    >>> excerpts("a b\nc d\n", [1, 3, 4, 5, 7, 8], n_tokens=2)
    ['a b', 'c d']
    """
    found = []
    start, first = 0, 0
    while first + n_tokens <= len(token_ends):
        excerpt = text[start : token_ends[first + n_tokens - 1]]
        if not _NOT_SHIPPED.search(excerpt):
            found.append(excerpt)
        newline = text.find("\n", token_ends[first + n_tokens - 1] - 1)
        if newline < 0:
            break
        start = newline + 1
        first = bisect_right(token_ends, start)
    return found


def write_prompts(prompts: Iterable[LabelledPrompt], path: Path) -> None:
    """Write the file that `eldr_runtime.prompt_file` reads."""
    path.write_text("".join(json.dumps(asdict(prompt), ensure_ascii=False) + "\n" for prompt in prompts))
