import json

import pytest

from eldr_runtime.simulated_fleet.answer_reader import AnswerReader
from eldr_runtime.simulated_fleet.generation_request import parse_generation_request
from eldr_runtime.simulated_fleet.vllm_answers import DONE_EVENT, AnswerWriter, words_of


def writer(*, is_chat: bool) -> AnswerWriter:
    fields = {"messages": [{"role": "user", "content": "a b"}]} if is_chat else {"prompt": "a b"}
    request = parse_generation_request(json.dumps(fields).encode(), is_chat=is_chat)
    return AnswerWriter(request=request, answer_id="x", model="m", created_unix_seconds=7)


def chunk(text: str, *, is_chat: bool = False, is_last: bool = False) -> bytes:
    before, after, after_last = writer(is_chat=is_chat).chunk_ends()
    return before + text.encode() + (after_last if is_last else after)


@pytest.mark.parametrize("is_chat", [False, True])
def test_whole_stream_as_the_worker_writes_it(is_chat: bool) -> None:
    answer = writer(is_chat=is_chat)
    reader = AnswerReader()
    if is_chat:
        reader.feed(answer.role_event(), 0.5)
        assert reader.first_content_seconds is None
    reader.feed(chunk(" river", is_chat=is_chat), 1.0)
    reader.feed(chunk(" stone light", is_chat=is_chat, is_last=True), 2.0)
    reader.feed(answer.usage_event(3) + DONE_EVENT, 2.5)
    assert (reader.first_content_seconds, reader.last_content_seconds) == (1.0, 2.0)
    assert reader.completion_tokens == 3
    assert reader.failure(3) is None
    assert reader.failure(4) == "wrong token count: usage says 3, asked for 4"


@pytest.mark.parametrize("is_chat", [False, True])
def test_chunks_are_vllms_json(is_chat: bool) -> None:
    document = json.loads(chunk(" river", is_chat=is_chat, is_last=True).removeprefix(b"data: "))
    choice = document["choices"][0]
    assert choice["finish_reason"] == "length"
    assert (choice["delta"]["content"] if is_chat else choice["text"]) == " river"
    assert document["object"] == ("chat.completion.chunk" if is_chat else "text_completion")
    assert set(document) >= {"id", "object", "created", "model", "choices"}


def test_bytes_may_be_cut_anywhere() -> None:
    data = chunk(" a") + chunk(" b", is_last=True) + writer(is_chat=False).usage_event(2) + DONE_EVENT
    for size in (1, 7, 64):
        reader = AnswerReader()
        for start in range(0, len(data), size):
            reader.feed(data[start : start + size], float(start))
        assert reader.failure(2) is None
        assert reader.first_content_seconds < reader.last_content_seconds


def test_cut_stream_is_a_failure() -> None:
    reader = AnswerReader()
    reader.feed(chunk(" a"), 1.0)
    assert reader.failure(1) == "cut stream: it ended without [DONE]"


def test_error_event_is_a_failure_even_with_done_after_it() -> None:
    reader = AnswerReader()
    reader.feed(b'event: error\ndata: {"error": {"message": "data: worker lost"}}\n\n' + DONE_EVENT, 1.0)
    assert reader.failure(1) == "error event: data: worker lost"


def test_text_that_looks_like_an_error_is_none() -> None:
    reader = AnswerReader()
    text = json.dumps('{"error": "x", "usage": {"completion_tokens": 9}} [DONE]')[1:-1]
    reader.feed(chunk(text) + writer(is_chat=False).usage_event(1) + DONE_EVENT, 1.0)
    assert reader.failure(1) is None


def test_words_continue_where_the_last_chunk_ended() -> None:
    assert words_of(0, 20) == words_of(0, 5) + words_of(5, 15)
    assert len(words_of(3, 9).split()) == 9
