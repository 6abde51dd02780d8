"""What a worker understands of an OpenAI request body; tokens are words separated by white space."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.json_values import parse_json

MAX_MODEL_TOKENS = 32_768
DEFAULT_MAX_TOKENS = 16  # vLLM's for completions; its chat default is the rest of the context

JsonObject = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A completion or chat completion, checked. `tokens` stand for the prompt: words, or ids as text."""

    model: str | None
    prompt: str
    tokens: tuple[str, ...]
    max_tokens: int
    is_chat: bool
    is_streamed: bool
    includes_usage: bool
    kv_transfer_params: JsonObject | None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.tokens)

    @property
    def prompt_hash(self) -> int:
        """A hash of the prompt that is the same in every process."""
        return int.from_bytes(hashlib.blake2b(self.prompt.encode(), digest_size=8).digest())


def parse_generation_request(body: bytes, *, is_chat: bool) -> GenerationRequest:
    """Return the request of this body; InvalidMessage names what it breaks."""
    document = _object("body", parse_json(body))
    prompt, tokens = _chat_prompt(document) if is_chat else _completion_prompt(document)
    _refuse_half_pairs("messages" if is_chat else "prompt", prompt)
    max_tokens = _max_tokens(document)
    n_context = len(tokens) + max_tokens
    if n_context > MAX_MODEL_TOKENS:
        limit = f"at most {MAX_MODEL_TOKENS} with the prompt, the model's maximum context length"
        raise InvalidMessage(field="max_tokens", value=n_context, limit=limit)
    _refuse_other_than(document, "n", 1)
    options = _object("stream_options", document.get("stream_options") or {})
    params = document.get("kv_transfer_params")
    model = document.get("model")
    return GenerationRequest(
        model=model if isinstance(model, str) else None,
        prompt=prompt,
        tokens=tokens,
        max_tokens=max_tokens,
        is_chat=is_chat,
        is_streamed=_flag(document, "stream"),
        includes_usage=_flag(options, "include_usage"),
        kv_transfer_params=None if params is None else _object("kv_transfer_params", params),
    )


def _object(field: str, value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise InvalidMessage(field=field, value=value, limit="a JSON object")
    return value


def _flag(document: JsonObject, field: str) -> bool:
    value = document.get(field)
    if value is not None and not isinstance(value, bool):
        raise InvalidMessage(field=field, value=value, limit="true or false")
    return bool(value)


def _max_tokens(document: JsonObject) -> int:
    for field in ("max_completion_tokens", "max_tokens"):
        value = document.get(field)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidMessage(field=field, value=value, limit="an integer of at least 1")
        return value
    return DEFAULT_MAX_TOKENS


def _refuse_other_than(document: JsonObject, field: str, allowed: int) -> None:
    value = document.get(field)
    if value is not None and value != allowed:
        raise InvalidMessage(
            field=field, value=value, limit=f"{allowed}: the simulated worker knows no other"
        )


def _refuse_half_pairs(field: str, prompt: str) -> None:
    """Refuse half a surrogate pair as vLLM's tokenizer does; JSON may carry one."""
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        limit = "a text without half a surrogate pair"
        raise InvalidMessage(field=field, value=prompt[error.start], limit=limit) from error


def _completion_prompt(document: JsonObject) -> tuple[str, tuple[str, ...]]:
    prompt = document.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt.strip():
        return prompt, tuple(prompt.split())
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        tokens = tuple(str(token) for token in prompt)
        return " ".join(tokens), tokens
    raise InvalidMessage(
        field="prompt", value=prompt, limit="a text with a word in it, or a list of token ids"
    )


def _chat_prompt(document: JsonObject) -> tuple[str, tuple[str, ...]]:
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidMessage(field="messages", value=messages, limit="a list with a message in it")
    prompt = "\n".join(_content(_object("messages", message).get("content")) for message in messages)
    tokens = tuple(prompt.split())
    if not tokens:
        raise InvalidMessage(field="messages", value=messages, limit="with a word in their contents")
    return prompt, tokens


def _content(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return " ".join(_text_part(part) for part in content)
    raise InvalidMessage(field="messages.content", value=content, limit="a text or a list of text parts")


def _text_part(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    if not isinstance(text, str):
        raise InvalidMessage(field="messages.content", value=part, limit='{"type": "text", "text": ...}')
    return text
