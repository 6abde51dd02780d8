"""Take readings into account: alerts open, fire, lose their data and are resolved; people look after them."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from controlplane.domain.alert_rules import (
    RULES,
    AlertRule,
    AlertStatus,
    Reading,
    RuleName,
    advance,
    fingerprint,
)
from controlplane.domain.alerts import Acknowledge, Alert, AlertState, Silence
from controlplane.domain.limits import check_between
from controlplane.domain.pages import Page, to_page
from controlplane.domain.reasons import check_reason
from controlplane.errors import Conflict, NotFound
from controlplane.services.manage_fleets import get_fleet, lock_fleet
from controlplane.services.record_change import Change
from controlplane.storage.database import ReadSession
from controlplane.storage.models.alerts import AlertRow
from controlplane.storage.models.metadata import new_id
from controlplane.storage.repositories import alerts

LONGEST_SILENCE_SECONDS = 30 * 86_400.0


def apply_readings(
    change: Change, fleet: str, rules: Iterable[RuleName], readings: Sequence[Reading]
) -> list[Alert]:
    """Step the alerts of some rules by one evaluation of them; return those whose state changed.

    An open alert of these rules whose subject has no reading gets one without data.
    """
    lock_fleet(change.session, fleet)
    evaluated = set(rules)
    rows = {row.fingerprint: row for row in alerts.list_open(change.session, fleet) if row.rule in evaluated}
    seen = {fingerprint(reading.rule, reading.subject): reading for reading in readings}
    gone = {key: _gone(row) for key, row in rows.items() if key not in seen}
    changed = []
    for key, reading in (seen | gone).items():
        alert = _apply(change, fleet, rows.get(key), reading)
        if alert is not None:
            changed.append(alert)
    return changed


def acknowledge(change: Change, fleet: str, alert_id: str, command: Acknowledge) -> Alert:
    """Note that somebody looks after an alert."""
    check_reason(command.reason)
    row = _get_open(change, fleet, alert_id)
    before = alerts.to_alert(row)
    row.acknowledged_at, row.acknowledged_by = change.now, change.actor
    return _audited(change, row, "acknowledge", command.reason, before)


def silence(change: Change, fleet: str, alert_id: str, command: Silence) -> Alert:
    """Keep an alert quiet for a time; it is still evaluated and listed."""
    check_reason(command.reason)
    check_between("seconds", command.seconds, 1, LONGEST_SILENCE_SECONDS)
    row = _get_open(change, fleet, alert_id)
    before = alerts.to_alert(row)
    row.silenced_until = change.now + timedelta(seconds=command.seconds)
    row.silenced_by = change.actor
    return _audited(change, row, "silence", command.reason, before)


def list_alerts(
    session: ReadSession, fleet: str, state: AlertState | None, cursor: str | None, limit: int
) -> Page[Alert]:
    """List alerts, newest first."""
    get_fleet(session, fleet)
    found = alerts.list_alerts(session, fleet, state=state, before_id=cursor, limit=limit + 1)
    return to_page(found, limit, lambda alert: alert.id)


def _gone(row: AlertRow) -> Reading:
    """Read for a subject that nobody reports on: no data, or all is well where the rule says so."""
    rule = RULES[RuleName(row.rule)]
    threshold = row.threshold or 0.0
    return Reading(
        rule=rule.name,
        subject=row.subject,
        value=threshold if rule.is_gone_clear else None,
        fire_threshold=threshold,
        clear_threshold=threshold,
        summary=f"{row.subject} is gone" if rule.is_gone_clear else row.summary,
    )


def _apply(change: Change, fleet: str, row: AlertRow | None, reading: Reading) -> Alert | None:
    rule = RULES[reading.rule]
    before = None if row is None else alerts.to_alert(row)
    status = advance(None if row is None else alerts.status_of(row), rule, reading, change.now)
    if status is None:
        if row is not None:
            alerts.remove_alert(change.session, row)
        return None
    if row is None:
        row = _new_row(change, fleet, rule, reading)
    _note(change, row, status, reading)
    if before is None:
        alerts.add_alert(change.session, row)
    if row.state == AlertState.RESOLVED:
        alerts.close_alert(change.session, row)
    change.session.flush()
    after = alerts.to_alert(row)
    if before is not None and before.state is after.state:
        return None
    if after.state is not AlertState.PENDING:
        verb = {AlertState.FIRING: "fire", AlertState.RESOLVED: "resolve"}.get(after.state, "lose data")
        _audit(change, after, verb, after.summary, before)
    return after


def _new_row(change: Change, fleet: str, rule: AlertRule, reading: Reading) -> AlertRow:
    return AlertRow(
        id=new_id(),
        fleet=fleet,
        rule=rule.name,
        subject=reading.subject,
        fingerprint=fingerprint(rule.name, reading.subject),
        resolution=alerts.OPEN,
        severity=rule.severity,
        runbook=rule.runbook,
        started_at=change.now,
    )


def _note(change: Change, row: AlertRow, status: AlertStatus, reading: Reading) -> None:
    row.state = status.state
    row.n_breaches, row.n_clear, row.updated_at = status.n_breaches, status.n_clear, status.data_at
    if reading.value is not None or row.summary is None:
        row.summary, row.value, row.n = reading.summary, reading.value, reading.n
        row.threshold = reading.fire_threshold
    if status.state is AlertState.FIRING and row.fired_at is None:
        row.fired_at = change.now
    if status.state is AlertState.RESOLVED:
        row.resolved_at = change.now


def _get_open(change: Change, fleet: str, alert_id: str) -> AlertRow:
    get_fleet(change.session, fleet)
    row = alerts.lock_alert(change.session, fleet, alert_id)
    if row is None:
        raise NotFound(resource="alert", name=alert_id)
    if row.state == AlertState.RESOLVED:
        raise Conflict(f"alert {alert_id} is resolved already")
    return row


def _audited(change: Change, row: AlertRow, action: str, reason: str, before: Alert) -> Alert:
    change.session.flush()
    after = alerts.to_alert(row)
    _audit(change, after, action, reason, before)
    return after


def _audit(change: Change, after: Alert, action: str, reason: str, before: Alert | None) -> None:
    change.audit(
        action=action,
        resource="alert",
        resource_id=after.id,
        fleet=after.fleet,
        reason=reason[:1000],
        before=before,
        after=after,
    )
