import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app import charts, charts_calibration, charts_clusters, charts_control, charts_overview, charts_workers
from app.panels import to_csv
from app.views.overview import control_note, latest, latest_effect, rate_now

SINCE = datetime.now(UTC) - timedelta(hours=1)
MEGABYTE = 1_000_000


def _sizes(figure: Any) -> int:
    return len(figure.to_json().encode())


def _titles(figure: Any) -> tuple[str, str]:
    return figure.layout.xaxis.title.text, figure.layout.yaxis.title.text


@pytest.mark.parametrize("is_3d", [False, True])
def test_ten_thousand_signatures_are_sent_in_under_a_megabyte(client: Any, is_3d: bool) -> None:
    projection = client.projection("ver-0007", is_live=True, limit=2000)
    many = tuple(
        replace(point, request_id=f"{point.request_id}-{index}")
        for index in range(5)
        for point in projection.points
    )
    figure = charts_clusters.signature_map(replace(projection, points=many), colour_by="cluster", is_3d=is_3d)
    assert len(many) == 10_000
    assert sum(len(trace.x) for trace in figure.data) == 10_000 + 8
    assert _sizes(figure) < MEGABYTE


@pytest.mark.parametrize(
    ("colour_by", "n_groups"), [("cluster", 8), ("worker", 8), ("version", 1), ("label", 4)]
)
def test_signatures_have_a_trace_a_group_and_one_of_centroids(
    client: Any, colour_by: str, n_groups: int
) -> None:
    projection = client.projection("ver-0007", is_live=True)
    figure = charts_clusters.signature_map(projection, colour_by=colour_by, is_3d=False)
    assert len(figure.data) == n_groups + 1
    assert figure.data[-1].name == "centroids"
    assert len({(trace.marker.color, trace.marker.symbol) for trace in figure.data}) == n_groups + 1
    assert _titles(figure) == ("component 1 (31 % of variance)", "component 2 (18 % of variance)")


def test_a_turned_projection_is_turned_back(client: Any) -> None:
    projection = client.projection("ver-0007", is_live=True, limit=50)
    turned = replace(
        projection,
        points=tuple(
            replace(p, coordinates=(-p.coordinates[1], p.coordinates[0], -p.coordinates[2]))
            for p in projection.points
        ),
    )
    back, n_shared = charts_clusters.align_to(projection, turned)
    assert n_shared == 50
    for mine, theirs in zip(back.points, projection.points, strict=True):
        assert mine.coordinates == pytest.approx(theirs.coordinates, abs=1e-9)


def test_too_few_shared_requests_leave_a_projection_as_it_is(client: Any) -> None:
    projection = client.projection("ver-0007", is_live=True, limit=3)
    assert charts_clusters.align_to(projection, projection) == (projection, 0)


def test_every_figure_over_time_has_units_on_its_axes(client: Any) -> None:
    points = client.metrics("fleet", SINCE)
    for figure in (charts_overview.request_rate(points), charts_overview.latency_timeline(points, ())):
        x_title, y_title = _titles(figure)
        assert x_title == "time (UTC)"
        assert "(" in y_title


def test_timeline_marks_each_kind_of_event(client: Any) -> None:
    events = charts_overview.timeline_events(
        client.activations(), client.settings_revisions(), client.calibration_runs(), SINCE
    )
    assert [event.kind for event in events] == [
        *("calibration", "calibration", "tuning", "promotion", "calibration"),
        *("rollback", "tuning", "promotion"),
    ]
    assert {event.label for event in events if event.kind == "calibration"} == {"fit", "refit"}
    figure = charts_overview.latency_timeline(client.metrics("fleet", SINCE), events)
    assert [trace.name for trace in figure.data[2:]] == ["promotion", "rollback", "tuning", "calibration"]
    assert len(figure.layout.shapes) == len(events)


def test_occupancy_is_in_percent_of_each_total() -> None:
    figure = charts_clusters.occupancy_bars((1, 3), (10, 10))
    assert [list(trace.y) for trace in figure.data] == [[25.0, 75.0], [50.0, 50.0]]
    assert _titles(figure) == ("cluster", "share of requests (%)")


def test_union_map_against_a_random_mix_is_in_percent_about_zero(client: Any) -> None:
    union = replace(client.unions(SINCE)[0], active_by_layer=(8.0, 12.0), random_by_layer=(10.0, 10.0))
    figure = charts_workers.union_map([union], is_relative=True)
    assert [list(row) for row in figure.data[0].z] == [pytest.approx([-20.0, 20.0])]
    assert figure.data[0].zmid == 0


def test_clusters_of_a_worker_add_up_to_all(client: Any) -> None:
    figure = charts_workers.cluster_mix(client.decisions(200))
    totals = [sum(column) for column in zip(*(trace.y for trace in figure.data), strict=True)]
    assert totals == pytest.approx([100.0] * 8)


def test_effects_have_their_interval(client: Any) -> None:
    figure = charts_control.effect_forest(client.experiment("exp-1").effects)
    first = figure.data[0]
    assert (first.x[0], first.error_x.arrayminus[0], first.error_x.array[0]) == pytest.approx(
        (-11.8, 2.4, 2.7)
    )


