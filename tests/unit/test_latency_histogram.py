import base64
import math
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.errors import InvalidMessage, InvalidValue
from eldr_runtime.latency_histogram import LatencyHistogram

quick = settings(max_examples=50, deadline=None)
latencies = st.lists(st.floats(0.001, 3_600_000), max_size=30)


def record(values_ms: list[float]) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for value in values_ms:
        histogram.record_ms(value)
    return histogram


def wrap(payload: bytes) -> str:
    """Put a payload into the outer frame, as an attacker who knows the format would."""
    packed = zlib.compress(payload)
    outer = base64.b64decode(LatencyHistogram().to_base64())[:4] + struct.pack(">I", len(packed))
    return base64.b64encode(outer + packed).decode()


def payload_of(histogram: LatencyHistogram) -> bytes:
    return zlib.decompress(base64.b64decode(histogram.to_base64())[8:])


def test_by_hand() -> None:
    histogram = record([1.0, 2.0, 3.0, 4.0])
    assert histogram.count == 4
    assert [histogram.quantile_ms(q) for q in (0, 0.25, 0.26, 0.5, 0.75, 1)] == pytest.approx(
        [1, 1, 2, 2, 3, 4], rel=1e-3
    )
    assert histogram.mean_ms() == pytest.approx(2.5, rel=1e-3)


def test_nothing_recorded_has_no_quantile() -> None:
    assert LatencyHistogram().count == 0
    assert LatencyHistogram().quantile_ms(0.5) is None
    assert LatencyHistogram().mean_ms() is None


def test_the_ends_of_the_range() -> None:
    histogram = record([0, 0.0001, 10 * 3_600_000])
    assert histogram.count == 3
    assert histogram.quantile_ms(0) == 0.001
    assert histogram.quantile_ms(1) == pytest.approx(3_600_000, rel=1e-3)


@pytest.mark.parametrize("latency_ms", [-0.1, math.nan, math.inf])
def test_refuses_a_latency(latency_ms: float) -> None:
    with pytest.raises(InvalidValue, match="latency_ms"):
        LatencyHistogram().record_ms(latency_ms)


@pytest.mark.parametrize("quantile", [-0.1, 1.1, math.nan])
def test_refuses_a_quantile(quantile: float) -> None:
    with pytest.raises(InvalidValue, match="quantile"):
        record([1]).quantile_ms(quantile)


@quick
@given(values=st.lists(st.floats(0.001, 3_600_000), min_size=1, max_size=50), quantile=st.floats(0, 1))
def test_quantiles_are_within_a_thousandth_of_the_nearest_rank(values: list[float], quantile: float) -> None:
    rank = max(1, math.ceil(quantile * len(values) - 1e-9))
    exact = sorted(values)[rank - 1]
    # A microsecond is the finest step, three digits the relative one.
    assert record(values).quantile_ms(quantile) == pytest.approx(exact, rel=1.1e-3, abs=0.0011)


@quick
@given(one=latencies, other=latencies)
def test_merging_is_recording_all(one: list[float], other: list[float]) -> None:
    merged = record(one)
    merged.merge(record(other))
    assert merged == record(one + other)
    assert merged.count == len(one) + len(other)


@quick
@given(values=latencies)
def test_round_trip(values: list[float]) -> None:
    histogram = record(values)
    again = LatencyHistogram.from_base64(histogram.to_base64())
    assert again == histogram
    assert again.count == len(values)
    again.record_ms(5)  # what was read can be added to
    assert again.count == len(values) + 1


def test_equality_is_by_content() -> None:
    assert record([1, 2]) == record([2, 1])
    assert record([1]) != record([2])
    assert record([1]) != "histogram"


GOOD = record([1, 2, 3, 400]).to_base64()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no base64 at all!",
        GOOD[:-8],
        GOOD[:20],
        GOOD[:30] + ("A" if GOOD[30] != "A" else "B") + GOOD[31:],
        "AAAA" + GOOD[4:],
        "é" + GOOD,
        base64.b64encode(b"x" * 100).decode(),
        "A" * (256 * 1024 + 4),
    ],
)
def test_refuses_corrupted_text(text: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        LatencyHistogram.from_base64(text)
    assert len(str(refused.value)) < 300


def test_refuses_a_histogram_of_another_range() -> None:
    header = bytearray(payload_of(record([1])))
    struct.pack_into(">Q", header, 24, 2**62)
    with pytest.raises(InvalidMessage, match="3600000000 us"):
        LatencyHistogram.from_base64(wrap(bytes(header)))


def test_refuses_a_bomb_before_it_inflates() -> None:
    with pytest.raises(InvalidMessage, match="when inflated"):
        LatencyHistogram.from_base64(wrap(payload_of(record([1])) + b"\0" * 10_000_000))


def test_damaged_counters_are_refused_or_read_as_counts() -> None:
    rng = np.random.default_rng(0)
    payload = payload_of(record(rng.lognormal(3, 1, 300).tolist()))
    n_refused = 0
    for _ in range(300):
        damaged = bytearray(payload)
        for place in rng.integers(40, len(payload), 8):
            damaged[place] = rng.integers(256)
        try:
            assert (
                LatencyHistogram.from_base64(wrap(bytes(damaged[: rng.integers(41, len(payload))]))).count
                >= 0
            )
        except InvalidMessage:
            n_refused += 1
    assert n_refused < 300
