"""Where the database's schema stands, and how it gets there: by migrations only."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from controlplane.errors import NotReady
from controlplane.storage.database import Database

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"
# The advisory lock of PostgreSQL under which migrations run, so that replicas do not run them at once.
MIGRATION_LOCK = 7_060_466


def migrate(database: Database, revision: str = "head") -> None:
    """Bring the schema to a revision; two processes that try it at once do it one after the other."""
    with database.connect() as connection:
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def check_schema(database: Database) -> None:
    """Refuse with the reason if the schema is not the one this code was written for."""
    with database.read() as session:
        found = MigrationContext.configure(session.connection()).get_current_revision()
    wanted = ScriptDirectory.from_config(alembic_config()).get_current_head()
    if found != wanted:
        raise NotReady(f"the schema is at revision {found}, this program needs {wanted}: run the migrations")


def alembic_config() -> Config:
    """Build Alembic's configuration without its file, which serves the `alembic` command."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return config
