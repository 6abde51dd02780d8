"""`ControlPlaneClient`'s methods over seeded, realistic values; what is changed shows in later answers."""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from controlplane.client_transport import ClientError, ProblemDocument, Refused, Unreachable
from controlplane.domain.alerts import Alert, AlertState, AuditEvent
from controlplane.domain.fleets import Fleet, FleetStatus, RouterStatus, Worker, WorkerState
from eldr_runtime.model_shape import ModelShape


def _sibling(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(
        f"eldr_fakes_{name}", Path(__file__).with_name(f"{name}.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


levers = _sibling("fake_dashboard_levers")
telemetry = _sibling("fake_dashboard_telemetry")
FLEET, N_WORKERS, N_CLUSTERS = telemetry.FLEET, telemetry.N_WORKERS, telemetry.N_CLUSTERS
N_LAYERS, N_EXPERTS = telemetry.N_LAYERS, telemetry.N_EXPERTS


def unreachable() -> ClientError:
    return Unreachable("no answer from http://127.0.0.1:8070: ConnectError connection refused")


def forbidden() -> ClientError:
    return Refused(
        ProblemDocument(title="Forbidden", status=403, detail="needs the role operator", request_id="req-403")
    )


def failed() -> ClientError:
    return Refused(
        ProblemDocument(title="Internal error", status=500, detail="unexpected", request_id="req-500")
    )


def _at(minutes: float) -> datetime:
    return datetime.now(UTC) - timedelta(minutes=minutes)


class FakeDashboardClient(levers.FakeLevers, telemetry.FakeTelemetry):
    """One fleet in one of five states: data, empty, forbidden, error, down."""

    def __init__(self, state: str = "data") -> None:
        self.base_url, self.fleet = "http://127.0.0.1:8070", FLEET
        self.state = state
        self.has_mix_shift = True
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        levers.FakeLevers.__init__(self)
        self._draining: set[str] = set()
        self._alerts = [
            self._alert("a1", "fit_degradation", "fleet", "warning", AlertState.FIRING, 9),
            self._alert("a2", "load_imbalance", "decode-3", "info", AlertState.FIRING, 22),
            self._alert("a3", "tpot_regression", "cluster 5", "critical", AlertState.RESOLVED, 55),
        ]

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name.startswith("_") or not callable(found) or name in ("for_fleet", "close"):
            return found
        errors = {"down": unreachable, "forbidden": forbidden, "error": failed}
        raise_error: Callable[[], ClientError] | None = errors.get(self.state)

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append((name, arguments))
            if raise_error is not None:
                raise raise_error()
            return found(*arguments, **options)

        return call

    @property
    def _is_empty(self) -> bool:
        return self.state == "empty"

    def for_fleet(self, fleet: str) -> "FakeDashboardClient":
        return self

    def close(self) -> None:
        pass

    # Fleets

    def _fleet(self) -> Fleet:
        shape = ModelShape(model="openai/gpt-oss-120b", n_layers=N_LAYERS, n_experts=N_EXPERTS, top_k=4)
        return Fleet(
            name=FLEET,
            shape=shape,
            gpu="mi300x",
            latency_preset=None,
            kv_block_size_tokens=16,
            decode_profile_share=0.05,
            signature_sample_share=0.05,
            metrics_window_seconds=10.0,
            retention_days=14,
            is_simulated=True,
            revision=1,
            created_at=_at(4000),
        )

    def fleets(self) -> tuple[Fleet, ...]:
        return (self._fleet(),)

    def status(self) -> FleetStatus:
        active = None if self._is_empty else self._active()
        return FleetStatus(
            fleet=self._fleet(),
            generation=41,
            routers=self.routers(),
            n_ready_prefill=0 if self._is_empty else 4,
            n_ready_decode=0 if self._is_empty else N_WORKERS - len(self._draining),
            n_lost=0,
            active_version_number=None if active is None else active.number,
            policy=self._settings[0].policy,
            tau=self._settings[0].tau,
            n_open_alerts=len([a for a in self.alerts() if a.resolved_at is None]),
        )

    def routers(self) -> tuple[RouterStatus, ...]:
        if self._is_empty:
            return ()
        return tuple(
            RouterStatus(
                router_id=f"router-{index}",
                url=f"http://10.0.0.{index}:9000",
                generation_applied=41 - (index == 2),
                config_source="control_plane",
                is_lagging=index == 2,
                in_flight={f"decode-{worker}": 5 + (worker * 3 + index) % 6 for worker in range(N_WORKERS)},
                dropped_events=0,
                last_seen_at=_at(0.03),
            )
            for index in range(3)
        )

    def workers(self) -> tuple[Worker, ...]:
        if self._is_empty:
            return ()
        names = [("prefill", index) for index in range(4)] + [("decode", index) for index in range(N_WORKERS)]
        return tuple(self._worker(role, f"{role}-{index}") for role, index in names)

    def _worker(self, role: str, worker_id: str) -> Worker:
        state = WorkerState.DRAINING if worker_id in self._draining else WorkerState.READY
        return Worker(
            worker_id=worker_id,
            fleet=FLEET,
            role=role,
            url=f"http://10.0.1.7:{8100 + len(worker_id)}",
            engine="vllm",
            engine_version="0.11.0",
            plugin_version="0.1.0",
            model="openai/gpt-oss-120b",
            kv_connector="NixlConnector",
            transfer_mode="pull",
            self_test="passed",
            state=state,
            capacity=256,
            last_seen_at=_at(0.02),
            lease_expires_at=_at(-0.2),
        )

    def drain(self, worker_id: str, reason: str, *, idempotency_key: str | None = None) -> Worker:
        self._draining.add(worker_id)
        return self._worker("decode", worker_id)

    def resume(self, worker_id: str, reason: str, *, idempotency_key: str | None = None) -> Worker:
        self._draining.discard(worker_id)
        return self._worker("decode", worker_id)

    # Alerts and audit

    def _alert(
        self, alert_id: str, rule: str, subject: str, severity: str, state: AlertState, minutes: float
    ) -> Alert:
        texts = {
            "fit_degradation": "Requests lie farther from their centroids than the reference did.",
            "load_imbalance": "In-flight max over mean is 1.38 for five minutes.",
            "tpot_regression": "TPOT P50 of cluster 5 was 12 % above control.",
        }
        is_resolved = state is AlertState.RESOLVED
        return Alert(
            id=alert_id,
            fleet=FLEET,
            rule=rule,
            subject=subject,
            fingerprint=f"{rule}/{subject}",
            severity=severity,
            state=state,
            summary=texts[rule],
            value=0.652,
            threshold=0.68,
            n=904,
            runbook=f"docs/runbooks/{rule}.md",
            started_at=_at(minutes + 2),
            fired_at=_at(minutes),
            resolved_at=_at(minutes - 12) if is_resolved else None,
            acknowledged_at=None,
            acknowledged_by=None,
            silenced_until=None,
            silenced_by=None,
        )

    def set_alerts(self, alerts: tuple[Alert, ...]) -> None:
        self._alerts = list(alerts)

    def alerts(self, state: str | None = None) -> tuple[Alert, ...]:
        if self._is_empty:
            return ()
        return tuple(alert for alert in self._alerts if state in (None, alert.state))

    def acknowledge(self, alert_id: str, reason: str, *, idempotency_key: str | None = None) -> Alert:
        return self._change_alert(alert_id, acknowledged_at=_at(0), acknowledged_by="ops-night")

    def silence(self, alert_id: str, command: Any, *, idempotency_key: str | None = None) -> Alert:
        return self._change_alert(
            alert_id, silenced_until=_at(-command.seconds / 60), silenced_by="ops-night"
        )

    def _change_alert(self, alert_id: str, **changes: Any) -> Alert:
        self._alerts = [replace(a, **changes) if a.id == alert_id else a for a in self._alerts]
        return next(alert for alert in self._alerts if alert.id == alert_id)

    def audit(self, since: datetime | None = None) -> tuple[AuditEvent, ...]:
        if self._is_empty:
            return ()
        tuned = (
            '{"policy": "eldr_capped", "tau": 0.05, "load_cap": 1.25}',
            '{"policy": "eldr_capped", "tau": 0.1, "load_cap": 1.25}',
        )
        rows = (
            (4, 21, "ops-day", "tune", "settings", "3", "raise tau: load max over mean at 1.31", tuned),
            (
                3,
                28,
                "ops-night",
                "promote",
                "version",
                "ver-0007",
                "refit passed the gate",
                ('{"state": "candidate"}', '{"state": "active"}'),
            ),
            (
                2,
                41,
                "ops-night",
                "roll_back",
                "version",
                "ver-0005",
                "P99 up after v6",
                (None, '{"version": 5}'),
            ),
            (1, 47, "ops-day", "tune", "settings", "2", "start low", tuned[::-1]),
        )
        return tuple(
            AuditEvent(
                id=number,
                at=_at(minutes),
                fleet=FLEET,
                actor=actor,
                action=action,
                resource=resource,
                resource_id=resource_id,
                reason=reason,
                request_id=f"req-{number:04d}",
                before=texts[0],
                after=texts[1],
            )
            for number, minutes, actor, action, resource, resource_id, reason, texts in rows
        )
