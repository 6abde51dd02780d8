import json

import pytest

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.simulated_fleet.generation_request import GenerationRequest, parse_generation_request


def parse(is_chat: bool = False, **fields: object) -> GenerationRequest:
    return parse_generation_request(json.dumps(fields).encode(), is_chat=is_chat)


def test_completion_counts_words_as_tokens() -> None:
    request = parse(
        prompt="one  two\nthree", max_tokens=5, stream=True, stream_options={"include_usage": True}
    )
    assert (request.prompt_tokens, request.max_tokens) == (3, 5)
    assert request.is_streamed
    assert request.includes_usage


def test_completion_takes_token_ids_and_a_list_of_one() -> None:
    assert parse(prompt=[4, 5]).tokens == ("4", "5")
    assert parse(prompt=[[4, 5, 6]]).prompt_tokens == 3
    assert parse(prompt=["a b"]).tokens == ("a", "b")


def test_chat_joins_its_messages() -> None:
    parts = [{"type": "text", "text": "profile 3"}]
    request = parse(
        True, messages=[{"role": "system", "content": "be brief"}, {"role": "user", "content": parts}]
    )
    assert request.prompt == "be brief\nprofile 3"
    assert request.prompt_tokens == 4


@pytest.mark.parametrize(
    ("is_chat", "fields", "field"),
    [
        (False, {"prompt": "a \ud800"}, "prompt"),
        (True, {"messages": [{"role": "user", "content": "\udfff"}]}, "messages"),
    ],
)
def test_half_a_surrogate_pair_is_refused(is_chat: bool, fields: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        parse(is_chat, **fields)
    assert refused.value.field == field


def test_defaults_are_vllms() -> None:
    request = parse(prompt="a")
    assert (request.max_tokens, request.is_streamed, request.includes_usage) == (16, False, False)
    assert parse(prompt="a", max_tokens=3, max_completion_tokens=2).max_tokens == 2


def test_hash_depends_on_the_prompt_alone() -> None:
    assert parse(prompt="a b").prompt_hash == parse(prompt="a b", max_tokens=3).prompt_hash
    assert parse(prompt="a b").prompt_hash != parse(prompt="a c").prompt_hash


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"prompt": "  "}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": True}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 40_000}, "max_tokens"),
        ({"prompt": "a", "n": 2}, "n"),
        ({"prompt": "a", "stream": "yes"}, "stream"),
        ({"prompt": "a", "kv_transfer_params": [1]}, "kv_transfer_params"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidMessage) as refusal:
        parse(**fields)
    assert refusal.value.field == field


@pytest.mark.parametrize(
    "messages", [None, [], ["text"], [{"content": 3}], [{"content": [{"type": "image_url"}]}]]
)
def test_chat_without_text_is_refused(messages: object) -> None:
    with pytest.raises(InvalidMessage):
        parse(True, messages=messages)


@pytest.mark.parametrize("body", [b"", b"[1]", b"{"])
def test_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidMessage):
        parse_generation_request(body, is_chat=False)
