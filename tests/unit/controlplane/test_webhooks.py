import json
from datetime import UTC, datetime

import httpx
import pytest

from controlplane.domain.alerts import Alert, AlertState
from controlplane.jobs.webhooks import split_urls, webhook_teller

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def alert() -> Alert:
    return Alert(
        id="a1",
        fleet="demo",
        rule="worker_lost",
        subject="decode-0",
        fingerprint="f",
        severity="critical",
        state=AlertState.FIRING,
        summary="decode worker decode-0 was last seen at 11:59:00 UTC",
        value=1.0,
        threshold=0.5,
        n=None,
        runbook="docs/runbooks/worker_lost.md",
        started_at=NOON,
        fired_at=NOON,
        resolved_at=None,
        acknowledged_at=None,
        acknowledged_by=None,
        silenced_until=None,
        silenced_by=None,
    )


def test_all_are_told_and_one_is_enough(alert: Alert) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(500 if request.url.host == "down" else 204)

    tell = webhook_teller(("http://down/x", "http://up/y"), httpx.MockTransport(answer))
    assert tell(alert)
    assert [request.url.host for request in seen] == ["down", "up"]
    body = json.loads(seen[1].content)
    assert (body["event"], body["alert"]["subject"], body["alert"]["fired_at"]) == (
        "alert firing",
        "decode-0",
        "2026-03-01T12:00:00Z",
    )


def test_nobody_there_is_told_again_and_its_address_is_not_logged(
    alert: Alert, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    assert not webhook_teller(("http://hooks.example/secret",), httpx.MockTransport(refuse))(alert)
    assert "hooks.example" in caplog.text
    assert "secret" not in caplog.text


def test_urls_of_the_setting() -> None:
    assert split_urls(" http://a/x, ,http://b ") == ("http://a/x", "http://b")
    assert split_urls("") == ()
