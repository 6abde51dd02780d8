"""A file of prompts: one JSON object a line."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eldr_runtime.errors import InvalidMessage, InvalidTrace
from eldr_runtime.json_values import parse_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt.

    Attributes
    ----------
    id
        Unlike any other of its file.
    text
        What is to be completed.
    fields
        Its other texts by name, such as its task and its language.
    """

    id: str
    text: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFile:
    """The prompts of a file, and the hash of its bytes."""

    prompts: tuple[Prompt, ...]
    content_hash: str


def read_prompts(path: Path, *, required: Sequence[str] = (), limit: int | None = None) -> PromptFile:
    """Read a prompt file.

    Each line is an object with `text` and, where given, `id`; the line number stands for a missing id.

    Parameters
    ----------
    required
        Fields that each line must have, as texts.
    limit
        Take the first so many prompts.

    Raises
    ------
    InvalidTrace
        Naming line and field of what is missing, not a text, or not the only one of its id.
    """
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidTrace(field=str(path), value=f"byte {error.start}", limit="UTF-8 text") from error
    prompts: dict[str, Prompt] = {}
    # Not splitlines: JSON may hold separators of Unicode as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if limit is not None and len(prompts) == limit:
            break
        if not line.strip():
            continue
        prompt = _read_line(line, number, required)
        if prompt.id in prompts:
            raise InvalidTrace(field=f"line {number}: id", value=prompt.id, limit="unlike any before it")
        prompts[prompt.id] = prompt
    if not prompts:
        raise InvalidTrace(field="prompts", value=0, limit="at least 1")
    return PromptFile(prompts=tuple(prompts.values()), content_hash=hashlib.sha256(data).hexdigest())


def _read_line(line: str, number: int, required: Sequence[str]) -> Prompt:
    try:
        document = parse_json(line)
    except InvalidMessage as error:
        raise InvalidTrace(field=f"line {number}", value=line[:60], limit="a JSON object") from error
    if not isinstance(document, dict):
        raise InvalidTrace(field=f"line {number}", value=line[:60], limit="a JSON object")

    def text_of(field: str) -> str:
        value = document.get(field)
        if not isinstance(value, str) or not value:
            raise InvalidTrace(field=f"line {number}: {field}", value=value, limit="a text that is not empty")
        return value

    for field in ("text", *required):
        text_of(field)
    return Prompt(
        id=text_of("id") if "id" in document else str(number),
        text=text_of("text"),
        fields={
            name: value
            for name, value in document.items()
            if isinstance(value, str) and name not in ("id", "text")
        },
    )
