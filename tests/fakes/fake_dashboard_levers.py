"""The part of the fake client with levers: versions, activations, settings, calibrations."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from controlplane.domain.calibrations import (
    CalibrationReport,
    CalibrationRun,
    ClusterChange,
    HeldOutChange,
    RandomLabelControl,
    RunState,
    TracePack,
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

FLEET = "mi300x-a"
N_CLUSTERS = 8


def _at(minutes: float) -> datetime:
    return datetime.now(UTC) - timedelta(minutes=minutes)


def _version(number: int, state: VersionState, minutes: float, **changes: Any) -> Version:
    values: dict[str, Any] = {
        "id": f"ver-{number:04d}",
        "number": number,
        "fleet": FLEET,
        "content_hash": f"sha256:{number:02d}c4b1e09a7d",
        "parent_hash": f"sha256:{number - 1:02d}c4b1e09a7d",
        "origin": "drift_refit",
        "state": state,
        "transform": "count_idf",
        "n_centroids": N_CLUSTERS,
        "n_layers_kept": 17,
        "n_requests": 4200,
        "held_out_percent": -14.0 - number / 4,
        "rho": 0.6 + number / 90,
        "metrics": {"silhouette": 0.19 + number / 400, "largest_cluster_share": 0.17, "n_layers_kept": 17.0},
        "calibration_run_id": f"run-{number:04d}",
        "created_at": _at(minutes),
    }
    return Version(**(values | changes))


class FakeLevers:
    """Needs `_is_empty`."""

    _is_empty: bool

    def __init__(self) -> None:
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
            version=self._find(version_id),
            replaces=self._active(),
            is_allowed=True,
            checks=(
                GateCheck(name="content hash", is_passed=True, detail="the artifact is what its hash says"),
                GateCheck(name="shape", is_passed=True, detail="24 layers of 64 experts, as the fleet's"),
                GateCheck(name="held-out union", is_passed=True, detail=union),
            ),
            predicted_union_change_points=-1.2,
            generation_after=42,
        )

    def _activate(self, version_id: str, kind: ActivationKind, reason: str) -> Activation:
        states = {version_id: VersionState.ACTIVE, self._active().id: VersionState.RETIRED}
        self._versions = [
            replace(version, state=states.get(version.id, version.state)) for version in self._versions
        ]
        return replace(
            self.activations()[0],
            kind=kind,
            reason=reason,
            version_id=version_id,
            version_number=self._active().number,
            generation=42,
        )

    def promote(self, version_id: str, command: Any, *, idempotency_key: str | None = None) -> Activation:
        return self._activate(version_id, ActivationKind.PROMOTE, command.reason)

    def reject(self, version_id: str, reason: str, *, idempotency_key: str | None = None) -> Version:
        rejected = replace(self._find(version_id), state=VersionState.REJECTED)
        self._versions = [rejected if version.id == version_id else version for version in self._versions]
        return rejected

    def roll_back(self, command: Any, *, idempotency_key: str | None = None) -> Activation:
        target = command.version_id or next(v for v in self._versions if v.state is VersionState.RETIRED).id
        return self._activate(target, ActivationKind.ROLL_BACK, command.reason)

    def activations(self) -> tuple[Activation, ...]:
        if self._is_empty:
            return ()
        rows = (
            (7, "promote", 28, None, 40),
            (5, "roll_back", 41, 28, 38),
            (6, "promote", 52, 41, 37),
            (5, "promote", 1490, 52, 20),
        )
        return tuple(
            Activation(
                id=f"act-{index}",
                kind=ActivationKind(kind),
                version_id=f"ver-{number:04d}",
                version_number=number,
                actor="ops-night",
                reason="drift on fit, refit passed the gate",
                is_override=False,
                generation=generation,
                at=_at(start),
                until=None if end is None else _at(end),
            )
            for index, (number, kind, start, end, generation) in enumerate(rows)
        )

    def live_at(self, at: datetime) -> LiveState:
        live = [activation for activation in self.activations() if activation.at <= at]
        return LiveState(
            at=at, generation=40, activation=live[0] if live else None, settings=self._settings[-1]
        )

    def _revision(self, revision: int, tau: float, minutes: float, reason: str) -> RoutingSettings:
        return RoutingSettings(
            revision=revision,
            generation=37 + revision,
            policy="eldr_capped",
            tau=tau,
            load_cap=1.25,
            control_share=0.0,
            changed_at=_at(minutes),
            changed_by="ops-day",
            reason=reason,
            revert_at=None,
        )

    def settings(self) -> RoutingSettings:
        return self._settings[0]

    def settings_revisions(self) -> tuple[RoutingSettings, ...]:
        return tuple(self._settings)

    def preview_tuning(self, command: Any) -> TuningPreview:
        now = self._settings[0]
        tau = now.tau if command.tau is None else command.tau
        taus = sorted({0.0, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, now.tau, tau})
        return TuningPreview(
            before=now,
            policy=command.policy or now.policy,
            tau=tau,
            load_cap=command.load_cap or now.load_cap,
            n_requests=0 if self._is_empty else 600,
            curve=()
            if self._is_empty
            else tuple(
                TauPoint(
                    tau=each,
                    similarity_kept_share=1 - 0.5 * each,
                    load_max_over_mean=1.9 - 0.9 * math.tanh(6 * each),
                    predicted_union=27 + 9 * each**0.7,
                    predicted_tpot_p50_ms=28 + 9 * (each - 0.12) ** 2 * 8,
                )
                for each in taus
            ),
        )

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
            TracePack(
                id="pack-1",
                fleet=FLEET,
                name="october-mix",
                origin="upload",
                n_requests=5000,
                has_decode=True,
                size_bytes=41_000_000,
                content_hash="sha256:99aa",
                created_at=_at(3000),
                created_by="ops-day",
            ),
        )

    def _run(self, number: int, state: RunState, minutes: float, **changes: Any) -> CalibrationRun:
        values: dict[str, Any] = {
            "id": f"run-{number:04d}",
            "fleet": FLEET,
            "state": state,
            "stage": None,
            "progress_share": 1.0,
            "origin": "drift_refit",
            "trace_pack_id": None,
            "n_live_requests": 4200,
            "n_clusters": N_CLUSTERS,
            "transform": "count_idf",
            "seed": 1,
            "version_id": f"ver-{number:04d}",
            "error": None,
            "actor": "ops-night",
            "reason": "fit degradation fired",
            "created_at": _at(minutes),
            "started_at": _at(minutes - 0.1),
            "finished_at": _at(minutes - 2),
        }
        return CalibrationRun(**(values | changes))

    def calibration_runs(self) -> tuple[CalibrationRun, ...]:
        if self._is_empty:
            return ()
        running = {"stage": "select_layers", "progress_share": 0.46, "version_id": None, "finished_at": None}
        return (
            self._run(9, RunState.RUNNING, 1, **running),
            self._run(8, RunState.SUCCEEDED, 14),
            self._run(7, RunState.SUCCEEDED, 36, origin="calibration"),
            self._run(4, RunState.FAILED, 400, version_id=None, error="412 requests have no covered token"),
        )

    def calibration_run(self, run_id: str) -> CalibrationRun:
        return next(run for run in self.calibration_runs() if run.id == run_id)

    def calibration_report(self, run_id: str) -> CalibrationReport:
        sizes = (525,) * 7 + (521,)
        rho_by_layer_count = tuple(0.42 + 0.27 * math.sin(n * math.pi / 34) for n in range(1, 25))
        return CalibrationReport(
            n_clusters=N_CLUSTERS,
            transform="count_idf",
            n_requests=sum(sizes),
            n_left_out=4,
            signature_note=None,
            n_layers_kept=17,
            rho=0.688,
            rho_interval=(0.671, 0.704),
            rho_n_pairs=20_000,
            rho_by_transform={"count_idf": 0.664, "count": 0.641, "sqrt_count": 0.627, "binary": 0.518},
            rho_by_layer_count=rho_by_layer_count,
            cluster_sizes=sizes,
            silhouette=0.207,
            held_out={
                "batch_8": self._held_out(-10.4),
                "batch_16": self._held_out(-14.1),
                "batch_32": self._held_out(-15.7),
                "batch_64": None,
            },
            control=RandomLabelControl(random_labels_percent=0.2, batch_size=16),
        )

    def _held_out(self, percent: float) -> HeldOutChange:
        return HeldOutChange(
            mean_percent=percent,
            seeds=(percent - 0.4, percent, percent + 0.4),
            interval=(percent - 1.0, percent + 1.0),
            covered_share=1.0,
            by_cluster=tuple(
                ClusterChange(cluster=k, n_requests=260, percent=percent + k / 2 - 2)
                for k in range(N_CLUSTERS)
            ),
        )

    def start_calibration(self, command: Any, *, idempotency_key: str | None = None) -> CalibrationRun:
        return self._run(10, RunState.QUEUED, 0, version_id=None, progress_share=0.0, reason=command.reason)

    def cancel_calibration(
        self, run_id: str, reason: str, *, idempotency_key: str | None = None
    ) -> CalibrationRun:
        return replace(self.calibration_run(run_id), state=RunState.CANCELLED)
