"""The database: engine, and the two kinds of session.

A reader cannot write and a writer takes its lock at once, on both databases: SQLite by `BEGIN` with
`query_only` and by `BEGIN IMMEDIATE`, PostgreSQL by read-only and by ordinary transactions.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from sqlite3 import Connection as SqliteConnection
from typing import NewType

from sqlalchemy import Connection, ExceptionContext, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DataError, IntegrityError, OperationalError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from controlplane.errors import Conflict, InvalidSettings, NotReady, UnstorableValue

logger = logging.getLogger(__name__)

ReadSession = NewType("ReadSession", Session)
WriteSession = NewType("WriteSession", ReadSession)

# One thread holds at most one connection; the web server's pool has 40 threads and jobs have a few.
POOL_SIZE = 10
POOL_OVERFLOW = 40
# A writer waits for another one this long. The longest, storing a trace pack of 512 MiB, takes seconds.
LOCK_TIMEOUT_SECONDS = 20.0
UNAVAILABLE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_FULL")


class Database:
    """One database, opened."""

    def __init__(self, url: str, *, lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> None:
        self.url = _driver_url(url)
        self._engine = create_engine(
            self.url,
            pool_size=POOL_SIZE,
            max_overflow=POOL_OVERFLOW,
            hide_parameters=True,  # parameters hold key hashes and users' expert counts; errors are logged
            connect_args=_connect_args(self.url, lock_timeout_seconds),
        )
        self._readers = self._engine.execution_options(eldr_access="read")
        self._writers = self._engine.execution_options(eldr_access="write")
        event.listen(self._engine, "handle_error", _refuse_unstorable)
        if self.is_sqlite:
            event.listen(self._engine, "connect", _prepare_sqlite)
            event.listen(self._engine, "begin", _begin_sqlite)
        else:
            self._readers = self._engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )

    @property
    def is_sqlite(self) -> bool:
        """Whether this is SQLite, which has one writer at a time."""
        return self._engine.dialect.name == "sqlite"

    @contextmanager
    def read(self) -> Iterator[ReadSession]:
        """Open one transaction that only reads, and sees one state of everything."""
        with _refusals(), Session(self._readers, expire_on_commit=False) as session:
            yield ReadSession(session)

    @contextmanager
    def write(self) -> Iterator[WriteSession]:
        """Open one transaction that writes: committed at the end of the block, rolled back on any error."""
        with _refusals(), Session(self._writers, expire_on_commit=False) as session, session.begin():
            session.connection()  # take the writer's lock before the first read
            yield WriteSession(ReadSession(session))

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Open a connection for migrations, committed at the end of the block."""
        with self._writers.begin() as connection:
            yield connection

    def check_reachable(self) -> None:
        """Refuse with the reason if the database does not answer."""
        with self.read() as session:
            session.execute(text("SELECT 1"))

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn what the database refuses in the course of things into errors a client can act on."""
    try:
        yield
    except OperationalError as error:
        if not _is_unavailable(error):
            raise
        logger.warning("the database refuses: %s", error)
        raise NotReady("the database is busy or does not answer; try again") from error
    except IntegrityError as error:
        if not _is_unique_violation(error):
            raise
        raise Conflict("another request made the same thing at the same time") from error


def _refuse_unstorable(context: ExceptionContext) -> None:
    """Refuse what the driver or the database cannot take as a value: that is its sender's to mend.

    Such are integers of too many bits, too long texts, half a surrogate pair, NUL in PostgreSQL.
    """
    cause = context.original_exception
    if isinstance(cause, OverflowError | UnicodeEncodeError) or isinstance(
        context.sqlalchemy_exception, DataError
    ):
        reason = str(cause).splitlines()[0]
        raise UnstorableValue(f"a value cannot be stored or looked for: {reason}") from cause


def _is_unavailable(error: OperationalError) -> bool:
    """Whether it is no fault of the statement; psycopg's class says so, of SQLite's only some codes do."""
    code = getattr(error.orig, "sqlite_errorname", None)
    return code is None or code.startswith(UNAVAILABLE)


def _is_unique_violation(error: IntegrityError) -> bool:
    code = getattr(error.orig, "sqlite_errorname", None) or getattr(error.orig, "sqlstate", None)
    return code in ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "23505")


def _driver_url(url: str) -> str:
    """Name the driver: a plain `postgresql://` means psycopg 3."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise InvalidSettings("ELDR_DATABASE_URL is not a URL of a database") from error
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise InvalidSettings(f"ELDR_DATABASE_URL names {parsed.drivername}; must be sqlite or postgresql")
    if parsed.drivername == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise InvalidSettings("ELDR_DATABASE_URL names no file; SQLite in memory is not shared by threads")
    return parsed.render_as_string(hide_password=False)


def _connect_args(url: str, lock_timeout_seconds: float) -> dict[str, object]:
    if url.startswith("sqlite"):
        return {"timeout": lock_timeout_seconds, "isolation_level": None}  # `_begin_sqlite` begins
    return {
        "connect_timeout": 5,
        "options": f"-c lock_timeout={int(lock_timeout_seconds * 1000)} -c timezone=UTC",
    }


def _prepare_sqlite(connection: SqliteConnection, entry: ConnectionPoolEntry) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    access = connection.get_execution_options().get("eldr_access")
    connection.exec_driver_sql(f"PRAGMA query_only={int(access == 'read')}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if access == "write" else "BEGIN")
