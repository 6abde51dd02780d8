import numpy as np
import plotly.graph_objects as go
import pytest

from eldr_runtime.cli import report_figures


def _titles(figure: go.Figure) -> tuple[str | None, str | None]:
    return figure.layout.xaxis.title.text, figure.layout.yaxis.title.text


def test_star_stands_on_the_number_of_layers_kept() -> None:
    figure = report_figures.rho_by_layer_count([0.2, 0.7, 0.5], 2)
    star = figure.data[1]
    assert list(star.x) == [2]
    assert list(star.y) == [0.7]


def test_intervals_become_distances_from_the_mean() -> None:
    figure = report_figures.union_by_batch([(8, -9.0, (-10.0, -8.5)), (16, -8.0, (-9.0, -6.0))], 0.1)
    bars = figure.data[0].error_y
    np.testing.assert_allclose(bars.array, [0.5, 2.0])
    np.testing.assert_allclose(bars.arrayminus, [1.0, 1.0])
    assert list(figure.data[1].y) == [0.1]


def test_control_is_left_out_where_batch_16_is() -> None:
    assert len(report_figures.union_by_batch([(8, -9.0, (-10.0, -8.5))], 0.1).data) == 1


def test_categories_stand_best_on_top_and_losers_in_another_colour() -> None:
    figure = report_figures.gain_by_category([("math", 1.0, None), ("law", -8.0, None)], "change (%)")
    assert list(figure.data[0].y) == ["math", "law"]  # plotly draws the first at the bottom
    assert figure.data[0].marker.color == (report_figures.ORANGE, report_figures.BLUE)


def test_every_cluster_has_its_own_mark() -> None:
    n_clusters = 20
    points = np.zeros((n_clusters, 2))
    figure = report_figures.signature_map(points, np.arange(n_clusters), points, [0.5, 0.25])
    marks = {(trace.marker.color, trace.marker.symbol) for trace in figure.data[:n_clusters]}
    assert len(marks) == n_clusters
    assert _titles(figure) == ("component 1 (50 % of variance)", "component 2 (25 % of variance)")


@pytest.mark.parametrize(
    "figure",
    [
        report_figures.rho_by_layer_count([0.1], 1),
        report_figures.rho_by_transform([("count", 0.8, (0.7, 0.9))]),
        report_figures.cluster_sizes([3, 3], 3),
        report_figures.change_by_policy([("eldr", -3.0, None)], "median TPOT (%)"),
    ],
)
def test_axes_of_numbers_say_what_they_measure(figure: go.Figure) -> None:
    assert _titles(figure)[0]
