from eldr_runtime.metrics_blob import ActiveExperts, MetricsKey
from eldr_runtime.metrics_recorder import FinishedRequest
from eldr_runtime.router.blob_windows import BlobWindows, WindowKey

DONE = FinishedRequest(
    worker="decode-0", cluster=1, version="v", arm="live", is_error=False, output_tokens=5, band_size=2,
    ttft_ms=100.0, tpot_ms=10.0,
)  # fmt: skip
WORKER = MetricsKey(worker="decode-0", version="v", arm="live")
EXPERTS = ActiveExperts(n_steps=2, sum_by_layer=(10.0, 20.0), batch_sum=6.0)


def key(at: float, *, experiment_window: int = 7, is_washout: bool = False) -> WindowKey:
    return WindowKey.at(at, 10, experiment_window=experiment_window, is_washout=is_washout)


def test_windows_by_hand() -> None:
    assert (key(1005.0).start, key(1009.9).start, key(1010.0).start) == (1000, 1000, 1010)
    assert not key(1005.0).is_over(1009.9)
    assert key(1005.0).is_over(1010.0)


def test_a_window_is_taken_once_it_is_over() -> None:
    windows = BlobWindows("r", first_sequence=40)
    windows.record(key(1005.0), DONE)
    assert windows.take(1009.0) == ()
    (blob,) = windows.take(1010.0)
    assert (blob.router_id, blob.window_seconds, blob.sequence) == ("r", 10, 41)
    assert blob.window_start.timestamp() == 1000
    assert [row.n_requests for row in blob.rows] == [1, 1]
    assert windows.take(2000.0) == ()


def test_experiment_windows_and_washout_are_never_mixed() -> None:
    windows = BlobWindows("r", first_sequence=0)
    windows.record(key(1005.0, experiment_window=7), DONE)
    windows.record(key(1005.0, experiment_window=8, is_washout=True), DONE)
    windows.record(key(1005.0, experiment_window=8), DONE)
    blobs = windows.take()
    assert [(blob.experiment_window, blob.is_washout) for blob in blobs] == [
        (7, False),
        (8, True),
        (8, False),
    ]
    assert len({blob.key for blob in blobs}) == 3


def test_steps_go_into_the_workers_row_and_add_up() -> None:
    windows = BlobWindows("r", first_sequence=0)
    windows.add_steps(key(1001.0), WORKER, EXPERTS)
    windows.record(key(1002.0), DONE)
    windows.add_steps(key(1003.0), WORKER, EXPERTS)
    (blob,) = windows.take()
    row = next(row for row in blob.rows if row.key == WORKER)
    assert row.n_requests == 1
    assert row.active_experts == ActiveExperts(n_steps=4, sum_by_layer=(20.0, 40.0), batch_sum=12.0)


def test_steps_without_requests_have_a_row_of_their_own() -> None:
    windows = BlobWindows("r", first_sequence=0)
    windows.add_steps(key(1001.0), WORKER, EXPERTS)
    (blob,) = windows.take()
    (row,) = blob.rows
    assert (row.key, row.n_requests, row.active_experts) == (WORKER, 0, EXPERTS)
