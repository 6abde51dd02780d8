"""Typed HTTP client of the control plane, for the command line and the dashboard.

What a call can raise is drawn in `controlplane.client_transport`.
"""

from datetime import datetime
from types import TracebackType
from typing import Self

from controlplane.client_transport import ClientTransport, decode, idempotency, path_of
from controlplane.domain.alerts import (
    Acknowledge,
    Alert,
    ApiKey,
    AuditEvent,
    CreateApiKey,
    NewApiKey,
    Silence,
)
from controlplane.domain.calibrations import (
    CalibrationReport,
    CalibrationRun,
    ClusterExperts,
    Projection,
    StartCalibration,
    TracePack,
)
from controlplane.domain.fleets import CreateFleet, Fleet, FleetStatus, RouterStatus, Worker
from controlplane.domain.telemetry import (
    DriftCheck,
    Experiment,
    MetricPoint,
    SampledDecision,
    StartExperiment,
    StopExperiment,
    WorkerUnion,
)
from controlplane.domain.versions import (
    Activation,
    LiveState,
    Promote,
    PromotionPreview,
    RejectVersion,
    RollBack,
    RoutingSettings,
    Tune,
    TuningPreview,
    Version,
)


class ControlPlaneClient:
    """One connection pool to one control plane; the methods are the API's resources.

    Parameters
    ----------
    base_url
        For example ``http://127.0.0.1:8070``.
    api_key
        A key's secret.
    fleet
        The fleet that all fleet-scoped methods speak of.
    timeout_seconds
        For each call.
    """

    def __init__(self, base_url: str, api_key: str, fleet: str, *, timeout_seconds: float = 10.0) -> None:
        self.base_url = base_url
        self.fleet = fleet
        self._transport = ClientTransport(base_url, api_key, timeout_seconds=timeout_seconds)

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the pool."""
        self.close()

    def close(self) -> None:
        """Close the pool."""
        self._transport.close()

    def for_fleet(self, fleet: str) -> "ControlPlaneClient":
        """Return a view of the same pool that speaks of another fleet."""
        view = object.__new__(ControlPlaneClient)
        view.base_url, view.fleet, view._transport = self.base_url, fleet, self._transport
        return view

    # Fleets

    def fleets(self) -> tuple[Fleet, ...]:
        """Return all fleets."""
        return self._transport.list_all(Fleet, "/v1/fleets")

    def create_fleet(self, command: CreateFleet) -> Fleet:
        """Make a fleet."""
        return self._transport.act(Fleet, "/v1/fleets", command)

    def status(self) -> FleetStatus:
        """Return one look at the fleet."""
        return self._transport.get(FleetStatus, self._path("status"))

    def workers(self) -> tuple[Worker, ...]:
        """Return the fleet's workers."""
        return self._transport.list_all(Worker, self._path("workers"))

    def drain(self, worker_id: str, reason: str, *, idempotency_key: str | None = None) -> Worker:
        """Let a worker finish what it has and take nothing new."""
        path = self._path("workers", worker_id, "drain")
        return self._transport.act(Worker, path, {"reason": reason}, idempotency_key=idempotency_key)

    def resume(self, worker_id: str, reason: str, *, idempotency_key: str | None = None) -> Worker:
        """Let a draining worker take requests again."""
        path = self._path("workers", worker_id, "resume")
        return self._transport.act(Worker, path, {"reason": reason}, idempotency_key=idempotency_key)

    def routers(self) -> tuple[RouterStatus, ...]:
        """Return the routers and the generation each acknowledged."""
        return self._transport.list_all(RouterStatus, self._path("routers"))

    # Versions and settings

    def versions(self) -> tuple[Version, ...]:
        """Return the fleet's versions, newest first."""
        return self._transport.list_all(Version, self._path("versions"))

    def preview_promotion(self, version_id: str) -> PromotionPreview:
        """Return what promoting would do."""
        command = Promote(reason="preview")
        return self._transport.act(
            PromotionPreview, self._path("versions", version_id, "promote"), command, dry_run=True
        )

    def promote(self, version_id: str, command: Promote, *, idempotency_key: str | None = None) -> Activation:
        """Make a version active."""
        path = self._path("versions", version_id, "promote")
        return self._transport.act(Activation, path, command, idempotency_key=idempotency_key)

    def reject(self, version_id: str, reason: str, *, idempotency_key: str | None = None) -> Version:
        """Mark a candidate as not to be promoted."""
        path = self._path("versions", version_id, "reject")
        command = RejectVersion(reason=reason)
        return self._transport.act(Version, path, command, idempotency_key=idempotency_key)

    def roll_back(self, command: RollBack, *, idempotency_key: str | None = None) -> Activation:
        """Go back to an earlier version."""
        return self._transport.act(
            Activation, self._path("rollback"), command, idempotency_key=idempotency_key
        )

    def activations(self) -> tuple[Activation, ...]:
        """Return who made which version active, newest first."""
        return self._transport.list_all(Activation, self._path("activations"))

    def live_at(self, at: datetime) -> LiveState:
        """Return what was live at a moment."""
        return self._transport.get(LiveState, self._path("live"), {"at": at.isoformat()})

    def settings(self) -> RoutingSettings:
        """Return the live knobs."""
        return self._transport.get(RoutingSettings, self._path("settings"))

    def settings_revisions(self) -> tuple[RoutingSettings, ...]:
        """Return all revisions of the knobs, newest first."""
        return self._transport.list_all(RoutingSettings, self._path("settings", "revisions"))

    def preview_tuning(self, command: Tune) -> TuningPreview:
        """Return what a change of the knobs would do to recent traffic."""
        return self._transport.patch(
            TuningPreview, self._path("settings"), command, None, {"dry_run": "true"}
        )

    def tune(self, command: Tune, *, revision: int) -> RoutingSettings:
        """Change live knobs; refused as stale where `revision` is no longer current."""
        return self._transport.patch(RoutingSettings, self._path("settings"), command, revision, {})

    # Calibration

    def trace_packs(self) -> tuple[TracePack, ...]:
        """Return the stored trace packs."""
        return self._transport.list_all(TracePack, self._path("trace-packs"))

    def upload_trace_pack(self, name: str, content: bytes, reason: str) -> TracePack:
        """Store a trace pack."""
        headers = {"X-Reason": reason, "Content-Type": "application/octet-stream", **idempotency(None)}
        path = self._path("trace-packs")
        answer = self._transport.send("POST", path, params={"name": name}, content=content, headers=headers)
        return decode(TracePack, answer)

    def calibration_runs(self) -> tuple[CalibrationRun, ...]:
        """Return the calibration runs, newest first."""
        return self._transport.list_all(CalibrationRun, self._path("calibration-runs"))

    def calibration_run(self, run_id: str) -> CalibrationRun:
        """Return one calibration run."""
        return self._transport.get(CalibrationRun, self._path("calibration-runs", run_id))

    def calibration_report(self, run_id: str) -> CalibrationReport:
        """Return what a run found out about its version."""
        return self._transport.get(CalibrationReport, self._path("calibration-runs", run_id, "report"))

    def start_calibration(
        self, command: StartCalibration, *, idempotency_key: str | None = None
    ) -> CalibrationRun:
        """Queue a calibration."""
        path = self._path("calibration-runs")
        return self._transport.act(CalibrationRun, path, command, idempotency_key=idempotency_key)

    def cancel_calibration(
        self, run_id: str, reason: str, *, idempotency_key: str | None = None
    ) -> CalibrationRun:
        """Ask a calibration to stop."""
        path = self._path("calibration-runs", run_id, "cancel")
        return self._transport.act(CalibrationRun, path, {"reason": reason}, idempotency_key=idempotency_key)

    def projection(self, version_id: str, *, is_live: bool, limit: int = 2000) -> Projection:
        """Return the PCA of a version's calibration, or of live traffic on its basis."""
        parameters = {"live": str(is_live).lower(), "limit": str(limit)}
        return self._transport.get(Projection, self._path("versions", version_id, "projection"), parameters)

    def cluster_experts(self, version_id: str, cluster: int) -> ClusterExperts:
        """Return which experts a cluster's requests use."""
        path = self._path("versions", version_id, "clusters", str(cluster), "experts")
        return self._transport.get(ClusterExperts, path)

    # Telemetry

    def metrics(
        self, by: str, since: datetime, *, step_seconds: int | None = None
    ) -> tuple[MetricPoint, ...]:
        """Return live metrics by ``fleet``, ``worker``, ``cluster`` or ``arm``."""
        parameters = {"by": by, "since": since.isoformat()}
        if step_seconds is not None:
            parameters["step_seconds"] = str(step_seconds)
        return self._transport.list_all(MetricPoint, self._path("metrics"), parameters)

    def unions(self, since: datetime) -> tuple[WorkerUnion, ...]:
        """Return the distinct experts a step loads, by worker and layer."""
        return self._transport.list_all(WorkerUnion, self._path("unions"), {"since": since.isoformat()})

    def decisions(self, limit: int = 100) -> tuple[SampledDecision, ...]:
        """Return the newest sampled routing decisions."""
        return self._transport.list_all(
            SampledDecision, self._path("decisions"), {"limit": str(limit)}, follow=False
        )

    def decision(self, request_id: str) -> SampledDecision:
        """Return why one request went where it did."""
        return self._transport.get(SampledDecision, self._path("decisions", request_id))

    def drift_checks(self, since: datetime) -> tuple[DriftCheck, ...]:
        """Return drift reports, newest first."""
        return self._transport.list_all(DriftCheck, self._path("drift"), {"since": since.isoformat()})

    def experiments(self) -> tuple[Experiment, ...]:
        """Return the switchback experiments, newest first."""
        return self._transport.list_all(Experiment, self._path("experiments"))

    def experiment(self, experiment_id: str) -> Experiment:
        """Return one experiment with its effects so far."""
        return self._transport.get(Experiment, self._path("experiments", experiment_id))

    def start_experiment(self, command: StartExperiment, *, idempotency_key: str | None = None) -> Experiment:
        """Start a switchback."""
        path = self._path("experiments")
        return self._transport.act(Experiment, path, command, idempotency_key=idempotency_key)

    def stop_experiment(
        self, experiment_id: str, reason: str, *, idempotency_key: str | None = None
    ) -> Experiment:
        """End a switchback early."""
        path = self._path("experiments", experiment_id, "stop")
        command = StopExperiment(reason=reason)
        return self._transport.act(Experiment, path, command, idempotency_key=idempotency_key)

    # Alerts, audit, keys

    def alerts(self, state: str | None = None) -> tuple[Alert, ...]:
        """Return alerts, newest first."""
        return self._transport.list_all(
            Alert, self._path("alerts"), {} if state is None else {"state": state}
        )

    def acknowledge(self, alert_id: str, reason: str, *, idempotency_key: str | None = None) -> Alert:
        """Say that somebody looks after an alert."""
        path = self._path("alerts", alert_id, "acknowledge")
        command = Acknowledge(reason=reason)
        return self._transport.act(Alert, path, command, idempotency_key=idempotency_key)

    def silence(self, alert_id: str, command: Silence, *, idempotency_key: str | None = None) -> Alert:
        """Keep an alert quiet for a time."""
        path = self._path("alerts", alert_id, "silence")
        return self._transport.act(Alert, path, command, idempotency_key=idempotency_key)

    def audit(self, since: datetime | None = None) -> tuple[AuditEvent, ...]:
        """Return the fleet's audit events, newest first."""
        parameters = {"fleet": self.fleet} | ({} if since is None else {"since": since.isoformat()})
        return self._transport.list_all(AuditEvent, "/v1/audit", parameters)

    def keys(self) -> tuple[ApiKey, ...]:
        """Return all API keys, without their secrets."""
        return self._transport.list_all(ApiKey, "/v1/keys")

    def create_key(self, command: CreateApiKey) -> NewApiKey:
        """Make a key; its secret is in the answer and nowhere else."""
        return self._transport.act(NewApiKey, "/v1/keys", command, is_repeatable=False)

    def revoke_key(self, key_id: str, reason: str) -> ApiKey:
        """Make a key useless."""
        return self._transport.act(ApiKey, path_of("keys", key_id, "revoke"), {"reason": reason})

    def _path(self, *parts: str) -> str:
        return path_of("fleets", self.fleet, *parts)
