from datetime import datetime, timedelta, timezone

import pytest

from controlplane.domain.alerts import ApiKey, Role
from controlplane.errors import InvalidSettings
from controlplane.services.record_change import to_json_text
from controlplane.storage.database import Database
from controlplane.storage.models.metadata import UtcDateTime, new_id

AT_ONE_IN_BERLIN = datetime(2026, 3, 1, 13, tzinfo=timezone(timedelta(hours=1)))


def test_audited_values_are_json_with_times_in_utc() -> None:
    key = ApiKey(
        id="k", name="n", role=Role.ADMIN, created_at=AT_ONE_IN_BERLIN,
        expires_at=None, revoked_at=None, last_used_at=None,
    )  # fmt: skip
    assert to_json_text(key) == (
        '{"created_at": "2026-03-01T12:00:00Z", "expires_at": null, "id": "k", "last_used_at": null, '
        '"name": "n", "revoked_at": null, "role": "admin"}'
    )


def test_identifiers_sort_by_age_and_differ() -> None:
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert {len(each) for each in ids} == {32}
    assert ids[0][:16] <= ids[-1][:16]


def test_a_time_without_a_zone_is_not_stored() -> None:
    with pytest.raises(ValueError, match="without a zone"):
        UtcDateTime().process_bind_param(datetime(2026, 3, 1), None)  # type: ignore[arg-type]  # noqa: DTZ001


@pytest.mark.parametrize(
    "url",
    ["", "no url", "mysql://localhost/x", "sqlite://", "sqlite:///:memory:", "postgresql+psycopg2://h/x"],
)
def test_a_database_is_a_file_of_sqlite_or_postgresql(url: str) -> None:
    with pytest.raises(InvalidSettings, match="ELDR_DATABASE_URL"):
        Database(url)


def test_postgresql_means_psycopg_3() -> None:
    database = Database("postgresql://user:secret@localhost/eldr")
    assert database.url.startswith("postgresql+psycopg://")
    assert not database.is_sqlite
