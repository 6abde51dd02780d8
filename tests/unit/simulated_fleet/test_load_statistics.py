from eldr_runtime.simulated_fleet.load_statistics import (
    ERRORS_KEPT,
    RECENT_SECONDS,
    LoadStatistics,
    MixStatus,
    quantile,
)

MIX = MixStatus(unseen_topic=None, unseen_topic_share=0.0, topic_shares={})


def test_every_request_is_in_exactly_one_state() -> None:
    statistics = LoadStatistics(lambda: 0.0)
    for _ in range(5):
        statistics.count_sent()
    statistics.count_finished(ttft_ms=10.0, tpot_ms=2.0, output_tokens=4)
    statistics.count_failed("a", "http 503: no worker")
    statistics.count_failed("b", "http 503: busy")
    assert (statistics.sent, statistics.finished, statistics.failed, statistics.in_flight) == (5, 1, 2, 2)
    summary = statistics.summary()
    assert summary.failures == {"http 503": 2}
    assert [error.request_id for error in summary.errors] == ["a", "b"]


def test_status_shows_the_last_half_minute_and_the_summary_all() -> None:
    now = [0.0]
    statistics = LoadStatistics(lambda: now[0])
    for _ in range(2):
        statistics.count_sent()
    statistics.count_finished(ttft_ms=100.0, tpot_ms=50.0, output_tokens=3)
    now[0] = RECENT_SECONDS + 1
    assert statistics.status(mix=MIX, rate_per_second=1.0).tpot_p50_ms is None
    statistics.count_finished(ttft_ms=10.0, tpot_ms=5.0, output_tokens=3)
    status = statistics.status(mix=MIX, rate_per_second=1.0)
    assert (status.tpot_p50_ms, status.ttft_p50_ms) == (5.0, 10.0)
    summary = statistics.summary()
    assert summary.tpot_p99_ms is not None
    assert abs(summary.tpot_p99_ms - 50.0) < 0.1
    assert summary.output_tokens == 6
    assert summary.output_tokens_per_second == 6 / now[0]


def test_only_the_last_errors_are_kept_but_all_are_counted() -> None:
    statistics = LoadStatistics(lambda: 0.0)
    for number in range(ERRORS_KEPT + 5):
        statistics.count_sent()
        statistics.count_failed(str(number), "cut stream: it ended")
    status = statistics.status(mix=MIX, rate_per_second=1.0)
    assert status.failed == ERRORS_KEPT + 5
    assert status.errors[0].request_id == "5"
    assert status.failures == {"cut stream": ERRORS_KEPT + 5}


def test_request_of_one_token_has_no_time_per_token() -> None:
    statistics = LoadStatistics(lambda: 0.0)
    statistics.count_sent()
    statistics.count_finished(ttft_ms=1.0, tpot_ms=None, output_tokens=1)
    assert statistics.summary().tpot_p50_ms is None


def test_quantiles_by_hand() -> None:
    values = [float(n) for n in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile(values, 1.0)) == (50.0, 99.0, 100.0)
    assert quantile([7.0], 0.01) == 7.0
