"""Every page in a real browser, over the real client: no exception, a screenshot each; changes; an outage."""

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

SCREENSHOTS = Path(os.environ.get("ELDR_SCREENSHOTS", Path(__file__).parents[2] / "out" / "screenshots"))
TITLES = (
    "Overview", "Clusters", "Workers", "Drift & alerts", "Versions", "Tuning", "Experiments", "Calibration",
    "Audit",
)  # fmt: skip
SETTLE_MS = 120_000


def _settled(page: Page, title: str) -> None:
    expect(page.get_by_role("heading", level=1, name=title)).to_be_visible(timeout=SETTLE_MS)
    expect(page.get_by_test_id("stStatusWidget").first).to_be_hidden(timeout=SETTLE_MS)
    assert page.get_by_test_id("stException").all_inner_texts() == []
    page.wait_for_timeout(500)


def _shot(page: Page, name: str, theme: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": 1440, "height": max(900, min(height, 3000))})
    page.wait_for_timeout(500)
    page.screenshot(path=SCREENSHOTS / f"{name}-{theme}.png")
    page.set_viewport_size({"width": 1440, "height": 900})


def test_every_page_paints_without_an_exception(page: Page, theme: str, dashboard_url: str) -> None:
    page.goto(dashboard_url)
    for title in TITLES:
        page.get_by_test_id("stSidebarNav").get_by_role("link", name=title).click(timeout=SETTLE_MS)
        _settled(page, title)
        _shot(page, title.lower().replace(" & ", "-and-").replace(" ", "-"), theme)


def _confirm(page: Page, verb: str, reason: str, picture: str | None = None) -> None:
    """Give a reason, which the verb waits for, and go on."""
    dialog = page.get_by_test_id("stDialog")
    button = dialog.get_by_role("button", name=verb, exact=True)
    expect(button).to_be_disabled(timeout=SETTLE_MS)
    dialog.get_by_role("textbox").fill(reason)
    expect(button).to_be_enabled(timeout=SETTLE_MS)
    if picture is not None:
        _shot(page, picture, "light")
    button.click()
    expect(dialog).to_be_hidden(timeout=SETTLE_MS)


def _promote_v8(page: Page, dashboard_url: str, control_plane: Any) -> None:
    page.goto(f"{dashboard_url}/versions?version=v8&refresh=off")
    _settled(page, "Versions")
    page.get_by_role("button", name="Promote v8").click()
    _confirm(page, "Promote v8", "refit passed the gate", picture="promote-dialog")
    expect(page.get_by_text("v8 is active")).to_be_visible(timeout=SETTLE_MS)
    [sent] = control_plane.sent("POST", "/ver-0008/promote")
    assert sent.body["reason"] == "refit passed the gate"
    assert sent.idempotency_key


def _pick_a_point(page: Page) -> str:
    """Click the first point of the first cluster and return its request."""
    place = page.locator(".js-plotly-plot").first.evaluate(
        """plot => {
            const box = plot.getBoundingClientRect(), layout = plot._fullLayout, trace = plot._fullData[0];
            return {request: trace.customdata[0][0],
                    x: box.left + layout.xaxis._offset + layout.xaxis.l2p(trace.x[0]),
                    y: box.top + layout.yaxis._offset + layout.yaxis.l2p(trace.y[0])};
        }"""
    )
    page.mouse.move(place["x"] - 3, place["y"] - 3)
    page.mouse.move(place["x"], place["y"], steps=4)
    page.wait_for_timeout(500)
    page.mouse.click(place["x"], place["y"])
    return str(place["request"])


def _look_at_the_clusters(page: Page, dashboard_url: str, control_plane: Any) -> None:
    page.goto(f"{dashboard_url}/clusters?refresh=off")
    _settled(page, "Clusters")
    plot = page.locator(".js-plotly-plot").first
    expect(plot).to_be_visible(timeout=SETTLE_MS)
    assert plot.evaluate("plot => plot._fullData.length") == 8 + 1
    _pick_a_point(page)
    expect(page.get_by_text("Band of 2; in flight:")).to_be_visible(timeout=SETTLE_MS)
    asked = [sent for sent in control_plane.log if "/decisions/" in sent.path]
    picked = asked[-1].path.rpartition("/")[2]
    assert f"request={picked}" in page.url


def _see_the_delta(page: Page, dashboard_url: str) -> None:
    page.goto(f"{dashboard_url}/?refresh=off")
    _settled(page, "Overview")
    expect(page.get_by_text("95 %: −14.2 to −9.1 · 8 pairs")).to_be_visible(timeout=SETTLE_MS)
    page.goto(f"{dashboard_url}/experiments?refresh=off")
    _settled(page, "Experiments")
    page.get_by_role("combobox", name="Experiment").click()
    page.get_by_role("option").nth(1).click()
    _settled(page, "Experiments")
    page.reload()
    _settled(page, "Experiments")
    tile = page.get_by_test_id("stMetric").filter(has_text="TPOT P50").first
    expect(tile).to_contain_text("−11.8 %", timeout=SETTLE_MS)
    expect(tile).to_contain_text("95 %: −14.2 to −9.1")


def _move_tau(page: Page, dashboard_url: str, control_plane: Any) -> None:
    page.goto(f"{dashboard_url}/tuning?refresh=off")
    _settled(page, "Tuning")
    slider = page.get_by_role("slider").first
    slider.focus()
    for _ in range(4):
        slider.press("ArrowRight")
    lever = page.get_by_role("button", name="Make it live")
    expect(lever).to_be_enabled(timeout=SETTLE_MS)
    _settled(page, "Tuning")
    lever.click()
    _confirm(page, "Make it live", "load is uneven")
    expect(page.get_by_text("Revision 4 is live")).to_be_visible(timeout=SETTLE_MS)
    [sent] = control_plane.sent("PATCH", "/settings")
    assert (sent.body["tau"], sent.body["reason"], sent.if_match) == (0.12, "load is uneven", '"3"')
    assert sent.body["policy"] is None
    expect(page.get_by_text("eldr_capped · tau 0.12")).to_be_visible(timeout=SETTLE_MS)


def _acknowledge_the_alert(page: Page, dashboard_url: str, control_plane: Any) -> None:
    page.goto(f"{dashboard_url}/drift-and-alerts?refresh=off")
    _settled(page, "Drift & alerts")
    button = page.get_by_role("button", name="Acknowledge")
    button.click()
    _confirm(page, "I look after it", "looking")
    expect(page.get_by_text("You look after fit degradation")).to_be_visible(timeout=SETTLE_MS)
    [sent] = control_plane.sent("POST", "/alerts/a1/acknowledge")
    assert sent.body == {"reason": "looking"}
    assert sent.idempotency_key
    _settled(page, "Drift & alerts")
    expect(button).to_be_disabled(timeout=SETTLE_MS)


@pytest.mark.parametrize("theme", ["light"], indirect=True)
def test_the_operators_path(page: Page, theme: str, dashboard_url: str, control_plane: Any) -> None:
    _look_at_the_clusters(page, dashboard_url, control_plane)
    _promote_v8(page, dashboard_url, control_plane)
    expect(page.get_by_text("v8 active")).to_be_visible(timeout=SETTLE_MS)
    page.get_by_role("button", name="Undo").click()
    page.get_by_test_id("stDialog").get_by_role("button", name="Roll back to v7").click()
    expect(page.get_by_text("Back on v7")).to_be_visible(timeout=SETTLE_MS)
    assert len(control_plane.sent("POST", "/rollback")) == 1
    _see_the_delta(page, dashboard_url)
    _move_tau(page, dashboard_url, control_plane)
    _acknowledge_the_alert(page, dashboard_url, control_plane)


@pytest.mark.parametrize("theme", ["light"], indirect=True)
def test_a_calibration_is_started_from_its_form(
    page: Page, theme: str, dashboard_url: str, control_plane: Any
) -> None:
    page.goto(f"{dashboard_url}/calibration?refresh=off")
    _settled(page, "Calibration")
    page.get_by_text("Start a calibration").click()
    page.get_by_role("button", name="Start", exact=True).click()
    _confirm(page, "Start", "topics have changed", picture="start-calibration-dialog")
    expect(page.get_by_text("The calibration was started at")).to_be_visible(timeout=SETTLE_MS)
    [sent] = control_plane.sent("POST", "/calibration-runs")
    assert (sent.body["reason"], sent.body["trace_pack_id"]) == ("topics have changed", None)
    assert sent.idempotency_key


@pytest.mark.parametrize("theme", ["light"], indirect=True)
def test_an_alert_that_fires_under_the_eyes_can_be_acknowledged_at_once(
    page: Page, theme: str, dashboard_url: str, control_plane: Any
) -> None:
    alerts = control_plane.client.alerts()
    control_plane.client.set_alerts(())
    page.goto(f"{dashboard_url}/drift-and-alerts?refresh=5s")
    _settled(page, "Drift & alerts")
    button = page.get_by_role("button", name="Acknowledge")
    expect(button).to_be_disabled()
    control_plane.client.set_alerts(alerts)
    expect(button).to_be_enabled(timeout=SETTLE_MS)
    expect(page.get_by_role("combobox", name="Open alert")).to_have_value("fit degradation · fleet")


@pytest.mark.parametrize("theme", ["dark"], indirect=True)
def test_an_outage_is_told_and_the_data_stays(
    page: Page, theme: str, dashboard_url: str, control_plane: Any
) -> None:
    page.goto(f"{dashboard_url}/?refresh=5s")
    _settled(page, "Overview")
    expect(page.get_by_text("TPOT P50 now")).to_be_visible(timeout=SETTLE_MS)
    control_plane.close()
    expect(page.get_by_text("Control plane down")).to_be_visible(timeout=SETTLE_MS)
    expect(page.get_by_text("TPOT P50 now")).to_be_visible()
    _shot(page, "outage", theme)
