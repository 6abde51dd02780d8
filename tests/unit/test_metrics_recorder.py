from dataclasses import replace

from eldr_runtime.metrics_blob import MetricsKey
from eldr_runtime.metrics_recorder import FinishedRequest, MetricsRecorder

REQUEST = FinishedRequest(
    worker="decode-0",
    cluster=3,
    version="v1",
    arm="eldr",
    is_error=False,
    output_tokens=10,
    band_size=2,
    ttft_ms=100,
    tpot_ms=10,
)


def test_both_marginals_by_hand() -> None:
    recorder = MetricsRecorder()
    recorder.record(REQUEST)
    recorder.record(
        replace(REQUEST, cluster=None, is_error=True, ttft_ms=None, tpot_ms=None, output_tokens=0)
    )
    recorder.record(replace(REQUEST, worker="decode-1", tpot_ms=20))
    rows = {row.key: row for row in recorder.take()}
    assert list(rows) == [
        MetricsKey(worker="decode-0", version="v1", arm="eldr"),
        MetricsKey(cluster=3, version="v1", arm="eldr"),
        MetricsKey(worker="decode-1", version="v1", arm="eldr"),
    ]
    first, cluster, _ = rows.values()
    assert (first.n_requests, first.n_errors, first.n_without_signature) == (2, 1, 1)
    assert (first.output_tokens, first.band_size_sum) == (10, 4)
    assert (first.ttft().count, first.tpot().count) == (1, 1)
    assert (cluster.n_requests, cluster.n_without_signature, cluster.tpot().count) == (2, 0, 2)


def test_taking_starts_anew() -> None:
    recorder = MetricsRecorder()
    recorder.record(REQUEST)
    assert len(recorder.take()) == 2
    assert recorder.take() == ()


def test_a_request_without_worker_and_cluster_counts_nowhere() -> None:
    recorder = MetricsRecorder()
    recorder.record(replace(REQUEST, worker=None, cluster=None))
    assert recorder.take() == ()
