import logging
from dataclasses import replace

import httpx
import pytest

from controlplane.services import manage_fleets
from controlplane.storage.database import Database

PROBLEM = "application/problem+json"


def assert_problem(answer: httpx.Response, status: int) -> dict[str, object]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"].startswith("urn:eldr:problem:")
    assert problem["title"]
    assert problem["detail"]
    assert problem["request_id"] == answer.headers["x-request-id"]
    return problem


def test_unknown_paths_and_methods_are_problems(viewer) -> None:
    assert_problem(viewer.get("/v1/nothing"), 404)
    assert "allow" in viewer.put("/v1/fleets").headers
    assert_problem(viewer.put("/v1/fleets"), 405)


def test_an_unknown_fleet_is_named(viewer) -> None:
    assert assert_problem(viewer.get("/v1/fleets/none"), 404)["detail"] == "there is no fleet 'none'"


@pytest.mark.parametrize(
    ("changes", "field", "limit"),
    [
        ({"signature_sample_share": 1.5}, "signature_sample_share", "from 0 to 1"),
        ({"name": "No Spaces"}, "name", "small letters"),
        ({"kv_block_size_tokens": "many"}, "kv_block_size_tokens", "integer"),
        ({"unknown": 1}, "unknown", "unexpected"),
        ({"shape": {"model": "m", "n_layers": 3, "n_experts": 8, "top_k": 9}}, "shape.top_k", "from 1 to 8"),
        ({"reason": ""}, "reason", "1 to 1000 characters"),
        ({"retention_days": 0}, "retention_days", "from 1"),
    ],
)
def test_a_bad_field_is_named_with_value_and_limit(admin, changes, field: str, limit: str) -> None:
    command = {
        "name": "f", "shape": {"model": "m", "n_layers": 3, "n_experts": 8, "top_k": 2}, "reason": "r",
    }  # fmt: skip
    problem = assert_problem(admin.post("/v1/fleets", json=command | changes), 422)
    assert problem["field"] == field
    assert limit in problem["limit"].lower()
    assert "value" in problem
    assert admin.get("/v1/fleets").json()["items"] == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff\xfe"])
def test_a_body_that_is_no_object_is_refused(admin, body: bytes) -> None:
    answer = admin.post("/v1/fleets", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert_problem(answer, answer.status_code)


@pytest.mark.parametrize(
    "moment",
    [
        "0001-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59-14:00",
        "9999-12-31T23:59:59Z",
    ],
)
@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("live", "at"),
        ("metrics", "since"),
        ("metrics", "until"),
        ("unions", "since"),
        ("decisions", "since"),
        ("drift", "since"),
    ],
)
def test_a_time_at_an_end_of_the_calendar_is_refused(
    viewer, fleet, path: str, field: str, moment: str
) -> None:
    problem = assert_problem(viewer.get(f"/v1/fleets/{fleet}/{path}", params={field: moment}), 422)
    assert (problem["field"], problem["limit"]) == (field, "must be a time of the years 1970 to 2999")


@pytest.mark.parametrize(
    "path",
    [
        f"/v1/audit?cursor={'9' * 20}",
        f"/v1/fleets/demo/decisions?cluster={'9' * 20}",
    ],
)
def test_a_number_that_no_column_holds_is_refused(viewer, fleet, path: str) -> None:
    assert_problem(viewer.get(path), 422)


@pytest.mark.parametrize("character", ["\\u0000", "\\ud800"])
def test_a_text_that_no_column_holds_is_stored_whole_or_refused(
    control_plane, operator, fleet, character: str
) -> None:
    body = b'{"tau": 0.5, "reason": "a' + character.encode() + b'b"}'
    headers = {"If-Match": "*", "Content-Type": "application/json"}
    answer = operator.patch(f"/v1/fleets/{fleet}/settings", content=body, headers=headers)
    has_place = control_plane.database.is_sqlite and character == "\\u0000"
    assert answer.status_code == (200 if has_place else 422), answer.text
    assert operator.get(f"/v1/fleets/{fleet}/settings").json()["tau"] == (0.5 if has_place else 0.1)


def test_a_path_with_a_nul_is_an_unknown_name_or_refused(control_plane, viewer) -> None:
    assert_problem(viewer.get("/v1/fleets/a%00b"), 404 if control_plane.database.is_sqlite else 422)


@pytest.mark.parametrize("kind", ["application/json", "application/octet-stream", "text/plain"])
def test_a_message_over_the_limit_is_refused(anonymous, kind: str) -> None:
    body = b'{"name": "' + b"x" * (32 * 1024 * 1024) + b'"}'
    assert_problem(anonymous.post("/v1/fleets", content=body, headers={"Content-Type": kind}), 413)


def test_a_client_may_name_its_request(viewer) -> None:
    named = viewer.get("/v1/fleets", headers={"X-Request-Id": "trace.me-1"})
    assert named.headers["x-request-id"] == "trace.me-1"
    forged = viewer.get("/v1/fleets", headers={"X-Request-Id": "two words"})
    assert forged.headers["x-request-id"] != "two words"


def test_what_nobody_expected_is_500_and_logged_with_its_request_id(
    control_plane, viewer, fleet: str, caplog: pytest.LogCaptureFixture
) -> None:
    with control_plane.change() as change:  # a fleet without settings, which cannot be
        change.session.query(manage_fleets.SettingsRevisionRow).delete()
    with caplog.at_level(logging.ERROR):
        answer = viewer.get(f"/v1/fleets/{fleet}/settings", headers={"X-Request-Id": "broken-1"})
    problem = assert_problem(answer, 500)
    assert "NoResultFound" not in answer.text
    assert problem["detail"] == "an unexpected error, logged under request id broken-1"
    assert any("broken-1" in record.message and record.exc_info for record in caplog.records)


def test_logs_name_requests_and_no_secrets(admin, control_plane, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        made = admin.post("/v1/keys", json={"name": "k", "role": "viewer", "reason": "r"})
        admin.get("/v1/fleets?token=in-the-query")
        admin.post("/v1/keys", json={"name": "k", "role": "viewer", "reason": "r"})
    ours = [r.getMessage() + str(r.args) for r in caplog.records if r.name.startswith("controlplane")]
    assert any("POST /v1/keys 201" in line for line in ours)
    text = "\n".join(ours)
    for secret in (made.json()["secret"].rpartition("_")[2], "in-the-query", "Bearer"):
        assert secret not in text


def test_a_locked_database_is_503_after_a_while(control_plane, viewer, operator, fleet: str) -> None:
    impatient = Database(control_plane.database.url, lock_timeout_seconds=0.2)
    state = control_plane.switched.state
    control_plane.switched.state = replace(state, database=impatient)
    viewer.get("/v1/fleets")
    operator.get("/v1/fleets")  # notes the use of the key, which writes
    path, headers = f"/v1/fleets/{fleet}/settings", {"If-Match": '"1"'}
    with control_plane.change() as change:
        manage_fleets.lock_fleet(change.session, fleet)
        assert viewer.get(path).status_code == 200, "readers do not wait for a writer"
        busy = operator.patch(path, json={"reason": "now", "tau": 0.5}, headers=headers)
    assert_problem(busy, 503)
    assert busy.headers["retry-after"] == "1"
    assert operator.patch(path, json={"reason": "now", "tau": 0.5}, headers=headers).status_code == 200
    impatient.close()
