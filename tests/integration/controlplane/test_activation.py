import json
import threading
from datetime import timedelta

import numpy as np
import pytest

from controlplane.domain.telemetry import ExperimentState
from controlplane.services.answer_once import forget_old_answers
from controlplane.storage.models.telemetry import ExperimentRow

MIXED = np.tile(np.eye(2, dtype=np.float32), (1, 4))  # each centroid has half of each topic


class Live:
    """Shorthand for what these tests ask over and over."""

    def __init__(self, operator, fleet: str, clock) -> None:
        self.operator = operator
        self.path = f"/v1/fleets/{fleet}"
        self.clock = clock

    def promote(self, version, *, is_override: bool = True, dry_run: bool = False):
        return self.operator.post(
            f"{self.path}/versions/{version['id']}/promote?dry_run={str(dry_run).lower()}",
            json={"reason": "better", "is_override": is_override},
        )

    def roll_back(self, version_id: str | None = None, *, dry_run: bool = False):
        return self.operator.post(
            f"{self.path}/rollback?dry_run={str(dry_run).lower()}",
            json={"reason": "worse", "version_id": version_id},
        )

    def at(self, moment=None):
        query = {} if moment is None else {"at": moment.isoformat()}
        return self.operator.get(f"{self.path}/live", params=query).json()

    def states(self) -> dict[int, str]:
        items = self.operator.get(f"{self.path}/versions").json()["items"]
        return {item["number"]: item["state"] for item in items}


@pytest.fixture
def live(operator, fleet: str, control_plane) -> Live:
    return Live(operator, fleet, control_plane.clock)


@pytest.fixture
def versions(upload_version, version_of):
    return [upload_version(version_of(seed=seed)) for seed in (1, 2, 3)]


def test_the_first_version_has_nothing_to_be_compared_with(live: Live, versions) -> None:
    preview = live.promote(versions[0], is_override=False, dry_run=True).json()
    assert preview["is_allowed"]
    assert preview["replaces"] is None
    assert preview["generation_after"] == 2
    assert [check["detail"] for check in preview["checks"]][-1] == "nothing active to compare with"
    assert live.states()[1] == "candidate", "a dry run changes nothing"
    promoted = live.promote(versions[0], is_override=False)
    assert promoted.status_code == 200, promoted.text
    assert promoted.json()["generation"] == 2
    assert live.states() == {1: "active", 2: "candidate", 3: "candidate"}


def test_without_decode_counts_the_gate_fails_unless_overridden(live: Live, versions) -> None:
    live.promote(versions[0])
    refused = live.promote(versions[1], is_override=False)
    assert refused.status_code == 409
    assert "no decode counts to judge by" in refused.json()["detail"]
    assert live.states() == {1: "active", 2: "candidate", 3: "candidate"}
    passed = live.promote(versions[1], is_override=True).json()
    assert passed["is_override"]
    assert live.states() == {1: "retired", 2: "active", 3: "candidate"}


def test_a_worse_version_does_not_pass_and_a_better_one_does(
    live: Live, upload_version, upload_trace, version_of, trace_of
) -> None:
    mixed, topics = upload_version(version_of(MIXED)), upload_version(version_of())
    upload_trace(trace_of(96))
    live.promote(mixed)
    better = live.promote(topics, is_override=False, dry_run=True).json()
    assert better["is_allowed"], better
    assert better["predicted_union_change_points"] < -5
    assert live.promote(topics, is_override=False).status_code == 200
    mixed_again = upload_version(version_of(MIXED, seed=9))
    worse = live.promote(mixed_again, is_override=False)
    assert worse.status_code == 409
    assert "points against the active version" in worse.json()["detail"]


def test_a_second_activation_closes_the_first(live: Live, versions, control_plane) -> None:
    start = control_plane.clock.now
    live.promote(versions[0])
    control_plane.clock.advance(60)
    live.promote(versions[1])
    control_plane.clock.advance(60)
    second, first = live.operator.get(f"{live.path}/activations").json()["items"]
    assert first["until"] == second["at"]
    assert second["until"] is None
    numbers = [
        live.at(start + timedelta(seconds=seconds))["activation"]["version_number"]
        for seconds in (0, 59.999, 60, 120)
    ]
    assert numbers == [1, 1, 2, 2]
    assert live.at()["generation"] == 3
    assert live.at(start + timedelta(seconds=30))["generation"] == 2


def test_before_the_fleet_nothing_was_live(live: Live, control_plane) -> None:
    early = live.at(control_plane.clock.now - timedelta(seconds=1))
    assert (early["status"], early["field"]) == (422, "at")
    assert live.operator.get(f"{live.path}/live?at=2026-03-01T12:00:00").status_code == 422, "no zone"


def test_rollback_goes_to_the_version_before_and_not_back_again(live: Live, versions) -> None:
    for version in versions:
        live.promote(version)
    preview = live.roll_back(dry_run=True).json()
    assert (preview["version"]["number"], preview["replaces"]["number"]) == (2, 3)
    back = live.roll_back().json()
    assert (back["kind"], back["version_number"], back["generation"]) == ("roll_back", 2, 5)
    assert live.states() == {1: "retired", 2: "active", 3: "retired"}
    assert live.roll_back().json()["version_number"] == 1, "version 3 was left for a reason"
    refused = live.roll_back()
    assert refused.status_code == 409
    assert "name one in version_id" in refused.json()["detail"]
    assert live.roll_back(versions[2]["id"]).json()["version_number"] == 3


