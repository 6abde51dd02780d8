import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.latency_counts import LatencyCounts, add_counts
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.latency_histogram import LatencyHistogram

latencies = st.lists(st.floats(min_value=0.0, max_value=4_000_000.0), max_size=40)


def recorded(values_ms: list[float]) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for value_ms in values_ms:
        histogram.record_ms(value_ms)
    return histogram


def test_three_latencies_by_hand() -> None:
    counts = LatencyCounts.from_base64(recorded([1.0, 2.0, 2.0]).to_base64())
    # 1,000 us and 2,000 us stand in the first 2,048 buckets, which are a microsecond wide.
    assert counts.by_index == {1000: 1, 2000: 2}
    assert counts.count == 3
    assert counts.quantile_ms(0.33) == 1.0
    assert counts.quantile_ms(0.5) == 2.0


def test_a_bucket_past_the_first_is_named_by_its_upper_end() -> None:
    # 5,000 us: buckets of 4 us from 4,096 on, so 5,000 to 5,003.
    counts = LatencyCounts.from_base64(recorded([5.0]).to_base64())
    assert counts.quantile_ms(0.5) == 5.003


def test_no_latencies() -> None:
    empty = LatencyCounts.from_base64(LatencyHistogram().to_base64())
    assert (empty.count, empty.quantile_ms(0.5)) == (0, None)
    assert LatencyHistogram.from_base64(LatencyCounts().to_base64()).count == 0


@given(latencies, st.floats(min_value=0, max_value=1))
def test_quantiles_are_those_of_the_dense_histogram(values_ms: list[float], quantile: float) -> None:
    dense = recorded(values_ms)
    counts = LatencyCounts.from_base64(dense.to_base64())
    assert counts.count == dense.count
    assert counts.quantile_ms(quantile) == dense.quantile_ms(quantile)


@given(latencies, latencies)
def test_a_sum_reads_back_as_all_recorded_in_one(one_ms: list[float], other_ms: list[float]) -> None:
    parts = [LatencyCounts.from_base64(recorded(each).to_base64()) for each in (one_ms, other_ms)]
    assert LatencyHistogram.from_base64(add_counts(parts).to_base64()) == recorded(one_ms + other_ms)


@given(st.dictionaries(st.integers(0, 20_000), st.integers(1, 2**62), max_size=5))
def test_any_counts_survive_the_text(by_index: dict[int, int]) -> None:
    counts = LatencyCounts(by_index=by_index)
    assert LatencyCounts.from_base64(counts.to_base64()) == counts


@pytest.mark.parametrize("text", ["", "AAAA", "not base64!", "HISTFAAAABg="])
def test_what_is_no_histogram_is_refused(text: str) -> None:
    with pytest.raises(InvalidMessage, match=r"histogram is .text of"):
        LatencyCounts.from_base64(text)


@given(st.binary(max_size=40))
def test_damage_is_refused_or_read_but_never_crashes(noise: bytes) -> None:
    text = recorded([1.0, 5.0, 900.0]).to_base64()
    damaged = text[: len(text) // 2] + noise.hex() + text[len(text) // 2 :]
    try:
        LatencyCounts.from_base64(damaged)
    except InvalidMessage:
        return
    assert noise.hex() == ""
