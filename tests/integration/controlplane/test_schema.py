import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import delete, update
from sqlalchemy.exc import DatabaseError

from controlplane.errors import NotReady
from controlplane.storage.database import Database
from controlplane.storage.models import METADATA
from controlplane.storage.models.access import AuditEventRow
from controlplane.storage.models.calibrations import LeaseRow
from controlplane.storage.repositories.audit import AuditFilter, list_events
from controlplane.storage.schema import alembic_config, check_schema, migrate


def test_migrations_from_empty_make_what_the_models_say(database_url: str) -> None:
    database = Database(database_url)
    with database.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, METADATA) == []
    database.close()


def test_every_migration_can_be_undone_and_done_again(database_url: str) -> None:
    database = Database(database_url)
    with database.connect() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    with pytest.raises(NotReady, match="revision None"):
        check_schema(database)
    migrate(database)
    check_schema(database)
    database.close()


def test_a_reader_cannot_write(database_url: str) -> None:
    database = Database(database_url)
    with pytest.raises(DatabaseError, match=r"read.?only"), database.read() as session:
        session.execute(delete(LeaseRow))
    database.close()


def test_audit_events_cannot_be_changed_or_removed(control_plane, fleet: str) -> None:
    for statement in (update(AuditEventRow).values(actor="nobody"), delete(AuditEventRow)):
        with pytest.raises(DatabaseError, match="append-only"), control_plane.database.write() as session:
            session.execute(statement)
    with control_plane.database.read() as session:
        actors = [event.actor for event in list_events(session, AuditFilter(), before_id=None, limit=10)]
    assert actors
    assert "nobody" not in actors
