import json
from datetime import UTC, datetime

import pytest

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.metrics_blob import MetricsBlob
from eldr_runtime.telemetry_batch import MAX_EVENTS, TelemetryBatch

BLOB = MetricsBlob(
    router_id="router-0",
    window_start=datetime(2026, 1, 31, 12, 0, 10, tzinfo=UTC),
    experiment_window=1,
    sequence=0,
    is_washout=False,
    rows=(),
)


def test_round_trip() -> None:
    batch = TelemetryBatch(router_id="router-0", blobs=(BLOB,))
    assert TelemetryBatch.from_json(batch.to_json()) == batch
    assert list(json.loads(batch.to_json())) == ["v", "router_id", "events", "blobs"]


def test_limits() -> None:
    with pytest.raises(InvalidMessage, match="blobs router_id is 'router-0'; must be router-1"):
        TelemetryBatch(router_id="router-1", blobs=(BLOB,))
    with pytest.raises(InvalidMessage, match=f"events is {MAX_EVENTS + 1}; must be at most {MAX_EVENTS}"):
        TelemetryBatch(router_id="router-0", events=(None,) * (MAX_EVENTS + 1))
    with pytest.raises(InvalidMessage, match="router_id"):
        TelemetryBatch(router_id="")