def test_a_rollback_says_why_not(live: Live, versions) -> None:
    assert "no active version" in live.roll_back().json()["detail"]
    live.promote(versions[0])
    assert "was not rolled back from" in live.roll_back().json()["detail"]
    assert "active already" in live.roll_back(versions[0]["id"]).json()["detail"]
    never = live.roll_back(versions[1]["id"])
    assert (never.status_code, "never active" in never.json()["detail"]) == (409, True)
    assert live.roll_back("unknown").status_code == 404
    assert live.at()["generation"] == 2, "what was refused changed nothing"


def test_every_activation_is_audited_with_before_and_after(live: Live, versions) -> None:
    live.promote(versions[0])
    live.promote(versions[1])
    event = live.operator.get("/v1/audit?resource=version").json()["items"][0]
    assert (event["action"], event["actor"], event["reason"]) == ("promote", "test-operator", "better")
    before, after = json.loads(event["before"]), json.loads(event["after"])
    assert (before["version_number"], after["version_number"]) == (1, 2)
    assert before.keys() == after.keys(), "two of a kind, so that a reader can compare them"


def test_an_idempotency_key_promotes_once(live: Live, versions) -> None:
    path = f"{live.path}/versions/{versions[0]['id']}/promote"
    headers = {"Idempotency-Key": "promote-once"}
    first = live.operator.post(path, json={"reason": "go"}, headers=headers)
    second = live.operator.post(path, json={"reason": "go"}, headers=headers)
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json()
    assert second.headers["idempotent-replay"] == "true"
    other = live.operator.post(path, json={"reason": "another body"}, headers=headers)
    assert (other.status_code, other.json()["field"]) == (422, "Idempotency-Key")
    assert live.at()["generation"] == 2


def test_an_idempotency_key_sent_at_once_acts_once(live: Live, versions) -> None:
    path = f"{live.path}/versions/{versions[0]['id']}/promote"
    answers = []

    def promote() -> None:
        headers = {"Idempotency-Key": "at-once"}
        answers.append(live.operator.post(path, json={"reason": "go"}, headers=headers))

    threads = [threading.Thread(target=promote) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 6
    assert len({answer.text for answer in answers}) == 1
    assert live.at()["generation"] == 2


def test_answers_are_forgotten_after_their_time(live: Live, versions, control_plane) -> None:
    path, headers = f"{live.path}/rollback", {"Idempotency-Key": "old"}
    for version in versions:
        live.promote(version)
    first = live.operator.post(path, json={"reason": "go"}, headers=headers)
    control_plane.clock.advance(3600)
    with control_plane.change() as change:
        forget_old_answers(change.session, change.now, keep_seconds=3601)
    assert live.operator.post(path, json={"reason": "go"}, headers=headers).json() == first.json()
    with control_plane.change() as change:
        forget_old_answers(change.session, change.now, keep_seconds=3599)
    again = live.operator.post(path, json={"reason": "go"}, headers=headers)
    assert again.json()["version_number"] == 1, "the key is free again, and the request acts again"


def test_a_refused_request_leaves_its_idempotency_key_free(live: Live, versions) -> None:
    headers = {"Idempotency-Key": "later"}
    command = {"reason": "go"}
    assert live.operator.post(f"{live.path}/rollback", json=command, headers=headers).status_code == 409
    live.promote(versions[0])
    live.promote(versions[1])
    assert live.operator.post(f"{live.path}/rollback", json=command, headers=headers).status_code == 200


def test_of_many_promotions_at_once_one_is_active_and_generations_are_distinct(live: Live, versions) -> None:
    answers = []

    def promote(version) -> None:
        answers.append(live.promote(version))

    threads = [threading.Thread(target=promote, args=(version,)) for version in versions * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = [answer.json() for answer in answers if answer.status_code == 200]
    assert {answer.status_code for answer in answers} <= {200, 409}, "409: active already"
    assert {activation["version_id"] for activation in done} == {version["id"] for version in versions}
    generations = sorted(activation["generation"] for activation in done)
    assert generations == list(range(2, 2 + len(done)))
    assert sorted(live.states().values()) == ["active", "retired", "retired"]
    open_ones = [a for a in live.operator.get(f"{live.path}/activations").json()["items"] if not a["until"]]
    assert len(open_ones) == 1
    assert live.at()["generation"] == generations[-1]


def test_an_experiment_holds_promotions_and_a_rollback_ends_it(
    live: Live, versions, control_plane, fleet: str, running_experiment
) -> None:
    live.promote(versions[0])
    live.promote(versions[1])
    with control_plane.change() as change:
        change.session.add(running_experiment(fleet, change.now))
    assert "stop it first" in live.promote(versions[2]).json()["detail"]
    assert live.roll_back().status_code == 200
    with control_plane.database.read() as session:
        assert session.query(ExperimentRow).one().state == ExperimentState.STOPPED
    stop, back = live.operator.get("/v1/audit").json()["items"][1::-1]
    assert (stop["resource"], stop["action"]) == ("experiment", "stop")
    assert (stop["actor"], stop["reason"]) == (back["actor"], back["reason"])
    assert live.promote(versions[2]).status_code == 200
