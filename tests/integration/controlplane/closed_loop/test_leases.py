"""The lease of the background work: one holder at a time, and a late one writes nothing."""

from datetime import timedelta
from typing import Any

import pytest

from controlplane.jobs.lease import FencedDatabase, LeaseLost, give_up_lease, name_holder, take_lease
from controlplane.storage.models.calibrations import LeaseRow
from controlplane.storage.repositories import leases


def run_out(control_plane: Any) -> None:
    with control_plane.database.write() as session:
        for row in session.query(LeaseRow):
            row.expires_at -= timedelta(seconds=100)


def test_one_holds_it_and_renews_it_under_the_same_epoch(control_plane: Any) -> None:
    first = take_lease(control_plane.database, "a")
    assert first is not None
    assert take_lease(control_plane.database, "b") is None
    assert take_lease(control_plane.database, "a") == first


def test_a_new_holder_has_a_higher_epoch(control_plane: Any) -> None:
    first = take_lease(control_plane.database, "a")
    run_out(control_plane)
    second = take_lease(control_plane.database, "b")
    assert first is not None
    assert second is not None
    assert (second.holder, second.epoch) == ("b", first.epoch + 1)
    assert take_lease(control_plane.database, "a") is None


def test_who_let_it_run_out_starts_a_new_epoch(control_plane: Any) -> None:
    first = take_lease(control_plane.database, "a")
    run_out(control_plane)
    again = take_lease(control_plane.database, "a")
    assert first is not None
    assert again is not None
    assert again.epoch == first.epoch + 1


def test_a_late_former_holder_writes_nothing(control_plane: Any, fleet: str) -> None:
    lease = take_lease(control_plane.database, "a")
    assert lease is not None
    fenced = FencedDatabase(database=control_plane.database, lease=lease)
    with fenced.change("system", control_plane.clock.now) as change:
        change.audit(action="x", resource="test", resource_id="in time", reason="a test")
    run_out(control_plane)
    with pytest.raises(LeaseLost), fenced.change("system", control_plane.clock.now) as change:
        change.audit(action="x", resource="test", resource_id="run out", reason="a test")
    take_lease(control_plane.database, "b")
    with pytest.raises(LeaseLost), fenced.change("system", control_plane.clock.now) as change:
        change.audit(action="x", resource="test", resource_id="taken over", reason="a test")


def test_a_lease_given_up_is_free_at_once(control_plane: Any) -> None:
    take_lease(control_plane.database, "a")
    give_up_lease(control_plane.database, "b")
    assert take_lease(control_plane.database, "b") is None
    give_up_lease(control_plane.database, "a")
    assert take_lease(control_plane.database, "b") is not None


def test_the_clock_is_that_of_the_database(control_plane: Any) -> None:
    with control_plane.database.read() as session:
        first, second = leases.server_now(session), leases.server_now(session)
    assert first <= second
    assert first.tzinfo is not None


def test_processes_have_different_names() -> None:
    assert name_holder() != name_holder()
