"""When an alert fires and when it is over: rules as data, and one pure step of their state machine.

::

    (nothing) --breach--> pending --n breaches--> firing --n clear--> resolved
                             |                      | ^
                             +--not a breach-->     | | data again
                                (nothing)           v |
                                                  no data --for an hour--> resolved

Fire and clear thresholds differ, so that a value between them neither fires nor resolves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256

from controlplane.domain.alerts import AlertState

RUNBOOKS = "docs/runbooks"
WHOLE_FLEET = "fleet"


class Severity(StrEnum):
    """How soon somebody should look."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class RuleName(StrEnum):
    """The rules there are; each has a runbook of its name."""

    FIT_DEGRADATION = "fit_degradation"
    MIX_SHIFT = "mix_shift"
    UNION_SURPRISE = "union_surprise"
    LOAD_IMBALANCE = "load_imbalance"
    WORKER_LOST = "worker_lost"
    ROUTER_LAGGING = "router_lagging"
    SIGNATURE_MISSING = "signature_missing"
    REFIT_FAILED = "refit_failed"
    TPOT_REGRESSION = "tpot_regression"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """How often in a row a rule must be broken to fire, and hold to be over.

    `is_gone_clear` says that a subject nobody reports on any more is no trouble any more: a worker that was
    removed. Otherwise that is no data.
    """

    name: RuleName
    severity: Severity
    n_breaches: int = 2
    n_clear: int = 3
    no_data_seconds: float = 60.0
    is_gone_clear: bool = False

    @property
    def runbook(self) -> str:
        """Page that says what to do."""
        return f"{RUNBOOKS}/{self.name}.md"


RULES: Mapping[RuleName, AlertRule] = {
    rule.name: rule
    for rule in (
        AlertRule(name=RuleName.FIT_DEGRADATION, severity=Severity.WARNING, no_data_seconds=600),
        AlertRule(name=RuleName.MIX_SHIFT, severity=Severity.INFO, n_breaches=3, no_data_seconds=600),
        AlertRule(name=RuleName.UNION_SURPRISE, severity=Severity.WARNING, n_breaches=3, no_data_seconds=600),
        AlertRule(name=RuleName.LOAD_IMBALANCE, severity=Severity.WARNING, n_breaches=6, n_clear=6),
        AlertRule(name=RuleName.WORKER_LOST, severity=Severity.CRITICAL, n_clear=1, is_gone_clear=True),
        AlertRule(name=RuleName.ROUTER_LAGGING, severity=Severity.CRITICAL, n_clear=2, is_gone_clear=True),
        AlertRule(name=RuleName.SIGNATURE_MISSING, severity=Severity.WARNING, n_breaches=3),
        AlertRule(name=RuleName.REFIT_FAILED, severity=Severity.WARNING, n_clear=1),
        AlertRule(name=RuleName.TPOT_REGRESSION, severity=Severity.CRITICAL),
    )
}  # fmt: skip

# An alert that has had no data for so long is closed: nobody can act on it.
FORGET_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a rule finds of one subject now; `value` None is no data.

    A breach lies beyond `fire_threshold`, a clear value short of `clear_threshold`: above and below, or
    with `is_low_bad` below and at or above.
    """

    rule: RuleName
    value: float | None
    fire_threshold: float
    clear_threshold: float
    summary: str
    subject: str = WHOLE_FLEET
    n: int | None = None
    is_low_bad: bool = False

    @property
    def is_breach(self) -> bool:
        """Whether the value is beyond the fire threshold."""
        if self.value is None:
            return False
        return self.value < self.fire_threshold if self.is_low_bad else self.value > self.fire_threshold

    @property
    def is_clear(self) -> bool:
        """Whether the value is short of the clear threshold."""
        if self.value is None:
            return False
        return self.value >= self.clear_threshold if self.is_low_bad else self.value <= self.clear_threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertStatus:
    """Where an open alert stands; `data_at` is when it last had data."""

    state: AlertState
    n_breaches: int
    n_clear: int
    data_at: datetime


def fingerprint(rule: str, subject: str) -> str:
    """Name what makes two alerts the same one."""
    return sha256(f"{rule}\0{subject}".encode()).hexdigest()[:32]


def advance(
    status: AlertStatus | None, rule: AlertRule, reading: Reading, now: datetime
) -> AlertStatus | None:
    """Take one reading into account; None where there is no alert, or it never fired and is forgotten."""
    if reading.value is None:
        return None if status is None else _without_data(status, rule, now)
    if reading.is_breach:
        return _breached(status, rule, now)
    if status is None or status.state is AlertState.PENDING:
        return None
    if not reading.is_clear:
        return AlertStatus(state=AlertState.FIRING, n_breaches=0, n_clear=0, data_at=now)
    n_clear = status.n_clear + 1
    state = AlertState.RESOLVED if n_clear >= rule.n_clear else AlertState.FIRING
    return AlertStatus(state=state, n_breaches=0, n_clear=n_clear, data_at=now)


def _breached(status: AlertStatus | None, rule: AlertRule, now: datetime) -> AlertStatus:
    n_breaches = 1 if status is None else status.n_breaches + 1
    has_fired = status is not None and status.state is not AlertState.PENDING
    state = AlertState.FIRING if has_fired or n_breaches >= rule.n_breaches else AlertState.PENDING
    return AlertStatus(state=state, n_breaches=n_breaches, n_clear=0, data_at=now)


def _without_data(status: AlertStatus, rule: AlertRule, now: datetime) -> AlertStatus | None:
    silence = now - status.data_at
    if silence < timedelta(seconds=rule.no_data_seconds):
        return status
    if status.state is AlertState.PENDING:
        return None
    state = AlertState.RESOLVED if silence >= timedelta(seconds=FORGET_SECONDS) else AlertState.NO_DATA
    return AlertStatus(state=state, n_breaches=0, n_clear=0, data_at=status.data_at)
