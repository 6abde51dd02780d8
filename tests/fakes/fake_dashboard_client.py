"""`ControlPlaneClient`'s methods over seeded, realistic values; what is changed shows in later answers."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from controlplane.client_transport import ClientError, ProblemDocument, Refused, Unreachable
from controlplane.domain.alerts import Alert, AlertState, AuditEvent
from controlplane.domain.calibrations import (
    CalibrationRun,
    ClusterExperts,
    ProjectedPoint,
    Projection,
    RunState,
    TracePack,
)
from controlplane.domain.fleets import Fleet, FleetStatus, RouterStatus, Worker, WorkerState
from controlplane.domain.telemetry import (
    DriftCheck,
    DriftMeasure,
    Effect,
    Experiment,
    ExperimentState,
    ExperimentWindow,
    MetricPoint,
    SampledDecision,
    WorkerUnion,
)
from controlplane.domain.versions import (
    Activation,
    ActivationKind,
    GateCheck,
    LiveState,
    PromotionPreview,
    RoutingSettings,
    TauPoint,
    TuningPreview,
    Version,
    VersionState,
)
from eldr_runtime.model_shape import ModelShape

FLEET = "mi300x-a"
N_WORKERS = 8
N_LAYERS = 24
N_EXPERTS = 64
N_CLUSTERS = 8
LABELS = ("code", "maths", "chat", "law")


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


def _version(number: int, state: VersionState, minutes: float, **changes: Any) -> Version:
    values: dict[str, Any] = {
        "id": f"ver-{number:04d}", "number": number, "fleet": FLEET,
        "content_hash": f"sha256:{number:02d}c4b1e09a7d", "parent_hash": f"sha256:{number - 1:02d}c4b1e09a7d",
        "origin": "drift_refit", "state": state, "transform": "count_idf", "n_centroids": N_CLUSTERS,
        "n_layers_kept": 17, "n_requests": 4200, "held_out_percent": -14.0 - number / 4, "rho": 0.6 + number / 90,
        "metrics": {"silhouette": 0.19 + number / 400, "largest_cluster_share": 0.17, "n_left_out": 4.0},
        "calibration_run_id": f"run-{number:04d}", "created_at": _at(minutes),
    }  # fmt: skip
    return Version(**(values | changes))


class FakeDashboardClient:
    """One fleet in one of five states: data, empty, forbidden, error, down."""

    def __init__(self, state: str = "data") -> None:
        self.base_url, self.fleet = "http://127.0.0.1:8070", FLEET
        self.state = state
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._versions = [
            _version(8, VersionState.CANDIDATE, 12),
            _version(7, VersionState.ACTIVE, 32),
            _version(6, VersionState.REJECTED, 300, parent_hash="sha256:05c4b1e09a7d", held_out_percent=-9.1),
            _version(5, VersionState.RETIRED, 1500, origin="calibration", parent_hash=None),
        ]
        self._settings = [
            self._revision(3, 0.10, 21, "raise tau: load max over mean at 1.31"),
            self._revision(2, 0.05, 47, "start low"),
        ]
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
            name=FLEET, shape=shape, gpu="mi300x", kv_block_size_tokens=16, decode_profile_share=0.05,
            signature_sample_share=0.05, metrics_window_seconds=10.0, retention_days=14, is_simulated=True,
            revision=1, created_at=_at(4000),
        )  # fmt: skip

    def fleets(self) -> tuple[Fleet, ...]:
        return (self._fleet(),)

    def status(self) -> FleetStatus:
        active = None if self._is_empty else self._active()
        return FleetStatus(
            fleet=self._fleet(), generation=41, routers=self.routers(), n_ready_prefill=0 if self._is_empty else 4,
            n_ready_decode=0 if self._is_empty else N_WORKERS - len(self._draining), n_lost=0,
            active_version_number=None if active is None else active.number, policy=self._settings[0].policy,
            tau=self._settings[0].tau, n_open_alerts=len([a for a in self.alerts() if a.resolved_at is None]),
        )  # fmt: skip

    def routers(self) -> tuple[RouterStatus, ...]:
        if self._is_empty:
            return ()
        return tuple(
            RouterStatus(
                router_id=f"router-{index}", url=f"http://10.0.0.{index}:9000", generation_applied=41 - (index == 2),
                config_source="control_plane", is_lagging=index == 2,
                in_flight={f"decode-{worker}": 5 + (worker * 3 + index) % 6 for worker in range(N_WORKERS)},
                dropped_events=0, last_seen_at=_at(0.03),
            )
            for index in range(3)
        )  # fmt: skip

    def workers(self) -> tuple[Worker, ...]:
        if self._is_empty:
            return ()
        names = [("prefill", index) for index in range(4)] + [("decode", index) for index in range(N_WORKERS)]
        return tuple(self._worker(role, f"{role}-{index}") for role, index in names)

    def _worker(self, role: str, worker_id: str) -> Worker:
        state = WorkerState.DRAINING if worker_id in self._draining else WorkerState.READY
        return Worker(
            worker_id=worker_id, fleet=FLEET, role=role, url=f"http://10.0.1.7:{8100 + len(worker_id)}",
            engine="vllm", engine_version="0.11.0", plugin_version="0.1.0", model="openai/gpt-oss-120b",
            kv_connector="NixlConnector", transfer_mode="pull", self_test="passed", state=state, capacity=256,
            last_seen_at=_at(0.02), lease_expires_at=_at(-0.2),
        )  # fmt: skip

    def drain(self, worker_id: str, reason: str) -> Worker:
        self._draining.add(worker_id)
        return self._worker("decode", worker_id)

    def resume(self, worker_id: str, reason: str) -> Worker:
        self._draining.discard(worker_id)
        return self._worker("decode", worker_id)

    # Versions and settings

    def _active(self) -> Version:
        return next(version for version in self._versions if version.state is VersionState.ACTIVE)

    def _find(self, version_id: str) -> Version:
        return next(version for version in self._versions if version.id == version_id)

    def versions(self) -> tuple[Version, ...]:
        return () if self._is_empty else tuple(self._versions)

    def preview_promotion(self, version_id: str) -> PromotionPreview:
        union = "−1.20 points against the active version, 95 % from −1.90 to −0.50, limit +0.50"
        return PromotionPreview(
            version=self._find(version_id), replaces=self._active(), is_allowed=True,
            checks=(
                GateCheck(name="content hash", is_passed=True, detail="the artifact is what its hash says"),
                GateCheck(name="shape", is_passed=True, detail="24 layers of 64 experts, as the fleet's"),
                GateCheck(name="held-out union", is_passed=True, detail=union),
            ),
            predicted_union_change_points=-1.2, generation_after=42,
        )  # fmt: skip

    def _activate(self, version_id: str, kind: ActivationKind, reason: str) -> Activation:
        states = {version_id: VersionState.ACTIVE, self._active().id: VersionState.RETIRED}
        self._versions = [
            replace(version, state=states.get(version.id, version.state)) for version in self._versions
        ]
        return replace(self.activations()[0], kind=kind, reason=reason, version_id=version_id,
                       version_number=self._active().number, generation=42)  # fmt: skip

    def promote(self, version_id: str, command: Any, *, idempotency_key: str | None = None) -> Activation:
        return self._activate(version_id, ActivationKind.PROMOTE, command.reason)

    def reject(self, version_id: str, reason: str) -> Version:
        rejected = replace(self._find(version_id), state=VersionState.REJECTED)
        self._versions = [rejected if version.id == version_id else version for version in self._versions]
        return rejected

    def roll_back(self, command: Any, *, idempotency_key: str | None = None) -> Activation:
        target = command.version_id or next(v for v in self._versions if v.state is VersionState.RETIRED).id
        return self._activate(target, ActivationKind.ROLL_BACK, command.reason)

    def activations(self) -> tuple[Activation, ...]:
        if self._is_empty:
            return ()
        rows = ((7, "promote", 28, None, 40), (5, "roll_back", 41, 28, 38), (6, "promote", 52, 41, 37),
                (5, "promote", 1490, 52, 20))  # fmt: skip
        return tuple(
            Activation(
                id=f"act-{index}", kind=ActivationKind(kind), version_id=f"ver-{number:04d}", version_number=number,
                actor="ops-night", reason="drift on fit, refit passed the gate", is_override=False,
                generation=generation, at=_at(start), until=None if end is None else _at(end),
            )
            for index, (number, kind, start, end, generation) in enumerate(rows)
        )  # fmt: skip

    def live_at(self, at: datetime) -> LiveState:
        live = [activation for activation in self.activations() if activation.at <= at]
        return LiveState(
            at=at, generation=40, activation=live[0] if live else None, settings=self._settings[-1]
        )

    def _revision(self, revision: int, tau: float, minutes: float, reason: str) -> RoutingSettings:
        return RoutingSettings(
            revision=revision, generation=37 + revision, policy="eldr_capped", tau=tau, load_cap=1.25,
            control_share=0.0, changed_at=_at(minutes), changed_by="ops-day", reason=reason, revert_at=None,
        )  # fmt: skip

    def settings(self) -> RoutingSettings:
        return self._settings[0]

    def settings_revisions(self) -> tuple[RoutingSettings, ...]:
        return tuple(self._settings)

    def preview_tuning(self, command: Any) -> TuningPreview:
        now = self._settings[0]
        tau = now.tau if command.tau is None else command.tau
        taus = sorted({0.0, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, now.tau, tau})
        return TuningPreview(
            before=now, policy=command.policy or now.policy, tau=tau, load_cap=command.load_cap or now.load_cap,
            n_requests=0 if self._is_empty else 600,
            curve=() if self._is_empty else tuple(
                TauPoint(
                    tau=each, similarity_kept_share=1 - 0.5 * each, load_max_over_mean=1.9 - 0.9 * math.tanh(6 * each),
                    predicted_union=27 + 9 * each**0.7, predicted_tpot_p50_ms=28 + 9 * (each - 0.12) ** 2 * 8,
                )
                for each in taus
            ),
        )  # fmt: skip

    def tune(self, command: Any, *, revision: int) -> RoutingSettings:
        changes = {
            name: getattr(command, name)
            for name in ("policy", "tau", "load_cap", "control_share")
            if getattr(command, name) is not None
        }
        now = self._settings[0]
        self._settings.insert(0, replace(now, revision=now.revision + 1, reason=command.reason, **changes))
        return self._settings[0]

    # Calibration

    def trace_packs(self) -> tuple[TracePack, ...]:
        if self._is_empty:
            return ()
        return (
            TracePack(id="pack-1", fleet=FLEET, name="october-mix", origin="upload", n_requests=5000, has_decode=True,
                      size_bytes=41_000_000, content_hash="sha256:99aa", created_at=_at(3000),
                      created_by="ops-day"),
        )  # fmt: skip

    def _run(self, number: int, state: RunState, minutes: float, **changes: Any) -> CalibrationRun:
        values: dict[str, Any] = {
            "id": f"run-{number:04d}", "fleet": FLEET, "state": state, "stage": None, "progress_share": 1.0,
            "origin": "live", "trace_pack_id": None, "n_live_requests": 4200, "n_clusters": N_CLUSTERS,
            "transform": "count_idf", "seed": 1, "version_id": f"ver-{number:04d}", "error": None,
            "actor": "ops-night", "reason": "fit degradation fired", "created_at": _at(minutes),
            "started_at": _at(minutes - 0.1), "finished_at": _at(minutes - 2),
        }  # fmt: skip
        return CalibrationRun(**(values | changes))

    def calibration_runs(self) -> tuple[CalibrationRun, ...]:
        if self._is_empty:
            return ()
        running = {"stage": "select_layers", "progress_share": 0.46, "version_id": None, "finished_at": None}
        return (
            self._run(9, RunState.RUNNING, 1, **running),
            self._run(8, RunState.SUCCEEDED, 14),
            self._run(7, RunState.SUCCEEDED, 36),
            self._run(4, RunState.FAILED, 400, version_id=None, error="412 requests have no covered token"),
        )

    def calibration_run(self, run_id: str) -> CalibrationRun:
        return next(run for run in self.calibration_runs() if run.id == run_id)

    def start_calibration(self, command: Any) -> CalibrationRun:
        return self._run(10, RunState.QUEUED, 0, version_id=None, progress_share=0.0, reason=command.reason)

    def cancel_calibration(self, run_id: str, reason: str) -> CalibrationRun:
        return replace(self.calibration_run(run_id), state=RunState.CANCELLED)

    def projection(self, version_id: str, *, is_live: bool, limit: int = 2000) -> Projection:
        n_points = 0 if self._is_empty else min(limit, 2000)
        source = np.random.default_rng(7 + is_live)
        centres = np.random.default_rng(3).normal(0, 0.5, (N_CLUSTERS, 3))
        weights = np.linspace(1.6, 0.6, N_CLUSTERS) if is_live else np.ones(N_CLUSTERS)
        clusters = source.choice(N_CLUSTERS, n_points, p=weights / weights.sum())
        spread = source.normal(0, 0.11, (n_points, 3))
        points = tuple(
            ProjectedPoint(
                request_id=f"req-{index:06d}-7f3a", at=_at(index / 60),
                coordinates=tuple(np.round(centres[k] + spread[index], 5).tolist()), cluster=int(k),
                worker_id=f"decode-{(k + (index % 9 == 0)) % N_WORKERS}", label=LABELS[k % 4], version_number=7,
                similarity=float(np.clip(0.93 - abs(spread[index]).sum() * 0.4, 0, 1)),
            )
            for index, k in enumerate(clusters)
        )  # fmt: skip
        return Projection(
            version_id=version_id, version_number=self._find(version_id).number, explained_share=(0.31, 0.18, 0.11),
            centroids=tuple(tuple(row) for row in centres.tolist()), points=points,
            occupancy=tuple(np.bincount(clusters, minlength=N_CLUSTERS).tolist()),
            reference_occupancy=(525,) * N_CLUSTERS, is_live=is_live,
        )  # fmt: skip

    def cluster_experts(self, version_id: str, cluster: int) -> ClusterExperts:
        use = np.random.default_rng(cluster).dirichlet(np.full(N_EXPERTS, 0.12), N_LAYERS) * 4
        return ClusterExperts(
            version_id=version_id, cluster=cluster, n_requests=260,
            use=tuple(tuple(row) for row in np.clip(use, 0, 1).round(4).tolist()),
        )  # fmt: skip

    # Telemetry

    def metrics(
        self, by: str, since: datetime, *, step_seconds: int | None = None
    ) -> tuple[MetricPoint, ...]:
        if self._is_empty:
            return ()
        now = datetime.now(UTC)
        step = (now - since) / 120
        subjects = {"worker": range(N_WORKERS), "cluster": range(N_CLUSTERS)}.get(by, range(1))
        return tuple(
            self._point(by, subject, since + index * step, step, now)
            for index in range(120)
            for subject in subjects
        )

    def _point(self, by: str, subject: int, start: datetime, step: timedelta, now: datetime) -> MetricPoint:
        minutes = (now - start).total_seconds() / 60
        wave = math.sin(minutes / 5 + subject) * 0.6 + math.sin(minutes * 1.7 + 3 * subject) * 0.5
        gain = 4.2 if minutes < 28 else 0.0
        n_requests = max(
            int(45 * step.total_seconds() * (1 + wave / 20) / (N_WORKERS if by == "worker" else 1)), 1
        )
        return MetricPoint(
            window_start=start, window_seconds=max(int(step.total_seconds()), 1), arm="all", version_number=None,
            worker_id=f"decode-{subject}" if by == "worker" else None, cluster=subject if by == "cluster" else None,
            n_requests=n_requests, n_errors=int(n_requests * 0.001), n_without_signature=2,
            output_tokens=n_requests * 260, tpot_p50_ms=33.5 + wave - gain, tpot_p99_ms=58 + 3 * wave - 1.5 * gain,
            ttft_p50_ms=310 + 12 * wave, ttft_p99_ms=690 + 40 * wave, active_experts=34.5 + wave - gain,
            random_active_experts=41.0 + wave / 3, predicted_active_experts=34.0 - gain, mean_band_size=2.4,
            mean_batch=21 + wave,
        )  # fmt: skip

    def unions(self, since: datetime) -> tuple[WorkerUnion, ...]:
        if self._is_empty:
            return ()
        source = np.random.default_rng(5)
        base = 33 + 6 * np.sin(np.arange(N_LAYERS) / 3)
        return tuple(
            WorkerUnion(
                worker_id=f"decode-{index}", n_steps=18_000 + 40 * index, mean_batch=21.0 + index / 4,
                active_by_layer=tuple((base - 5 + source.normal(0, 1.6, N_LAYERS)).round(2).tolist()),
                random_by_layer=tuple((base + 3).round(2).tolist()),
                observed_over_predicted=1.02 + 0.02 * index if index != 6 else None,
            )
            for index in range(N_WORKERS)
        )  # fmt: skip

    def decisions(self, limit: int = 100) -> tuple[SampledDecision, ...]:
        if self._is_empty:
            return ()
        return tuple(self._decision(f"req-{index:06d}-7f3a", index) for index in range(min(limit, 200)))

    def decision(self, request_id: str) -> SampledDecision:
        return self._decision(request_id, int(request_id.split("-")[1]))

    def _decision(self, request_id: str, index: int) -> SampledDecision:
        home = index % N_WORKERS
        similarities = {
            f"decode-{worker}": round(0.86 - 0.05 * ((worker - home) % N_WORKERS), 3)
            for worker in range(N_WORKERS)
        }
        return SampledDecision(
            request_id=request_id, at=_at(index / 60), arm="live", version_number=7, prefill_worker="prefill-1",
            decode_worker=f"decode-{(home + (index % 5 == 0)) % N_WORKERS}", cluster=home, similarities=similarities,
            band=(f"decode-{home}", f"decode-{(home + 1) % N_WORKERS}"),
            in_flight={f"decode-{worker}": 14 + (worker * 5 + index) % 9 for worker in range(N_WORKERS)},
            reason="within_band", ttft_ms=312.0, tpot_ms=29.4, prompt_tokens=742, output_tokens=268,
            outcome="finished",
        )  # fmt: skip

    def drift_checks(self, since: datetime) -> tuple[DriftCheck, ...]:
        if self._is_empty:
            return ()
        return tuple(
            self._check(index, since + (datetime.now(UTC) - since) * (1 - index / 24)) for index in range(24)
        )

    def _check(self, index: int, at: datetime) -> DriftCheck:
        value = 0.71 + 0.01 * math.sin(index) - (0.06 if index < 4 else 0)
        fit = DriftMeasure(name="fit_degradation", verdict="drift" if index < 4 else "ok", n=900 + index,
                           value=value, threshold=0.68)  # fmt: skip
        thin = index > 20
        mix = DriftMeasure(name="mix_shift", verdict="insufficient_data" if thin else "ok", n=1800 if thin else 2400,
                           value=None if thin else 0.04 + 0.01 * math.cos(index), threshold=0.1)  # fmt: skip
        union = DriftMeasure(name="union_surprise", verdict="ok", n=12_000, value=1.03, threshold=1.15)
        return DriftCheck(
            id=f"drift-{index}", at=at, version_id="ver-0007", version_number=7, window_seconds=300.0,
            measures=(fit, mix, union), refit_decision="no refit: last refit 720 s ago, cooldown 3600 s",
            occupancy=(180, 150, 120, 118, 101, 90, 75, 66), reference_occupancy=(525,) * N_CLUSTERS,
        )  # fmt: skip

    def experiments(self) -> tuple[Experiment, ...]:
        return (
            () if self._is_empty else (self._experiment(2, "running", 5), self._experiment(1, "finished", 8))
        )

    def experiment(self, experiment_id: str) -> Experiment:
        return next(each for each in self.experiments() if each.id == experiment_id)

    def _experiment(self, number: int, state: str, n_done: int) -> Experiment:
        conclusive = n_done >= 6
        effects = tuple(
            Effect(
                metric=metric, mean_percent=mean, interval_percent=ends if conclusive else None,
                p_value=0.008 if conclusive else None, n_pairs=n_done,
                verdict=("lower" if ends[1] < 0 else "no_effect") if conclusive else "inconclusive",
            )
            for metric, mean, ends in (
                ("tpot_p50_ms", -11.8, (-14.2, -9.1)), ("tpot_p99_ms", -7.2, (-12.5, -1.6)),
                ("ttft_p50_ms", 0.4, (-1.1, 2.0)), ("active_experts", -15.9, (-17.0, -14.6)),
            )
        )  # fmt: skip
        start = 24 if state == "running" else 180
        return Experiment(
            id=f"exp-{number}", fleet=FLEET, state=ExperimentState(state), treatment_policy="eldr_capped",
            treatment_version_number=7, control_policy="join_shortest_queue", n_pairs=8, n_pairs_done=n_done,
            window_seconds=60, washout_seconds=20, seed=1, starts_at=_at(start), ends_at=_at(start - 16),
            actor="ops-day", reason="does v7 help?", effects=effects,
            windows=tuple(self._window(index, start) for index in range(2 * n_done)),
        )  # fmt: skip

    def _window(self, index: int, start: float) -> ExperimentWindow:
        is_treated = (index + index // 2) % 2 == 0
        wave = 0.8 * math.sin(index)
        return ExperimentWindow(
            index=index, pair=index // 2, arm="treatment" if is_treated else "control", start=_at(start - index),
            n_requests=1790, tpot_p50_ms=(29.4 if is_treated else 33.4) + wave, tpot_p99_ms=52 + wave,
            ttft_p50_ms=311.0, active_experts=30.0 if is_treated else 35.7,
        )  # fmt: skip

    def start_experiment(self, command: Any) -> Experiment:
        return replace(self._experiment(3, "running", 0), reason=command.reason, n_pairs=command.n_pairs)

    def stop_experiment(self, experiment_id: str, reason: str) -> Experiment:
        return replace(self.experiment(experiment_id), state=ExperimentState.STOPPED)

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
            id=alert_id, fleet=FLEET, rule=rule, subject=subject, fingerprint=f"{rule}/{subject}",
            severity=severity, state=state, summary=texts[rule], value=0.652, threshold=0.68, n=904,
            runbook=f"https://example.invalid/runbooks/{rule.replace('_', '-')}", started_at=_at(minutes + 2),
            fired_at=_at(minutes), resolved_at=_at(minutes - 12) if is_resolved else None, acknowledged_at=None,
            acknowledged_by=None, silenced_until=None, silenced_by=None,
        )  # fmt: skip

    def alerts(self, state: str | None = None) -> tuple[Alert, ...]:
        if self._is_empty:
            return ()
        return tuple(alert for alert in self._alerts if state in (None, alert.state))

    def acknowledge(self, alert_id: str, reason: str) -> Alert:
        return self._change_alert(alert_id, acknowledged_at=_at(0), acknowledged_by="ops-night")

    def silence(self, alert_id: str, command: Any) -> Alert:
        return self._change_alert(
            alert_id, silenced_until=_at(-command.seconds / 60), silenced_by="ops-night"
        )

    def _change_alert(self, alert_id: str, **changes: Any) -> Alert:
        self._alerts = [replace(a, **changes) if a.id == alert_id else a for a in self._alerts]
        return next(alert for alert in self._alerts if alert.id == alert_id)

    def audit(self, since: datetime | None = None) -> tuple[AuditEvent, ...]:
        if self._is_empty:
            return ()
        tuned = ('{"policy": "eldr_capped", "tau": 0.05, "load_cap": 1.25}',
                 '{"policy": "eldr_capped", "tau": 0.1, "load_cap": 1.25}')  # fmt: skip
        rows = (
            (4, 21, "ops-day", "tune", "settings", "3", "raise tau: load max over mean at 1.31", tuned),
            (3, 28, "ops-night", "promote", "version", "ver-0007", "refit passed the gate",
             ('{"state": "candidate"}', '{"state": "active"}')),
            (2, 41, "ops-night", "roll_back", "version", "ver-0005", "P99 up after v6", (None, '{"version": 5}')),
            (1, 47, "ops-day", "tune", "settings", "2", "start low", tuned[::-1]),
        )  # fmt: skip
        return tuple(
            AuditEvent(id=number, at=_at(minutes), fleet=FLEET, actor=actor, action=action, resource=resource,
                       resource_id=resource_id, reason=reason, request_id=f"req-{number:04d}", before=texts[0],
                       after=texts[1])
            for number, minutes, actor, action, resource, resource_id, reason, texts in rows
        )  # fmt: skip
