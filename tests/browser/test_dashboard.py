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
SETTLE_MS = 60_000


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


@pytest.mark.parametrize("theme", ["light"], indirect=True)
def test_promote_and_undo(page: Page, theme: str, dashboard_url: str, control_plane: Any) -> None:
    page.goto(f"{dashboard_url}/versions?version=8")
    _settled(page, "Versions")
    page.get_by_role("button", name="Promote v8").click()
    dialog = page.get_by_role("dialog")
    confirm = dialog.get_by_role("button", name="Promote v8")
    expect(confirm).to_be_disabled()
    dialog.get_by_role("textbox").fill("refit passed the gate")
    expect(confirm).to_be_enabled()
    _shot(page, "promote-dialog", theme)
    confirm.click()
    expect(page.get_by_text("v8 is active")).to_be_visible(timeout=SETTLE_MS)
    sent = [(path, key) for method, path, key in control_plane.log if path.endswith("/promote")]
    assert len(sent) == 1
    assert sent[0][1]
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back to v7").click()
    expect(page.get_by_text("Back on v7")).to_be_visible(timeout=SETTLE_MS)


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
