"""The part of the fake client that measures: metrics, unions, decisions, drift, experiments, projections."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from controlplane.domain.calibrations import ClusterExperts, ProjectedPoint, Projection
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

FLEET = "mi300x-a"
N_WORKERS = 8
N_LAYERS = 24
N_EXPERTS = 64
N_CLUSTERS = 8
STARTED_AT = datetime.now(UTC)
LABELS = ("code", "maths", "chat", "law")


def _at(minutes: float) -> datetime:
    return datetime.now(UTC) - timedelta(minutes=minutes)


class FakeTelemetry:
    """Needs `_is_empty`."""

    _is_empty: bool

    def projection(self, version_id: str, *, is_live: bool, limit: int = 2000) -> Projection:
        n_points = 0 if self._is_empty else min(limit, 2000)
        source = np.random.default_rng(7 + is_live)
        centres = np.random.default_rng(3).normal(0, 0.5, (N_CLUSTERS, 3))
        weights = np.linspace(1.6, 0.6, N_CLUSTERS) if is_live else np.ones(N_CLUSTERS)
        clusters = source.choice(N_CLUSTERS, n_points, p=weights / weights.sum())
        spread = source.normal(0, 0.11, (n_points, 3))
        points = tuple(
            ProjectedPoint(
                request_id=f"req-{index:06d}-7f3a",
                at=_at(index / 60),
                coordinates=tuple(np.round(centres[k] + spread[index], 5).tolist()),
                cluster=int(k),
                worker_id=f"decode-{(k + (index % 9 == 0)) % N_WORKERS}",
                label=LABELS[k % 4],
                version_number=7,
                similarity=float(np.clip(0.93 - abs(spread[index]).sum() * 0.4, 0, 1)),
            )
            for index, k in enumerate(clusters)
        )
        return Projection(
            version_id=version_id,
            version_number=int(version_id.rpartition("-")[2]),
            explained_share=(0.31, 0.18, 0.11),
            centroids=tuple(tuple(row) for row in centres.tolist()),
            points=points,
            occupancy=tuple(np.bincount(clusters, minlength=N_CLUSTERS).tolist()),
            reference_occupancy=(525,) * N_CLUSTERS,
            is_live=is_live,
        )

    def cluster_experts(self, version_id: str, cluster: int) -> ClusterExperts:
        use = np.random.default_rng(cluster).dirichlet(np.full(N_EXPERTS, 0.12), N_LAYERS) * 4
        return ClusterExperts(
            version_id=version_id,
            cluster=cluster,
            n_requests=260,
            use=tuple(tuple(row) for row in np.clip(use, 0, 1).round(4).tolist()),
        )

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
            window_start=start,
            window_seconds=max(int(step.total_seconds()), 1),
            arm="all",
            version_number=None,
            worker_id=f"decode-{subject}" if by == "worker" else None,
            cluster=subject if by == "cluster" else None,
            n_requests=n_requests,
            n_errors=int(n_requests * 0.001),
            n_without_signature=2,
            output_tokens=n_requests * 260,
            tpot_p50_ms=33.5 + wave - gain,
            tpot_p99_ms=58 + 3 * wave - 1.5 * gain,
            ttft_p50_ms=310 + 12 * wave,
            ttft_p99_ms=690 + 40 * wave,
            active_experts=34.5 + wave - gain,
            random_active_experts=41.0 + wave / 3,
            predicted_active_experts=34.0 - gain,
            mean_band_size=2.4,
            mean_batch=21 + wave,
        )

    def unions(self, since: datetime) -> tuple[WorkerUnion, ...]:
        if self._is_empty:
            return ()
        source = np.random.default_rng(5)
        base = 33 + 6 * np.sin(np.arange(N_LAYERS) / 3)
        return tuple(
            WorkerUnion(
                worker_id=f"decode-{index}",
                n_steps=18_000 + 40 * index,
                mean_batch=21.0 + index / 4,
                active_by_layer=tuple((base - 5 + source.normal(0, 1.6, N_LAYERS)).round(2).tolist()),
                random_by_layer=tuple((base + 3).round(2).tolist()),
                observed_over_predicted=1.02 + 0.02 * index if index != 6 else None,
            )
            for index in range(N_WORKERS)
        )

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
            request_id=request_id,
            at=_at(index / 60),
            arm="live",
            version_number=7,
            prefill_worker="prefill-1",
            decode_worker=f"decode-{(home + (index % 5 == 0)) % N_WORKERS}",
            cluster=home,
            similarities=similarities,
            band=(f"decode-{home}", f"decode-{(home + 1) % N_WORKERS}"),
            in_flight={f"decode-{worker}": 14 + (worker * 5 + index) % 9 for worker in range(N_WORKERS)},
            reason="within_band",
            ttft_ms=312.0,
            tpot_ms=29.4,
            prompt_tokens=742,
            output_tokens=268,
            outcome="finished",
        )

    def drift_checks(self, since: datetime) -> tuple[DriftCheck, ...]:
        if self._is_empty:
            return ()
        return tuple(
            self._check(index, since + (datetime.now(UTC) - since) * (1 - index / 24)) for index in range(24)
        )

    def _check(self, index: int, at: datetime) -> DriftCheck:
        value = 0.71 + 0.01 * math.sin(index) - (0.06 if index < 4 else 0)
        fit = DriftMeasure(
            name="fit_degradation",
            verdict="drift" if index < 4 else "ok",
            n=900 + index,
            value=value,
            threshold=0.68,
        )
        thin = index > 20 or not self.has_mix_shift
        mix = DriftMeasure(
            name="mix_shift",
            verdict="insufficient_data" if thin else "ok",
            n=1800 if thin else 2400,
            value=None if thin else 0.04 + 0.01 * math.cos(index),
            threshold=0.1,
        )
        union = DriftMeasure(name="union_surprise", verdict="ok", n=12_000, value=1.03, threshold=1.15)
        return DriftCheck(
            id=f"drift-{index}",
            at=at,
            version_id="ver-0007",
            version_number=7,
            window_seconds=300.0,
            measures=(fit, mix, union),
            refit_decision="cooling_down: last refit 720 s ago, cooldown 3600 s",
            occupancy=(180, 150, 120, 118, 101, 90, 75, 66),
            reference_occupancy=(525,) * N_CLUSTERS,
        )

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
                metric=metric,
                mean_percent=mean,
                interval_percent=ends if conclusive else None,
                p_value=0.008 if conclusive else None,
                n_pairs=n_done,
                verdict=("lower" if ends[1] < 0 else "no_effect") if conclusive else "inconclusive",
            )
            for metric, mean, ends in (
                ("tpot_p50_ms", -11.8, (-14.2, -9.1)),
                ("tpot_p99_ms", -7.2, (-12.5, -1.6)),
                ("ttft_p50_ms", 0.4, (-1.1, 2.0)),
                ("active_experts", -15.9, (-17.0, -14.6)),
            )
        )
        start = 24 if state == "running" else 180
        return Experiment(
            id=f"exp-{number}",
            fleet=FLEET,
            state=ExperimentState(state),
            treatment_policy="eldr_capped",
            treatment_version_number=7,
            control_policy="join_shortest_queue",
            n_pairs=8,
            n_pairs_done=n_done,
            window_seconds=60,
            washout_seconds=20,
            seed=1,
            starts_at=STARTED_AT - timedelta(minutes=start),
            ends_at=STARTED_AT - timedelta(minutes=start - 16),
            actor="ops-day",
            reason="does v7 help?",
            effects=effects,
            windows=tuple(self._window(index, start) for index in range(2 * n_done)),
        )

    def _window(self, index: int, start: float) -> ExperimentWindow:
        is_treated = (index + index // 2) % 2 == 0
        wave = 0.8 * math.sin(index)
        return ExperimentWindow(
            index=index,
            pair=index // 2,
            arm="treatment" if is_treated else "control",
            start=_at(start - index),
            n_requests=1790,
            tpot_p50_ms=(29.4 if is_treated else 33.4) + wave,
            tpot_p99_ms=52 + wave,
            ttft_p50_ms=311.0,
            active_experts=30.0 if is_treated else 35.7,
        )

    def start_experiment(self, command: Any, *, idempotency_key: str | None = None) -> Experiment:
        return replace(self._experiment(3, "running", 0), reason=command.reason, n_pairs=command.n_pairs)

    def stop_experiment(
        self, experiment_id: str, reason: str, *, idempotency_key: str | None = None
    ) -> Experiment:
        return replace(self.experiment(experiment_id), state=ExperimentState.STOPPED)
