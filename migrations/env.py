"""Alembic's entry: runs migrations on the connection it is given, or on the database the settings name."""

import os

from alembic import context
from sqlalchemy import Connection

from controlplane.settings import Settings
from controlplane.storage.database import Database
from controlplane.storage.models import METADATA


def run(connection: Connection) -> None:
    """Run the migrations in the connection's transaction."""
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    database = Database(Settings.from_environment(os.environ).database_url)
    with database.connect() as connection:
        run(connection)
    database.close()
