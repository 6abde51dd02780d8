"""A file of prompts: one JSON object a line."""

import hashlib
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
    label
        Its true category; None where nobody asks for one.
    """

    id: str
    text: str
    label: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFile:
    """The prompts of a file, and the hash of its bytes."""

    prompts: tuple[Prompt, ...]
    content_hash: str


def read_prompts(path: Path, *, label_field: str | None = None, limit: int | None = None) -> PromptFile:
    """Read a prompt file.

    Each line is an object with `text` and, where given, `id`; the line number stands for a missing id.

    Parameters
    ----------
    label_field
        Field that holds the category.
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
        prompt = _read_line(line, number, label_field)
        if prompt.id in prompts:
            raise InvalidTrace(field=f"line {number}: id", value=prompt.id, limit="unlike any before it")
        prompts[prompt.id] = prompt
    if not prompts:
        raise InvalidTrace(field="prompts", value=0, limit="at least 1")
    return PromptFile(prompts=tuple(prompts.values()), content_hash=hashlib.sha256(data).hexdigest())


def _read_line(line: str, number: int, label_field: str | None) -> Prompt:
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

    return Prompt(
        id=text_of("id") if "id" in document else str(number),
        text=text_of("text"),
        label=None if label_field is None else text_of(label_field),
    )
