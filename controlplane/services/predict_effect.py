"""What a change of the knobs would do: recent traffic replayed with it, at several tau."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from controlplane.domain.routing_settings import Knobs
from controlplane.domain.versions import TauPoint, Tune, TuningPreview
from controlplane.services.keep_version import load_version, shape_of
from controlplane.services.manage_fleets import get_fleet
from controlplane.services.place_samples import open_counts, sign_counts
from controlplane.services.replay_traffic import RecentTraffic, ReplayedSteps, replay_traffic
from controlplane.services.sampled_use import decode_use, prefill_use
from controlplane.services.tune_settings import apply_command, get_settings
from controlplane.settings import Settings
from controlplane.storage.database import Database, ReadSession
from controlplane.storage.repositories import routers, samples, versions, workers
from controlplane.storage.repositories.samples import SampleFilter
from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.latency_model import PRESETS, LatencyModel, find_preset
from eldr_runtime.policies.choice import PolicyName
from eldr_runtime.routing_config import WorkerRole, WorkerState

TAUS = (0.0, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
HAVE_TAU = (PolicyName.ELDR, PolicyName.ELDR_CAPPED)
# A replay of so many requests at nine tau takes under half a second.
MAX_REQUESTS = 600
# Fewer fill the workers hardly once.
MIN_REQUESTS = 100
IDLE_BATCH = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayGround:
    """What is replayed, on what."""

    traffic: RecentTraffic
    version: CentroidVersion
    worker_ids: tuple[str, ...]
    n_in_flight: int
    latency: LatencyModel | None


def predict_effect(
    database: Database, fleet: str, command: Tune, now: datetime, settings: Settings
) -> TuningPreview:
    """Replay recent traffic with the knobs a command asks for; nothing is changed.

    The curve is empty without an active version, ready decode workers, or enough sampled requests.
    """
    with database.read() as session:
        before = get_settings(session, fleet)
        knobs = apply_command(before, command)
        ground = _find_ground(session, fleet, now, settings)
    taus = {*TAUS, before.tau, knobs.tau} if knobs.policy in HAVE_TAU else {knobs.tau}
    curve = () if ground is None else tuple(_point(ground, knobs, tau) for tau in sorted(taus))
    return TuningPreview(
        before=before,
        policy=knobs.policy,
        tau=knobs.tau,
        load_cap=knobs.load_cap,
        n_requests=0 if ground is None else len(ground.traffic),
        curve=curve,
    )


def _point(ground: ReplayGround, knobs: Knobs, tau: float) -> TauPoint:
    steps = replay_traffic(
        ground.traffic,
        ground.version,
        ground.worker_ids,
        replace(knobs, tau=tau).to_policy(),
        n_in_flight=ground.n_in_flight,
    )
    return TauPoint(
        tau=tau,
        similarity_kept_share=steps.similarity_kept_share,
        load_max_over_mean=steps.load_max_over_mean,
        predicted_union=float(np.average(steps.unions)),
        predicted_tpot_p50_ms=None if ground.latency is None else _median_tpot_ms(ground.latency, steps),
    )


def _median_tpot_ms(latency: LatencyModel, steps: ReplayedSteps) -> float:
    """Find the step time that half of the requests see: a step counts once for each of its requests."""
    step_ms = latency.step_ms(steps.unions, steps.batches, steps.kv_tokens)
    return float(np.median(np.repeat(step_ms, steps.batches.astype(np.int64))))


def _find_ground(session: ReadSession, fleet: str, now: datetime, settings: Settings) -> ReplayGround | None:
    active = versions.find_active(session, fleet)
    worker_ids = tuple(
        worker.worker_id
        for worker in workers.list_workers(session, fleet, now)
        if worker.role == WorkerRole.DECODE and worker.state is WorkerState.READY
    )
    if active is None or not worker_ids:
        return None
    version = load_version(session, active)
    traffic = _recent_traffic(session, fleet, version)
    if traffic is None:
        return None
    seen_since = now - timedelta(seconds=settings.lease_seconds)
    in_flight = sum(sum(row.in_flight.values()) for row in routers.list_routers(session, fleet, seen_since))
    wanted = in_flight or IDLE_BATCH * len(worker_ids)
    return ReplayGround(
        traffic=traffic,
        version=version,
        worker_ids=worker_ids,
        n_in_flight=min(max(wanted, len(worker_ids)), len(traffic) // 2),
        latency=_latency_of(session, fleet),
    )


def _recent_traffic(session: ReadSession, fleet: str, version: CentroidVersion) -> RecentTraffic | None:
    """Read the newest samples, with their use in decode where enough have it, else in prefill."""
    shape = shape_of(get_fleet(session, fleet))
    stored = samples.read_counts(session, fleet, SampleFilter(), limit=MAX_REQUESTS, needs_decode=True)
    has_decode = len(stored) >= MIN_REQUESTS
    if not has_decode:
        stored = samples.read_counts(session, fleet, SampleFilter(), limit=MAX_REQUESTS)
    if len(stored) < MIN_REQUESTS or version.transform.name.needs_gates:
        return None
    stored = stored[::-1]  # as they came
    return RecentTraffic(
        signatures=sign_counts(version, open_counts([each.prefill_counts for each in stored], shape)),
        use=decode_use(stored, shape) if has_decode else prefill_use(stored, shape),
        kv_tokens=np.array(
            [each.prompt_tokens + (each.decode_steps or 0) / 2 for each in stored], dtype=np.float64
        ),
    )


def _latency_of(session: ReadSession, fleet: str) -> LatencyModel | None:
    """Find the latency model the fleet names, or that of its model on its GPU; None where nobody has one."""
    row = get_fleet(session, fleet)
    if row.latency_preset is not None:
        return find_preset(row.latency_preset).model
    name = row.model.rpartition("/")[2]  # without its publisher
    for preset in PRESETS.values():
        is_model = preset.shape == replace(shape_of(row), model=preset.shape.model)
        if is_model and name.lower() == preset.shape.model.lower() and row.gpu.lower() in preset.name:
            return preset.model
    return None
