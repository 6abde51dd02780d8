"""Leases: who may act under a name, until when by the clock of the database."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import select, text
from sqlalchemy.dialects import postgresql, sqlite

from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.calibrations import LeaseRow


def server_now(session: ReadSession) -> datetime:
    """Read the clock of the database, which all holders of a lease share."""
    if session.get_bind().dialect.name == "sqlite":
        statement = text("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')")
        return datetime.fromisoformat(str(session.execute(statement).scalar_one())).replace(tzinfo=UTC)
    found: datetime = session.execute(text("SELECT clock_timestamp()")).scalar_one()
    return found.astimezone(UTC)


def take_lease(session: WriteSession, name: str, holder: str, seconds: float) -> int | None:
    """Take a lease that is free or run out, or renew one's own; return its epoch, None if another holds it.

    The epoch goes up with each change of hands, and when a holder lets its lease run out.
    """
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    now = server_now(session)
    expires_at = now + timedelta(seconds=seconds)
    first = insert(LeaseRow).values(name=name, holder=holder, epoch=1, expires_at=expires_at)
    session.execute(first.on_conflict_do_nothing())
    row = _lock(session, name)
    assert row is not None, "made above if it was not there"
    if row.holder != holder or row.expires_at <= now:
        if row.expires_at > now:
            return None
        row.holder = holder
        row.epoch += 1
    row.expires_at = expires_at
    session.flush()
    return row.epoch


def holds_lease(session: WriteSession, name: str, holder: str, epoch: int) -> bool:
    """Whether a holder still has its lease; nobody else can take it before this transaction ends."""
    row = _lock(session, name)
    if row is None or (row.holder, row.epoch) != (holder, epoch):
        return False
    return row.expires_at > server_now(session)


def give_up_lease(session: WriteSession, name: str, holder: str) -> None:
    """End one's own lease at once, so that another process need not wait for it to run out."""
    row = _lock(session, name)
    if row is not None and row.holder == holder:
        row.expires_at = server_now(session)
        session.flush()


def _lock(session: WriteSession, name: str) -> LeaseRow | None:
    statement = select(LeaseRow).where(LeaseRow.name == name).with_for_update()
    return session.scalars(statement.execution_options(populate_existing=True)).one_or_none()
