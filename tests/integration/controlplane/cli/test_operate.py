"""`eldr versions`, `eldr tau` and `eldr keys`."""

import pytest

from controlplane.domain.alerts import Role


@pytest.fixture
def two_versions(upload_version, version_of) -> None:
    upload_version(version_of())
    upload_version(version_of(seed=2))


def test_a_version_is_promoted_and_rolled_back(eldr, two_versions) -> None:
    first = eldr("versions", "promote", 1, "--reason", "the first", "--override")
    assert (first.status, first.err) == (0, "")
    assert first.out.startswith("version 1 is active as generation ")
    promoted = eldr("versions", "promote", 2, "--reason", "the next", "--override", "--json").document
    assert (promoted["version_number"], promoted["kind"], promoted["reason"]) == (2, "promote", "the next")
    back = eldr("versions", "rollback", "--reason", "worse").out
    assert back.startswith("version 1 is active as generation ")
    forward = eldr("versions", "rollback", "--to", 2, "--reason", "better", "--json").document
    assert (forward["version_number"], forward["kind"]) == (2, "roll_back")
    states = {row["number"]: row["state"] for row in eldr("versions", "list", "--json").document}
    assert states == {2: "active", 1: "retired"}


def test_the_gate_refuses_without_override_and_says_why(eldr, two_versions) -> None:
    assert eldr("versions", "promote", 1, "--reason", "the first").status == 0
    ended = eldr("versions", "promote", 2, "--reason", "hurry")
    assert (ended.status, ended.out) == (2, "")
    assert "no decode counts to judge by" in ended.err
    assert len(ended.err.splitlines()) == 1
    assert eldr("versions", "list", "--json").document[0]["state"] == "candidate"


def test_versions_are_listed_rejected_and_looked_up(eldr, two_versions) -> None:
    table = eldr("versions", "list")
    assert "candidate" in table.out
    assert "not judged" in table.out
    assert eldr("versions", "reject", 2, "--reason", "not wanted").out == "version 2 is rejected\n"
    unknown = eldr("versions", "promote", 9, "--reason", "typing mistake")
    assert unknown.status == 2
    assert "there is no version 9; there are: 2, 1" in unknown.err


def test_what_was_live_at_a_moment(eldr, control_plane, two_versions) -> None:
    before = control_plane.clock.now
    control_plane.clock.advance(60)
    eldr("versions", "promote", 1, "--reason", "the first", "--override")
    control_plane.clock.advance(60)
    assert eldr("versions", "live", "--at", before.isoformat(), "--json").document["activation"] is None
    after = eldr("versions", "live", "--at", control_plane.clock.now.isoformat()).out
    assert "1, by test-operator" in after


def test_tau_is_set_live_with_its_reason(eldr) -> None:
    before = eldr("tau", "show", "--json").document
    ended = eldr("tau", "set", 0.25, "--reason", "more locality", "--load-cap", 1.5)
    assert (ended.status, ended.err) == (0, "")
    after = eldr("tau", "show", "--json").document
    assert (after["tau"], after["load_cap"], after["reason"]) == (0.25, 1.5, "more locality")
    assert (after["revision"], after["changed_by"]) == (before["revision"] + 1, "test-operator")
    assert after["generation"] > before["generation"]
    assert "more locality" in eldr("tau", "show").out


def test_a_tau_out_of_range_names_field_value_and_limit(eldr) -> None:
    ended = eldr("tau", "set", 2.5, "--reason", "mistake")
    assert (ended.status, ended.out) == (2, "")
    for part in ("tau", "2.5"):
        assert part in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_viewer_may_look_and_not_touch(eldr_as) -> None:
    viewer = eldr_as(Role.VIEWER)
    assert viewer("tau", "show").status == 0
    ended = viewer("tau", "set", 0.2, "--reason", "curious")
    assert ended.status == 2
    assert "viewer" in ended.err


def test_keys_are_made_shown_once_and_revoked(eldr_as) -> None:
    admin = eldr_as(Role.ADMIN)
    made = admin("keys", "create", "night-shift", "--role", "viewer", "--reason", "joins")
    assert (made.status, made.err) == (0, "")
    secret = made.out.strip()
    listed = admin("keys", "list")
    assert "night-shift" in listed.out
    assert secret not in listed.out
    key = next(row for row in admin("keys", "list", "--json").document if row["name"] == "night-shift")
    assert secret.startswith(f"eldr_{key['id']}_")
    assert admin("keys", "revoke", key["id"], "--reason", "left").out == "night-shift is revoked\n"
    refused = admin("tau", "show", "--api-key", secret)
    assert refused.status == 2
    assert "night-shift" in refused.err
    assert "was revoked at" in refused.err


def test_keys_are_for_administrators(eldr) -> None:
    ended = eldr("keys", "list")
    assert (ended.status, ended.out) == (2, "")


def test_a_fleet_nobody_knows_and_a_key_nobody_knows(eldr_as) -> None:
    operator = eldr_as(Role.OPERATOR)
    unknown = operator("tau", "show", "--api-key", "eldr_1_2")
    assert unknown.status == 2
    assert "the key is not known" in unknown.err


@pytest.mark.parametrize("name", ["a\nb", "../../fleets/demo", "a?b#c", "\udcff"])
def test_an_argument_that_is_no_name_stays_one_part_of_the_path(eldr_as, name: str) -> None:
    ended = eldr_as(Role.ADMIN)("keys", "revoke", name, "--reason", "typing mistake")
    assert (ended.status, ended.out) == (2, "")
    assert len(ended.err.splitlines()) == 1
    assert "there is no key" in ended.err or f"POST /v1/keys/{name}/revoke" in ended.err


def test_a_reason_that_is_no_text_is_refused(eldr) -> None:
    ended = eldr("tau", "set", 0.2, "--reason", "half a pair \udcff")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == "eldr: '\\udcff' is no text that can be sent\n"
    assert eldr("tau", "show", "--json").document["revision"] == 1
