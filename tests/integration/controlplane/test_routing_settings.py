import threading

import pytest

from controlplane.services.tune_settings import revert_due_settings


@pytest.fixture
def path(fleet: str) -> str:
    return f"/v1/fleets/{fleet}/settings"


def tune(client, path: str, revision: object, **knobs: object):
    headers = {} if revision is None else {"If-Match": f'"{revision}"'}
    return client.patch(path, json={"reason": "try it"} | knobs, headers=headers)


def test_a_change_is_a_revision_and_a_generation(viewer, operator, path: str) -> None:
    before = viewer.get(path)
    assert before.headers["etag"] == '"1"'
    assert before.json()["policy"] == "eldr_capped"
    changed = tune(operator, path, 1, tau=0.3)
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    value = changed.json()
    assert (value["tau"], value["load_cap"], value["generation"]) == (0.3, 1.25, 2)
    assert (value["changed_by"], value["reason"]) == ("test-operator", "try it")
    assert viewer.get(path).json() == value
    revisions = viewer.get(f"{path}/revisions").json()["items"]
    assert [item["revision"] for item in revisions] == [2, 1]


def test_a_load_cap_of_zero_takes_the_cap_away(operator, path: str) -> None:
    assert tune(operator, path, 1, load_cap=0).json()["load_cap"] is None
    assert tune(operator, path, 2, load_cap=1.5).json()["load_cap"] == 1.5


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("tau", -0.01),
        ("tau", 2.01),
        ("load_cap", 0.5),
        ("load_cap", -1.0),
        ("policy", "magic"),
        ("control_share", 0.51),
        ("control_share", -0.1),
        ("auto_revert_seconds", 1.0),
    ],
)
def test_a_knob_out_of_its_range_is_refused(operator, path: str, knob: str, value: object) -> None:
    refused = tune(operator, path, 1, **{knob: value})
    problem = refused.json()
    assert (refused.status_code, problem["field"], problem["value"]) == (422, knob, str(value))
    assert problem["limit"]
    assert operator.get(path).json()["revision"] == 1


def test_nan_and_unknown_fields_are_refused(operator, path: str) -> None:
    headers = {"If-Match": '"1"', "Content-Type": "application/json"}
    nan = operator.patch(path, content=b'{"reason": "x", "tau": NaN}', headers=headers)
    assert nan.status_code in (400, 422)
    assert tune(operator, path, 1, tua=0.2).json()["field"] == "tua"
    assert operator.get(path).json()["revision"] == 1


def test_a_stale_revision_is_refused_with_the_current_state(operator, path: str) -> None:
    tune(operator, path, 1, tau=0.3)
    stale = tune(operator, path, 1, tau=0.4)
    assert (stale.status_code, stale.headers["etag"]) == (412, '"2"')
    assert stale.json()["current"]["tau"] == 0.3
    assert operator.get(path).json()["tau"] == 0.3


def test_of_two_changes_at_once_one_is_stale(operator, path: str) -> None:
    answers = []
    threads = [
        threading.Thread(target=lambda tau=tau: answers.append(tune(operator, path, 1, tau=tau)))
        for tau in (0.2, 0.3, 0.4, 0.5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412]
    assert operator.get(path).json()["revision"] == 2


def test_an_experiment_holds_the_knobs(
    control_plane, operator, path: str, fleet: str, running_experiment
) -> None:
    with control_plane.change() as change:
        change.session.add(running_experiment(fleet, change.now))
    refused = tune(operator, path, 1, tau=0.3)
    assert (refused.status_code, "stop it first" in refused.json()["detail"]) == (409, True)


def test_if_match_is_required_and_must_be_readable(operator, path: str) -> None:
    assert tune(operator, path, None, tau=0.4).status_code == 428
    unreadable = operator.patch(path, json={"reason": "x"}, headers={"If-Match": "one"})
    assert unreadable.status_code == 400
    anything = operator.patch(path, json={"reason": "x", "tau": 0.2}, headers={"If-Match": "*"})
    assert anything.status_code == 200


def test_a_dry_run_changes_nothing(operator, path: str) -> None:
    preview = operator.patch(f"{path}?dry_run=true", json={"reason": "what if", "tau": 0.5})
    assert preview.status_code == 200
    assert (preview.json()["tau"], preview.json()["before"]["tau"]) == (0.5, 0.1)
    assert operator.get(path).json()["revision"] == 1
    assert operator.patch(f"{path}?dry_run=true", json={"reason": "x", "tau": 5}).status_code == 422


def run_tick(control_plane) -> list[float]:
    with control_plane.change("system") as change:
        return [settings.tau for settings in revert_due_settings(change)]


def test_settings_revert_by_themselves(control_plane, operator, path: str) -> None:
    changed = tune(operator, path, 1, tau=0.5, auto_revert_seconds=60).json()
    assert changed["revert_at"] == "2026-03-01T12:01:00Z"
    control_plane.clock.advance(59)
    assert run_tick(control_plane) == []
    control_plane.clock.advance(1)
    assert run_tick(control_plane) == [0.1]
    assert run_tick(control_plane) == []
    reverted = operator.get(path).json()
    assert (reverted["revision"], reverted["tau"], reverted["revert_at"]) == (3, 0.1, None)
    assert (reverted["changed_by"], reverted["generation"]) == ("system", 3)


def test_a_later_change_by_a_person_stays(control_plane, operator, path: str) -> None:
    tune(operator, path, 1, tau=0.5, auto_revert_seconds=60)
    tune(operator, path, 2, tau=0.7)
    control_plane.clock.advance(61)
    assert run_tick(control_plane) == []
    assert operator.get(path).json()["tau"] == 0.7


def test_reverts_one_in_the_other_unwind(control_plane, operator, path: str) -> None:
    tune(operator, path, 1, tau=0.5, auto_revert_seconds=60)
    tune(operator, path, 2, tau=0.7, auto_revert_seconds=30)
    control_plane.clock.advance(30)
    assert run_tick(control_plane) == [0.5]
    assert operator.get(path).json()["revert_at"] == "2026-03-01T12:01:00Z"
    control_plane.clock.advance(30)
    assert run_tick(control_plane) == [0.1]


def test_reverts_due_together_go_to_the_first(control_plane, operator, path: str) -> None:
    tune(operator, path, 1, tau=0.5, auto_revert_seconds=60)
    tune(operator, path, 2, tau=0.7, auto_revert_seconds=30)
    control_plane.clock.advance(300)
    assert run_tick(control_plane) == [0.1]
