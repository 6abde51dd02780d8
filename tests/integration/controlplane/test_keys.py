from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict

import httpx
import pytest

from controlplane.domain.alerts import CreateApiKey, Role
from controlplane.services.manage_keys import bootstrap_admin_key, make_key, revoke_key

PROBLEM = "application/problem+json"


@pytest.fixture
def get(anonymous: httpx.Client):
    def send(token: str | None, path: str = "/v1/fleets") -> httpx.Response:
        return anonymous.get(path, headers={} if token is None else {"Authorization": f"Bearer {token}"})

    return send


@pytest.mark.parametrize("token", [None, "nonsense", "eldr_0_0", "eldr_" + "0" * 32 + "_" + "0" * 64])
def test_without_a_known_key_the_answer_is_401(get, token: str | None) -> None:
    answer = get(token)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == PROBLEM
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_a_key_works_until_it_expires(get, control_plane, admin: httpx.Client) -> None:
    command = {"name": "short", "role": "viewer", "reason": "an hour of reading", "expires_in_seconds": 3600}
    made = admin.post("/v1/keys", json=command)
    assert made.status_code == 201
    token = made.json()["secret"]
    assert get(token).status_code == 200
    control_plane.clock.advance(3600)
    late = get(token)
    assert late.status_code == 401
    assert "expired at" in late.json()["detail"]


def test_a_revoked_key_is_refused_and_says_so(get, admin: httpx.Client) -> None:
    made = admin.post("/v1/keys", json={"name": "k", "role": "viewer", "reason": "r"}).json()
    revoked = admin.post(f"/v1/keys/{made['key']['id']}/revoke", json={"reason": "leaked"})
    assert revoked.json()["revoked_at"] is not None
    refused = get(made["secret"])
    assert (refused.status_code, "revoked" in refused.json()["detail"]) == (401, True)


def test_roles_below_the_needed_one_are_refused(control_plane, operator: httpx.Client) -> None:
    refused = operator.post("/v1/keys", json={"name": "k", "role": "admin", "reason": "r"})
    assert refused.status_code == 403
    assert "this needs admin" in refused.json()["detail"]


def test_the_secret_is_nowhere_but_in_the_first_answer(control_plane, admin: httpx.Client) -> None:
    made = admin.post("/v1/keys", json={"name": "k", "role": "viewer", "reason": "r"}).json()
    secret = made["secret"].rpartition("_")[2]
    listing = admin.get("/v1/keys").text + admin.get("/v1/audit").text
    assert made["key"]["id"] in listing
    assert secret not in listing
    repeated = admin.post(
        "/v1/keys",
        json={"name": "k2", "role": "viewer", "reason": "r"},
        headers={"Idempotency-Key": "once"},
    )
    assert repeated.status_code == 400


def test_two_usable_keys_cannot_have_one_name(admin: httpx.Client) -> None:
    command = {"name": "twin", "role": "viewer", "reason": "r"}
    assert admin.post("/v1/keys", json=command).status_code == 201
    assert admin.post("/v1/keys", json=command).status_code == 409


def test_of_two_keys_made_at_once_one_gets_the_name(control_plane, admin: httpx.Client) -> None:
    admin.get("/v1/keys")  # notes the use of the key, which writes
    command = CreateApiKey(name="twin", role=Role.VIEWER, reason="r")
    with ThreadPoolExecutor(1) as pool:
        with control_plane.change() as change:
            make_key(change, command)
            second = pool.submit(admin.post, "/v1/keys", json=asdict(command))
            wait([second], timeout=0.5)
        assert second.result().status_code == 409


def test_two_admins_cannot_revoke_each_other_at_once(control_plane, admin: httpx.Client) -> None:
    admin.get("/v1/keys")
    own = next(key for key in admin.get("/v1/keys").json()["items"] if key["role"] == "admin")
    with control_plane.change() as change:
        other = make_key(change, CreateApiKey(name="other", role=Role.ADMIN, reason="r"))
    with ThreadPoolExecutor(1) as pool:
        with control_plane.change() as change:
            revoke_key(change, other.key.id, "r")
            second = pool.submit(admin.post, f"/v1/keys/{own['id']}/revoke", json={"reason": "r"})
            wait([second], timeout=0.5)
        assert second.result().status_code == 409
    assert admin.get("/v1/keys").status_code == 200


def test_the_last_admin_key_stays(control_plane, admin: httpx.Client) -> None:
    own = next(key for key in admin.get("/v1/keys").json()["items"] if key["role"] == "admin")
    refused = admin.post(f"/v1/keys/{own['id']}/revoke", json={"reason": "by mistake"})
    assert refused.status_code == 409
    assert admin.get("/v1/keys").status_code == 200


def test_first_start_makes_one_admin_key(get, control_plane) -> None:
    made = bootstrap_admin_key(control_plane.database, control_plane.clock())
    assert made is not None
    assert made.key.role is Role.ADMIN
    assert bootstrap_admin_key(control_plane.database, control_plane.clock()) is None
    assert get(made.secret, "/v1/keys").status_code == 200


def test_use_is_noted_once_a_minute(control_plane, admin: httpx.Client) -> None:
    def last_used() -> str:
        return admin.get("/v1/keys").json()["items"][-1]["last_used_at"]

    first = last_used()
    control_plane.clock.advance(59)
    assert last_used() == first
    control_plane.clock.advance(3)
    last_used()
    assert last_used() != first
