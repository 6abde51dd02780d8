"""Alerts: one open row a fingerprint, and the closed ones before it."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, func, select, update

from controlplane.domain.alert_rules import AlertStatus
from controlplane.domain.alerts import Alert, AlertState
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.alerts import AlertRow

OPEN = 0


def list_open(session: ReadSession, fleet: str) -> list[AlertRow]:
    """List the open alerts of a fleet, those that are only pending too."""
    statement = select(AlertRow).where(AlertRow.fleet == fleet, AlertRow.resolution == OPEN)
    return list(session.scalars(statement.order_by(AlertRow.id)))


def list_alerts(
    session: ReadSession, fleet: str, *, state: AlertState | None, before_id: str | None, limit: int
) -> list[Alert]:
    """List alerts of a fleet, newest first."""
    statement = select(AlertRow).where(AlertRow.fleet == fleet)
    if state is not None:
        statement = statement.where(AlertRow.state == state)
    if before_id is not None:
        statement = statement.where(AlertRow.id < before_id)
    return [to_alert(row) for row in session.scalars(statement.order_by(AlertRow.id.desc()).limit(limit))]


def list_to_notify(session: ReadSession, fleet: str, now: datetime) -> list[AlertRow]:
    """List the firing alerts that nobody was told of and that are not silenced."""
    statement = select(AlertRow).where(
        AlertRow.fleet == fleet, AlertRow.state == AlertState.FIRING, AlertRow.notified_at.is_(None)
    )
    rows = session.scalars(statement.order_by(AlertRow.id))
    return [row for row in rows if row.silenced_until is None or row.silenced_until <= now]


def mark_notified(session: WriteSession, alert_ids: Sequence[str], now: datetime) -> None:
    """Note that somebody was told of alerts."""
    statement = update(AlertRow).where(AlertRow.id.in_(alert_ids)).values(notified_at=now)
    session.execute(statement.execution_options(synchronize_session=False))


def lock_alert(session: WriteSession, fleet: str, alert_id: str) -> AlertRow | None:
    """Find an alert of a fleet and keep others from changing it."""
    row = session.get(AlertRow, alert_id, with_for_update=True, populate_existing=True)
    return row if row is not None and row.fleet == fleet else None


def add_alert(session: WriteSession, row: AlertRow) -> None:
    """Add an alert."""
    session.add(row)
    session.flush()


def remove_alert(session: WriteSession, row: AlertRow) -> None:
    """Remove an alert that never fired."""
    session.delete(row)
    session.flush()


def close_alert(session: WriteSession, row: AlertRow) -> None:
    """Give a resolved alert its number among those of its fingerprint, so that a new one may open."""
    statement = select(func.max(AlertRow.resolution)).where(
        AlertRow.fleet == row.fleet, AlertRow.fingerprint == row.fingerprint
    )
    row.resolution = (session.scalars(statement).one() or 0) + 1
    session.flush()


def forget_closed(session: WriteSession, fleet: str, before: datetime) -> None:
    """Remove alerts that were resolved before a time."""
    session.execute(
        delete(AlertRow).where(
            AlertRow.fleet == fleet, AlertRow.resolution != OPEN, AlertRow.resolved_at < before
        )
    )


def status_of(row: AlertRow) -> AlertStatus:
    """Where an alert stands."""
    return AlertStatus(
        state=AlertState(row.state), n_breaches=row.n_breaches, n_clear=row.n_clear, data_at=row.updated_at
    )


def to_alert(row: AlertRow) -> Alert:
    """Value of a row."""
    return Alert(
        id=row.id,
        fleet=row.fleet,
        rule=row.rule,
        subject=row.subject,
        fingerprint=row.fingerprint,
        severity=row.severity,
        state=AlertState(row.state),
        summary=row.summary,
        value=row.value,
        threshold=row.threshold,
        n=row.n,
        runbook=row.runbook,
        started_at=row.started_at,
        fired_at=row.fired_at,
        resolved_at=row.resolved_at,
        acknowledged_at=row.acknowledged_at,
        acknowledged_by=row.acknowledged_by,
        silenced_until=row.silenced_until,
        silenced_by=row.silenced_by,
    )
