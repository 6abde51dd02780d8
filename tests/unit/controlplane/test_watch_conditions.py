import math
from datetime import UTC, datetime

import pytest

from controlplane.domain.fleets import RouterStatus
from controlplane.domain.metric_series import SeriesTotals
from controlplane.services.watch_conditions import (
    imbalance_reading,
    refit_reading,
    regression_reading,
    router_readings,
    signature_reading,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def worker(mean_batch: float, *, n_requests: int = 100, n_steps: int = 1000) -> SeriesTotals:
    return SeriesTotals(n_requests=n_requests, n_steps=n_steps, batch_sum=mean_batch * n_steps)


def test_imbalance_by_hand() -> None:
    reading = imbalance_reading({"a": worker(30), "b": worker(10), "c": worker(8)})
    assert reading is not None
    # Batches of 30, 10 and 8 are 16 on average: the busiest has 14 more, so 1.875 times the mean.
    assert reading.value == pytest.approx(1.875)
    assert not reading.is_breach
    assert "a decodes a mean batch of 30.0" in reading.summary
    assert imbalance_reading({"a": worker(50), "b": worker(10), "c": worker(8)}).is_breach


def test_a_small_batch_is_not_called_imbalanced() -> None:
    reading = imbalance_reading({"a": worker(3), "b": worker(1), "c": worker(1), "d": worker(1)})
    assert reading is not None
    # Twice the mean of 1.5, but only 1.5 requests more: 1 + 1.5 / 4.
    assert reading.value == pytest.approx(1.375)


def test_too_little_traffic_is_no_reading() -> None:
    assert imbalance_reading({"a": worker(30, n_requests=10), "b": worker(1, n_requests=10)}) is None
    assert imbalance_reading({"a": worker(30)}) is None
    assert imbalance_reading({"a": worker(30), "b": worker(1, n_steps=10)}) is None
    assert signature_reading([SeriesTotals(n_requests=99, n_without_signature=99)]) is None
    assert signature_reading([]) is None


def test_missing_signatures_by_hand() -> None:
    parts = [SeriesTotals(n_requests=60, n_without_signature=4), SeriesTotals(n_requests=40)]
    reading = signature_reading(parts)
    assert reading is not None
    assert (reading.value, reading.n, reading.is_breach, reading.is_clear) == (0.04, 100, False, False)
    assert signature_reading([SeriesTotals(n_requests=100, n_without_signature=6)]).is_breach


def test_a_cluster_ten_percent_slower_in_six_pairs_is_a_regression() -> None:
    reading = regression_reading("5", [math.log(1.1)] * 6)
    assert reading.value == pytest.approx(10.0)
    assert reading.is_breach
    assert (reading.subject, reading.n) == ("cluster 5", 6)
    assert "cluster 5 is +10.0 %" in reading.summary


def test_five_pairs_or_a_mixed_picture_are_none() -> None:
    assert regression_reading("5", [math.log(1.1)] * 5).value is None
    mixed = regression_reading("5", [math.log(ratio) for ratio in (1.1, 0.9, 1.1, 0.9, 1.1, 0.95)])
    assert mixed.value is not None
    assert mixed.is_clear


def test_a_router_on_its_disk_is_as_bad_as_one_that_lags() -> None:
    def router(name: str, *, source: str = "control-plane", is_lagging: bool = False) -> RouterStatus:
        return RouterStatus(
            router_id=name,
            url=None,
            generation_applied=3,
            config_source=source,
            is_lagging=is_lagging,
            in_flight={},
            dropped_events=0,
            last_seen_at=NOON,
        )

    readings = router_readings((router("a"), router("b", source="disk"), router("c", is_lagging=True)))
    assert [reading.is_breach for reading in readings] == [False, True, True]


def test_no_refit_is_no_reading() -> None:
    assert refit_reading(None, NOON) is None
