import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from eldr_runtime.errors import InvalidMessage
from eldr_runtime.latency_histogram import LatencyHistogram
from eldr_runtime.metrics_blob import ActiveExperts, MetricsBlob, MetricsKey, MetricsRow, merge_rows

WORKER = MetricsKey(worker="decode-0", version="ab" * 32, arm="eldr")
CLUSTER = MetricsKey(cluster=3, version="ab" * 32, arm="eldr")


def histogram(*values_ms: float) -> str:
    recorded = LatencyHistogram()
    for value in values_ms:
        recorded.record_ms(value)
    return recorded.to_base64()


ROW = MetricsRow(
    key=WORKER,
    n_requests=2,
    n_errors=1,
    n_without_signature=1,
    output_tokens=100,
    band_size_sum=5,
    ttft_histogram=histogram(100, 200),
    tpot_histogram=histogram(10),
    active_experts=ActiveExperts(n_steps=2, sum_by_layer=(20.0, 30.0), predicted_sum=24.0, batch_sum=9.0),
)
BLOB = MetricsBlob(
    router_id="router-0",
    window_start=datetime(2026, 1, 31, 12, 0, 10, tzinfo=UTC),
    experiment_window=29_000_000,
    sequence=0,
    is_washout=False,
    rows=(ROW, MetricsRow(key=CLUSTER)),
)


def test_round_trip_and_the_key() -> None:
    again = MetricsBlob.from_json(BLOB.to_json())
    assert again == BLOB
    assert again.key == BLOB.key
    assert hash(again.key) == hash(BLOB.key)
    assert replace(BLOB, sequence=1).key != BLOB.key
    assert replace(BLOB, experiment_window=1).key != BLOB.key
    assert replace(BLOB, rows=()).key == BLOB.key


def test_rows_add_up_by_hand() -> None:
    other = replace(
        ROW,
        ttft_histogram=histogram(300),
        tpot_histogram=histogram(20, 30),
        active_experts=ActiveExperts(n_steps=1, sum_by_layer=(10.0, 10.0), predicted_sum=12.0, batch_sum=4.0),
    )
    elsewhere = MetricsRow(key=CLUSTER, n_requests=7)
    total, untouched = merge_rows([ROW, elsewhere, other])
    assert untouched == elsewhere
    assert (total.n_requests, total.n_errors, total.n_without_signature) == (4, 2, 2)
    assert (total.output_tokens, total.band_size_sum) == (200, 10)
    assert total.ttft() == LatencyHistogram.from_base64(histogram(100, 200, 300))
    assert total.tpot() == LatencyHistogram.from_base64(histogram(10, 20, 30))
    assert total.active_experts == ActiveExperts(
        n_steps=3, sum_by_layer=(30.0, 40.0), predicted_sum=36.0, batch_sum=13.0
    )
    assert total.active_experts.mean == pytest.approx(70 / 2 / 3)


def test_order_and_grouping_do_not_matter() -> None:
    rows = [replace(ROW, n_requests=n, tpot_histogram=histogram(n)) for n in (1, 2, 3)]
    (forward,) = merge_rows(rows)
    (backward,) = merge_rows([*merge_rows(rows[1:]), rows[0]])
    assert forward.n_requests == backward.n_requests == 6
    assert forward.tpot() == backward.tpot()


def test_a_prediction_survives_only_where_all_have_one() -> None:
    blind = ActiveExperts(n_steps=1, sum_by_layer=(10.0, 10.0))
    assert ROW.active_experts is not None
    assert ROW.active_experts.plus(blind).predicted_sum is None
    (total,) = merge_rows([replace(ROW, active_experts=None), ROW])
    assert total.active_experts == ROW.active_experts
    with pytest.raises(InvalidMessage, match="layers of sum_by_layer is 1; must be 2"):
        ROW.active_experts.plus(ActiveExperts(n_steps=1, sum_by_layer=(10.0,)))


def test_different_versions_and_arms_do_not_mix() -> None:
    keys = [WORKER, replace(WORKER, version=None), replace(WORKER, arm="control"), CLUSTER]
    assert len(merge_rows([MetricsRow(key=key) for key in keys])) == 4


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"router_id": ""}, "$.router_id"),
        ({"window_start": "2026-01-31T12:00:11Z"}, "$.window_start"),
        ({"window_seconds": 0}, "$.window_seconds"),
        ({"experiment_window": -1}, "$.experiment_window"),
        ({"sequence": -1}, "$.sequence"),
        ({"rows": [{"key": {"version": None, "arm": "a"}}]}, "$.rows[0].key.worker and cluster"),
        (
            {"rows": [{"key": {"worker": "w", "cluster": 1, "version": None, "arm": "a"}}]},
            "$.rows[0].key.worker and cluster",
        ),
        ({"rows": [{"key": {"cluster": -1, "version": None, "arm": "a"}}]}, "$.rows[0].key.cluster"),
        ({"rows": [{"key": {"cluster": 1, "version": None, "arm": "a"}}] * 2}, "$.rows"),
        (
            {"rows": [{"key": {"cluster": 1, "version": None, "arm": "a"}, "n_errors": -1}]},
            "$.rows[0].n_errors",
        ),
        ({"v": 2}, "$.v"),
    ],
)
def test_refuses(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        MetricsBlob.from_json(json.dumps(json.loads(BLOB.to_json()) | change))
    assert refused.value.field == field


def test_refuses_sums_and_histograms_outside_their_limit() -> None:
    with pytest.raises(InvalidMessage, match="n_steps"):
        ActiveExperts(n_steps=0, sum_by_layer=(1.0,))
    for sums in ((), (1.0, -1.0)):
        with pytest.raises(InvalidMessage, match="sum_by_layer"):
            ActiveExperts(n_steps=1, sum_by_layer=sums)
    with pytest.raises(InvalidMessage, match="ttft_histogram"):
        MetricsRow(key=WORKER, ttft_histogram="A" * 300_000)
    with pytest.raises(InvalidMessage, match="histogram"):
        MetricsRow(key=WORKER, ttft_histogram="corrupted").ttft()
