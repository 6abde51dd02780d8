import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.policies.choice import Reason
from eldr_runtime.routing_event import Outcome, RoutingEvent, most_similar

EVENT = RoutingEvent(
    request_id="r-1",
    at=datetime(2026, 1, 31, 12, tzinfo=UTC),
    arm="eldr",
    generation=41,
    version="ab" * 32,
    prefill_worker="prefill-0",
    decode_worker="decode-1",
    cluster=3,
    similarities={"decode-1": 0.75, "decode-0": 0.5},
    band=("decode-1",),
    in_flight={"decode-0": 2, "decode-1": 5},
    reason=Reason.WITHIN_BAND,
    ttft_ms=120.5,
    tpot_ms=11.25,
    prompt_tokens=900,
    output_tokens=128,
    outcome=Outcome.COMPLETED,
)


def test_the_fields_by_hand() -> None:
    written = json.loads(EVENT.to_json())
    assert list(written) == [
        *["v", "request_id", "at", "arm", "generation", "version", "prefill_worker", "decode_worker"],
        *["cluster", "similarities", "band", "in_flight", "reason", "ttft_ms", "tpot_ms"],
        *["prompt_tokens", "output_tokens", "outcome", "counts", "decode_counts", "decode_steps"],
    ]
    assert written["at"] == "2026-01-31T12:00:00Z"
    assert (written["reason"], written["outcome"]) == ("within_band", "completed")


def test_the_8_most_similar_workers() -> None:
    names = [f"w{i}" for i in range(10)]
    similarities = np.array([0.1, 0.9, 0.5, 0.5, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8], dtype=np.float32)
    top = most_similar(names, similarities)
    assert list(top) == ["w1", "w9", "w8", "w7", "w2", "w3", "w6", "w5"]
    assert top["w1"] == 0.9
    assert most_similar(names, None) == {}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"request_id": ""}, "$.request_id"),
        ({"at": "2026-01-31T12:00:00"}, "$.at"),
        ({"generation": -1}, "$.generation"),
        ({"decode_steps": 3}, "$.decode_steps"),
        ({"output_tokens": -1}, "$.output_tokens"),
        ({"ttft_ms": -1.0}, "$.ttft_ms"),
        ({"similarities": {f"w{i}": 0.5 for i in range(9)}}, "$.similarities"),
        ({"similarities": {"w0": None}}, "$.similarities.w0"),
        ({"reason": "mood"}, "$.reason"),
        ({"outcome": "mood"}, "$.outcome"),
        ({"counts": {"v": 1}}, "$.counts.counts"),
        ({"v": 3}, "$.v"),
    ],
)
def test_refuses(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        RoutingEvent.from_json(json.dumps(json.loads(EVENT.to_json()) | change))
    assert refused.value.field == field


def test_refuses_an_event_made_in_code() -> None:
    with pytest.raises(InvalidMessage, match="tpot_ms"):
        replace(EVENT, tpot_ms=float("nan"))
    with pytest.raises(InvalidMessage, match="at is"):
        replace(EVENT, at=datetime(2026, 1, 1))  # noqa: DTZ001


@settings(max_examples=60, deadline=None)
@given(
    event=st.builds(
        RoutingEvent,
        v=st.just(1),
        request_id=st.text(min_size=1),
        at=st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
        arm=st.text(),
        generation=st.integers(0, 2**53),
        version=st.none() | st.text(),
        prefill_worker=st.none() | st.text(),
        decode_worker=st.none() | st.text(),
        cluster=st.none() | st.integers(0, 4096),
        similarities=st.dictionaries(st.text(), st.floats(-1, 1), max_size=8),
        band=st.lists(st.text()).map(tuple),
        in_flight=st.dictionaries(st.text(), st.integers(0)),
        reason=st.none() | st.sampled_from(Reason),
        ttft_ms=st.none() | st.floats(0, 1e6),
        tpot_ms=st.none() | st.floats(0, 1e6),
        prompt_tokens=st.integers(0),
        output_tokens=st.integers(0),
        outcome=st.sampled_from(Outcome),
        counts=st.none(),
    )
)
def test_round_trip(event: RoutingEvent) -> None:
    assert RoutingEvent.from_json(event.to_json()) == event
