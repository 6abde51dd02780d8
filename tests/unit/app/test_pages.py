from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

PAGES = (
    "overview", "clusters", "workers", "versions", "tuning", "experiments", "drift_and_alerts", "calibration",
    "audit",
)  # fmt: skip
OpenPage = Callable[[str, Any], AppTest]


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _texts(app: AppTest) -> str:
    shown = [*app.markdown, *app.caption, *app.warning, *app.info, *app.error]
    return "\n".join(str(each.value) for each in shown)


def test_page_with_data_shows_tables_or_figures_and_no_complaint(
    page: str, open_page: OpenPage, client: Any
) -> None:
    app = open_page(page, client)
    assert not app.exception
    assert not app.error
    assert not app.warning
    assert app.dataframe or app.get("plotly_chart")


def test_empty_page_says_what_would_fill_it(
    page: str, open_page: OpenPage, make_client: Callable[..., Any]
) -> None:
    app = open_page(page, make_client("empty"))
    assert not app.exception
    assert not app.error
    assert any(":material/" in caption.value for caption in app.caption)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("forbidden", "needs the role operator"),
        ("error", "req-500"),
        ("down", "The control plane gives no answer"),
    ],
)
def test_page_tells_why_it_has_nothing_to_show(
    page: str, state: str, told: str, open_page: OpenPage, make_client: Callable[..., Any]
) -> None:
    app = open_page(page, make_client(state))
    assert not app.exception
    assert told in _texts(app)


def test_what_was_loaded_stays_while_the_control_plane_is_down(
    page: str, open_page: OpenPage, client: Any
) -> None:
    app = open_page(page, client)
    n_panels = len(app.markdown)
    client.state = "down"
    for key, kept in dict(app.session_state["kept_data"]).items():
        app.session_state["kept_data"][key] = _aged(kept)
    app.run()
    assert not app.exception
    assert "outage" in app.session_state
    assert len(app.markdown) >= n_panels


def _aged(kept: Any) -> Any:
    return replace(kept, at=kept.at - timedelta(hours=1))


def test_one_failed_panel_leaves_the_others(open_page: OpenPage, make_client: Callable[..., Any]) -> None:
    client = make_client()
    error = make_client("error")
    client.alerts = error.alerts
    app = open_page("overview", client)
    assert not app.exception
    assert "req-500" in _texts(app)
    assert len(app.get("plotly_chart")) == 3


def test_promoting_asks_for_a_reason_and_offers_undo(open_page: OpenPage, client: Any) -> None:
    app = open_page("versions", client)
    app.button(key="promote").click().run()
    assert app.button(key="confirm_change").disabled
    assert "−1.20 points" in _texts(app)
    app.text_input(key="change_reason").set_value("refit passed the gate").run()
    assert not app.button(key="confirm_change").disabled
    app.button(key="confirm_change").click().run()
    assert "promote" in [name for name, _ in client.calls]
    assert "**v8 is active**" in _texts(app)
    app.button(key="undo").click().run()
    app.button(key="confirm_change").click().run()
    assert [name for name, _ in client.calls if name == "roll_back"] == ["roll_back"]
    assert "Back on v7" in _texts(app)


def test_tau_is_set_with_its_predicted_effect_and_taken_back(open_page: OpenPage, client: Any) -> None:
    app = open_page("tuning", client)
    assert app.button(key="tune").disabled
    app.slider(key="tau_3").set_value(0.2).run()
    app.button(key="tune").click().run()
    assert "| tau | 0.1 | **0.2** |" in _texts(app)
    assert "| at tau | 0.1 | 0.2 |" in _texts(app)
    app.text_input(key="change_reason").set_value("load is uneven").run()
    app.button(key="confirm_change").click().run()
    assert client.settings().tau == 0.2
    app.button(key="undo").click().run()
    app.button(key="confirm_change").click().run()
    assert client.settings().tau == 0.1


def test_a_refused_change_says_so_and_can_be_sent_again(
    open_page: OpenPage, make_client: Callable[..., Any]
) -> None:
    client, sent = make_client(), []

    def drain(worker_id: str, reason: str, *, idempotency_key: str) -> None:
        sent.append(idempotency_key)
        if len(sent) == 1:
            make_client("forbidden").drain(worker_id, reason)

    client.drain = drain
    app = open_page("workers", client)
    app.button(key="drain_or_resume").click().run()
    app.text_input(key="change_reason").set_value("driver update").run()
    app.button(key="confirm_change").click().run()
    assert "needs the role operator" in _texts(app)
    assert "change_notice" not in app.session_state
    again = app.button(key="confirm_change")
    assert (again.label, again.disabled) == ("Drain", False)
    again.click().run()
    assert "drains" in app.session_state["change_notice"].text
    assert sent[0] == sent[1]


def test_drain_and_resume(open_page: OpenPage, client: Any) -> None:
    app = open_page("workers", client)
    for _ in range(2):
        app.button(key="drain_or_resume").click().run()
        app.text_input(key="change_reason").set_value("driver update").run()
        app.button(key="confirm_change").click().run()
    done = [call for call in client.calls if call[0] in ("drain", "resume")]
    assert done == [("drain", ("decode-0", "driver update")), ("resume", ("decode-0", "driver update"))]


def test_alert_is_acknowledged(open_page: OpenPage, client: Any) -> None:
    app = open_page("drift_and_alerts", client)
    app.button(key="acknowledge").click().run()
    app.text_input(key="change_reason").set_value("looking").run()
    app.button(key="confirm_change").click().run()
    assert client.alerts()[0].acknowledged_by == "ops-night"
    assert app.button(key="acknowledge").disabled


def test_an_alert_that_fires_later_is_the_one_to_act_on(open_page: OpenPage, client: Any) -> None:
    first, second, _ = alerts = client.alerts()
    client.set_alerts(())
    app = open_page("drift_and_alerts", client)
    assert app.button(key="acknowledge").disabled
    for there, expected in ((alerts, first.id), ((second,), second.id)):
        client.set_alerts(there)
        del app.session_state["kept_data"]
        app.run()
        assert not app.exception
        assert app.selectbox(key="alert").value == expected
        assert not app.button(key="acknowledge").disabled


def test_a_statistic_without_a_value_says_why(open_page: OpenPage, client: Any) -> None:
    app = open_page("drift_and_alerts", client)
    figures = len(app.get("plotly_chart"))
    client.has_mix_shift = False
    del app.session_state["kept_data"]
    app.run()
    assert len(app.get("plotly_chart")) == figures - 1
    assert "Too few requests to measure it" in _texts(app)


def test_outcomes_are_words_not_identifiers(open_page: OpenPage, client: Any) -> None:
    assert "**cooling down**: last refit 720 s ago" in _texts(open_page("drift_and_alerts", client))
    runs = next(each.value for each in open_page("calibration", client).dataframe)
    assert "drift refit" in set(runs["from"])


def test_a_version_is_compared_by_each_fact_once(open_page: OpenPage, client: Any) -> None:
    app = open_page("versions", client)
    table = next(each.value for each in app.dataframe if "differs" in each.value)
    assert len(set(table[""])) == len(table[""])
    assert "n layers kept" not in set(table[""])


def test_the_runbook_of_an_alert_is_read_in_the_page(open_page: OpenPage, client: Any) -> None:
    app = open_page("drift_and_alerts", client)
    [runbook] = [each for each in app.expander if each.label == "Runbook: fit degradation"]
    assert "What to do" in runbook.markdown[0].value
    assert "# fit_degradation" not in runbook.markdown[0].value
