from datetime import UTC, datetime, timedelta

import pytest

from controlplane.domain.latency_counts import LatencyCounts
from controlplane.domain.metric_series import (
    ExperimentSpan,
    SeriesTotals,
    SubjectKind,
    floor_time,
    series_of_blob,
    sum_totals,
)
from eldr_runtime.errors import InvalidMessage
from eldr_runtime.latency_histogram import LatencyHistogram
from eldr_runtime.metrics_blob import ActiveExperts, MetricsBlob, MetricsKey, MetricsRow

START = datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC)
HASH = "a" * 64
# 12:00:00 is a whole number of pairs of windows of 30 s since the epoch.
SPAN = ExperimentSpan(
    id="e1",
    first_window=int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) // 30,
    n_pairs=6,
    window_seconds=30,
    washout_seconds=10,
    seed=1,
)


def histogram(*values_ms: float) -> str:
    found = LatencyHistogram()
    for value_ms in values_ms:
        found.record_ms(value_ms)
    return found.to_base64()


def blob(*rows: MetricsRow, experiment_window: int = 0, is_washout: bool = False) -> MetricsBlob:
    return MetricsBlob(
        router_id="router-0",
        window_start=START,
        window_seconds=10,
        experiment_window=experiment_window,
        sequence=0,
        is_washout=is_washout,
        rows=rows,
    )


def worker_row(arm: str = "live", **values: object) -> MetricsRow:
    return MetricsRow(key=MetricsKey(worker="decode-0", version=HASH, arm=arm), **values)


def series(message: MetricsBlob, *experiments: ExperimentSpan):
    return list(series_of_blob(message, lambda found: 0 if found is None else 7, experiments, 2))


def test_a_row_counts_in_its_window_its_minute_and_its_hour() -> None:
    row = worker_row(
        n_requests=3, n_errors=1, output_tokens=90, band_size_sum=6, tpot_histogram=histogram(20.0)
    )
    found = series(blob(row))
    assert [(key.window_seconds, key.window_start.strftime("%H:%M:%S")) for key, _ in found] == [
        (10, "12:00:10"),
        (60, "12:00:00"),
        (3600, "12:00:00"),
    ]
    key, totals = found[0]
    assert (key.subject_kind, key.subject, key.version_number) == (SubjectKind.WORKER, "decode-0", 7)
    assert (totals.n_requests, totals.n_errors, totals.mean_band_size) == (3, 1, 2.0)
    assert totals.tpot.quantile_ms(0.5) == pytest.approx(20.0, rel=1e-3)


def test_totals_add_up_by_hand() -> None:
    one = SeriesTotals(
        n_requests=1,
        n_steps=10,
        batch_sum=40.0,
        active_experts_sum=(100.0, 300.0),
        tpot=LatencyCounts(by_index={10: 1}),
    )
    other = SeriesTotals(
        n_requests=2,
        n_steps=30,
        batch_sum=40.0,
        active_experts_sum=(100.0, 300.0),
        tpot=LatencyCounts(by_index={10: 1, 20: 1}),
    )
    total = sum_totals([one, other])
    assert (total.n_requests, total.mean_batch) == (3, 2.0)
    # 800 experts in two layers over 40 steps: 10 a layer and step.
    assert total.active_experts == 10.0
    assert total.tpot.by_index == {10: 2, 20: 1}
    assert sum_totals([one, SeriesTotals(n_requests=4)]).active_experts == one.active_experts


def test_nothing_seen_is_none_and_not_zero() -> None:
    empty = SeriesTotals()
    assert (empty.active_experts, empty.mean_batch, empty.mean_band_size) == (None, None, None)


def test_another_number_of_layers_is_refused() -> None:
    experts = ActiveExperts(n_steps=1, sum_by_layer=(1.0, 2.0, 3.0))
    with pytest.raises(InvalidMessage, match="layers of sum_by_layer is 3; must be 2"):
        series(blob(worker_row(active_experts=experts)))


def arm_of(index: int) -> str:
    return SPAN.arm_window(index).arm


def test_a_row_of_the_arm_whose_turn_it_is_counts_in_the_experiment() -> None:
    index = SPAN.first_window
    found = series(blob(worker_row(arm_of(index)), experiment_window=index), SPAN)
    key, _ = found[-1]
    assert (key.experiment_id, key.experiment_window, key.window_seconds) == ("e1", index, 30)
    assert key.window_start == START - timedelta(seconds=10)
    assert [each.experiment_id for each, _ in found] == ["", "", "", "e1"]


def test_washout_is_a_series_of_its_own() -> None:
    index = SPAN.first_window
    found = series(blob(worker_row(arm_of(index)), experiment_window=index, is_washout=True), SPAN)
    assert [key.is_washout for key, _ in found] == [False, False, False, True]


@pytest.mark.parametrize(
    ("index", "arm"),
    [
        (SPAN.first_window, arm_of(SPAN.first_window + 1)),  # the other arm's turn
        (SPAN.first_window, "live"),  # a router that has not heard of the experiment
        (SPAN.first_window - 1, arm_of(SPAN.first_window - 1)),  # before it
        (SPAN.first_window + 12, arm_of(SPAN.first_window + 12)),  # after it
        (SPAN.first_window + 3, arm_of(SPAN.first_window + 3)),  # a window that has not begun
    ],
)
def test_what_does_not_belong_to_the_experiment_is_kept_out(index: int, arm: str) -> None:
    found = series(blob(worker_row(arm), experiment_window=index), SPAN)
    assert {key.experiment_id for key, _ in found} == {""}


def test_both_windows_of_a_pair_have_different_arms() -> None:
    pairs = [(arm_of(index), arm_of(index + 1)) for index in SPAN.windows[::2]]
    assert all({*pair} == {"treatment", "control"} for pair in pairs)
    assert len(pairs) == 6


def test_windows_are_counted_from_the_epoch() -> None:
    assert (
        floor_time(datetime(2026, 3, 1, 12, 34, 56, tzinfo=UTC), 60).isoformat()
        == "2026-03-01T12:34:00+00:00"
    )