def test_what_if_marks_tau_as_it_is_and_as_proposed(client: Any) -> None:
    curve = client.preview_tuning(_Tune(tau=0.2)).curve
    figure = charts_control.what_if(curve, "similarity_kept_share", "%", now=0.1, wanted=0.2, scale=100)
    assert {trace.name: (trace.x[0], trace.y[0]) for trace in figure.data[1:]} == {
        "now": (0.1, pytest.approx(95)), "proposed": (0.2, pytest.approx(90)),
    }  # fmt: skip


class _Tune:
    def __init__(self, tau: float) -> None:
        self.tau, self.policy, self.load_cap = tau, None, None


def test_drift_without_data_is_a_gap(client: Any) -> None:
    figure = charts_control.drift_statistic(client.drift_checks(SINCE), "mix_shift")
    values = json.loads(figure.to_json())["data"][0]["y"]
    assert values[:3] == [None, None, None]
    assert all(value is not None for value in values[3:])


def test_latest_is_weighted_by_requests(client: Any) -> None:
    point = client.metrics("fleet", SINCE)[0]
    points = [
        replace(point, tpot_p50_ms=99.0, n_requests=1000),
        replace(point, tpot_p50_ms=30.0, n_requests=30),
        replace(point, tpot_p50_ms=20.0, n_requests=10),
        replace(point, tpot_p50_ms=None, n_requests=500),
        replace(point, tpot_p50_ms=30.0, n_requests=10),
    ]
    assert latest(points, "tpot_p50_ms") == pytest.approx(28.0)
    assert latest([], "tpot_p50_ms") is None


def test_rate_leaves_out_the_window_under_way(client: Any) -> None:
    point = replace(client.metrics("fleet", SINCE)[0], window_seconds=10)
    points = [replace(point, n_requests=n) for n in (450, 450, 450, 20)]
    assert rate_now(points) == pytest.approx(45)


def test_a_running_experiment_does_not_hide_one_that_can_tell(client: Any) -> None:
    effect, experiment = latest_effect(client.experiments(), "tpot_p50_ms")
    assert experiment is not None
    assert experiment.id == "exp-1"
    assert control_note(effect, experiment) == "95 %: −14.2 to −9.1 · 8 pairs"
    assert (
        control_note(*latest_effect(client.experiments()[:1], "tpot_p50_ms")) == "inconclusive: 5 of 8 pairs"
    )
    assert latest_effect((), "tpot_p50_ms") == (None, None)


def test_csv_has_rfc_times_and_runs_no_formula() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    assert (
        to_csv({"at": [at], "why": ["=1+1"], "n": [None]}) == "at,why,n\n2026-01-02T00:00:00+00:00,'=1+1,\n"
    )


def test_report_stars_the_layers_kept_and_marks_the_transform_used(client: Any) -> None:
    report = replace(
        client.calibration_report("run-0008"),
        n_layers_kept=2,
        rho_by_layer_count=(0.5, 0.7, 0.6),
        rho_by_transform={"count": 0.6, "count_idf": 0.7},
    )
    star = charts_calibration.rho_by_layers(report).data[1]
    assert (star.x[0], star.y[0], star.marker.symbol) == (2, 0.7, "star")
    bars = charts_calibration.rho_by_transform(report).data[0]
    assert list(bars.y) == ["count idf", "count"]
    assert list(bars.text) == ["0.700 · used", "0.600"]


def test_held_out_is_by_batch_size_in_order_with_its_interval_and_the_control(client: Any) -> None:
    report = client.calibration_report("run-0008")
    figure = charts_calibration.held_out_by_batch(report)
    judged, control = figure.data
    assert list(judged.x) == ["8", "16", "32"]
    assert judged.error_y.array == pytest.approx((1.0, 1.0, 1.0))
    assert judged.error_y.arrayminus == pytest.approx((1.0, 1.0, 1.0))
    assert (control.x[0], control.y[0]) == ("16", 0.2)


@pytest.mark.parametrize(("sizes", "limit"), [((3, 3, 2), 3), ((4, 4), 4), ((1, 1, 1, 1), 1)])
def test_capacity_is_an_even_share_rounded_up(client: Any, sizes: tuple[int, ...], limit: int) -> None:
    report = replace(client.calibration_report("run-0008"), n_clusters=len(sizes), cluster_sizes=sizes)
    assert charts_calibration.capacity(report) == limit
    assert charts_calibration.cluster_sizes(report).layout.shapes[0].y0 == limit


def test_bars_of_a_decision_name_the_chosen_and_the_band_alone() -> None:
    drawn = charts_clusters.decision_bars({"a": 0.9, "b": 0.8, "c": 0.1}, ["a", "b"], "b")
    assert list(drawn.data[0].y) == ["a", "b", "c"]
    assert list(drawn.data[0].text) == ["in band", "chosen", ""]


def test_a_line_breaks_where_windows_are_missing(client: Any) -> None:
    first, *_ = client.metrics("fleet", SINCE)
    step = timedelta(seconds=first.window_seconds)
    points = [replace(first, window_start=first.window_start + n * step) for n in (0, 1, 5, 6)]
    drawn = charts.line("TPOT", points, [10.0, 11.0, 12.0, None], colour=charts.BLUE)
    assert list(drawn.y) == [10.0, 11.0, None, 12.0, None]
    assert [bool(size) for size in drawn.marker.size[:4]] == [False, False, False, True]
    assert drawn.x[2] == first.window_start + 2 * step
    assert not drawn.connectgaps
