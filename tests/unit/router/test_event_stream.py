import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eldr_runtime.router.errors import UpstreamFailed
from eldr_runtime.router.event_stream import EventStream


def event(document: object, *, spaced: bool = False) -> bytes:
    separators = (", ", ": ") if spaced else (",", ":")
    return b"data: " + json.dumps(document, separators=separators).encode() + b"\n\n"


def text(content: str) -> dict[str, object]:
    return {"choices": [{"index": 0, "text": content}]}


def delta(**fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
DONE = b"data: [DONE]\n\n"


def stream(*, is_usage_wanted: bool = False) -> EventStream:
    return EventStream(worker_id="decode-0", is_usage_wanted=is_usage_wanted)


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize(
    ("document", "has_content"),
    [
        (text("a"), True),
        (text('"'), True),
        (text(""), False),
        (delta(role="assistant", content=""), False),
        (delta(content="a"), True),
        (delta(reasoning_content="a"), True),
        (delta(tool_calls=[{"index": 0}]), True),
        (delta(tool_calls=[]), False),
        (delta(content=None), False),
        (text('"content":"'), True),
        (delta(note='"content":"x'), False),
        (USAGE, False),
    ],
)
def test_what_counts_as_content(document: object, has_content: bool, spaced: bool) -> None:
    reader = stream()
    reader.feed(event(document, spaced=spaced))
    assert reader.has_content is has_content


def test_usage_is_read_and_kept_from_a_client_that_did_not_ask() -> None:
    reader = stream()
    assert reader.feed(event(text("a")) + event(USAGE) + DONE) == event(text("a")) + DONE
    assert (reader.prompt_tokens, reader.completion_tokens, reader.is_done) == (7, 3, True)


def test_usage_goes_to_a_client_that_asked() -> None:
    reader = stream(is_usage_wanted=True)
    assert reader.feed(event(USAGE) + DONE) == event(USAGE) + DONE
    assert reader.completion_tokens == 3


def test_usage_in_a_chunk_with_content_stays_there() -> None:
    both = text("a") | {"usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    reader = stream()
    assert reader.feed(event(both)) == event(both)
    assert reader.completion_tokens == 1


def test_an_empty_usage_is_passed_on_unread() -> None:
    reader = stream()
    assert reader.feed(event(text("a") | {"usage": None})) == event(text("a") | {"usage": None})
    assert reader.completion_tokens is None


def test_an_error_ends_what_is_passed_on() -> None:
    reader = stream()
    data = event(text("a")) + event({"error": {"message": "out of memory"}}) + event(text("b")) + DONE
    assert reader.feed(data) == event(text("a"))
    assert (reader.error, reader.is_done) == ("out of memory", False)
    assert reader.feed(DONE) == b""


def test_nothing_is_passed_on_after_done() -> None:
    reader = stream()
    reader.feed(DONE)
    assert reader.feed(event(text("late"))) == b""


def test_an_event_without_end_is_refused() -> None:
    with pytest.raises(UpstreamFailed, match="over 1048576 bytes"):
        stream().feed(b"data: " + b"x" * (1 << 20))


@given(st.lists(st.integers(1, 60), max_size=12), st.booleans())
def test_however_the_bytes_are_cut_the_client_gets_the_same(cuts: list[int], is_usage_wanted: bool) -> None:
    whole = event(text("one")) + event(text('two "quoted"')) + event(USAGE) + DONE
    expected = whole if is_usage_wanted else whole.replace(event(USAGE), b"")
    reader = stream(is_usage_wanted=is_usage_wanted)
    given_out, start = b"", 0
    for length in [*cuts, len(whole)]:
        given_out += reader.feed(whole[start : start + length])
        start += length
    assert given_out == expected
    assert (reader.is_done, reader.completion_tokens) == (True, 3)
