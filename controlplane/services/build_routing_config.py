"""Build the snapshot that routers serve from, out of everything that is live."""

from datetime import datetime

from controlplane.domain.arms import CONTROL_ARM, LIVE_ARM, TREATMENT_ARM
from controlplane.domain.routing_settings import Knobs
from controlplane.services.manage_fleets import get_fleet
from controlplane.services.record_change import SYSTEM_ACTOR, Change
from controlplane.services.renew_lease import expire_leases_of
from controlplane.storage.database import Database, ReadSession
from controlplane.storage.models.fleets import FleetRow
from controlplane.storage.models.telemetry import ExperimentRow
from controlplane.storage.models.versions import SettingsRevisionRow
from controlplane.storage.repositories import running_experiments, settings_revisions, versions, workers
from eldr_runtime.experiment_design import ArmSchedule, ScheduleKind
from eldr_runtime.policies.choice import PolicyName
from eldr_runtime.routing_config import (
    Arm,
    ModelEntry,
    RouterLimits,
    RoutingConfig,
    TransferMode,
    VersionRef,
    WorkerEntry,
    WorkerRole,
    WorkerState,
)

# Outside of an experiment, a control share takes windows of this length.
CONTROL_POLICY = PolicyName.JOIN_SHORTEST_QUEUE
CONTROL_SEED = 1
CONTROL_WINDOW_SECONDS = 60
CONTROL_WASHOUT_SECONDS = 20


def current_generation(database: Database, fleet: str, request_id: str, now: datetime) -> int:
    """Find the generation that is live, after noting leases that ran out since the last tick."""
    with database.read() as session:
        generation = get_fleet(session, fleet).generation
        if not workers.has_expired(session, fleet, now):
            return generation
    with database.write() as writer:
        change = Change(session=writer, actor=SYSTEM_ACTOR, request_id=request_id, now=now)
        expire_leases_of(change, fleet)
        return get_fleet(writer, fleet).generation


def build_routing_config(session: ReadSession, fleet: str, now: datetime) -> RoutingConfig:
    """Build the snapshot of a fleet's current generation, from one consistent read."""
    row = get_fleet(session, fleet)
    settings = settings_revisions.current_revision(session, fleet)
    experiment = running_experiments.find_running(session, fleet)
    return RoutingConfig(
        fleet=fleet,
        generation=row.generation,
        issued_at=now,
        model=ModelEntry(id=row.model, layers=row.n_layers, experts=row.n_experts, top_k=row.top_k),
        version=_active_version(session, fleet),
        arms=_arms(settings, experiment),
        arm_schedule=_schedule(settings, experiment),
        workers=_workers(session, fleet),
        limits=_limits(row),
    )


def _active_version(session: ReadSession, fleet: str) -> VersionRef | None:
    active = versions.find_active(session, fleet)
    if active is None:
        return None
    return VersionRef(
        id=active.id,
        number=active.number,
        content_hash=active.content_hash,
        artifact_url=f"/v1/fleets/{fleet}/artifacts/{active.content_hash}",
    )


def _arms(settings: SettingsRevisionRow, experiment: ExperimentRow | None) -> tuple[Arm, ...]:
    """Build the arms: the live settings, beside a control in an experiment or where it has a share."""
    if experiment is not None:
        control = Arm(name=CONTROL_ARM, policy=PolicyName(experiment.control_policy), share=0.5)
        return (_live_arm(settings, TREATMENT_ARM, 0.5), control)
    share = settings.control_share
    if share == 0:
        return (_live_arm(settings, LIVE_ARM, 1.0),)
    control = Arm(name=CONTROL_ARM, policy=CONTROL_POLICY, share=share)
    return (_live_arm(settings, LIVE_ARM, 1.0 - share), control)


def _live_arm(settings: SettingsRevisionRow, name: str, share: float) -> Arm:
    policy = Knobs(
        policy=settings.policy,
        tau=settings.tau,
        load_cap=settings.load_cap,
        control_share=settings.control_share,
    ).to_policy()
    return Arm(name=name, policy=policy.policy, tau=policy.tau, load_cap=policy.load_cap, share=share)


def _schedule(settings: SettingsRevisionRow, experiment: ExperimentRow | None) -> ArmSchedule:
    if experiment is not None:
        return ArmSchedule(
            seed=experiment.seed,
            window_seconds=experiment.window_seconds,
            washout_seconds=experiment.washout_seconds,
            kind=ScheduleKind.SWITCHBACK,
        )
    is_single = settings.control_share == 0
    return ArmSchedule(
        seed=CONTROL_SEED,
        window_seconds=CONTROL_WINDOW_SECONDS,
        washout_seconds=0 if is_single else CONTROL_WASHOUT_SECONDS,
        kind=ScheduleKind.SINGLE if is_single else ScheduleKind.CANARY,
    )


def _workers(session: ReadSession, fleet: str) -> tuple[WorkerEntry, ...]:
    return tuple(
        WorkerEntry(
            id=row.worker_id,
            role=WorkerRole(row.role),
            url=row.url,
            state=WorkerState(row.state),  # as noted, so that one generation is one content
            capacity=row.capacity,
            # A worker without a connector hands nothing over, so nothing is pushed to it either.
            transfer_mode=TransferMode.PULL if row.transfer_mode is None else TransferMode(row.transfer_mode),
        )
        for row in workers.list_rows(session, fleet)
    )


def _limits(row: FleetRow) -> RouterLimits:
    return RouterLimits(
        # Every request whose counts or profile are wanted needs its event.
        event_sample_share=max(row.signature_sample_share, row.decode_profile_share),
        signature_sample_share=row.signature_sample_share,
        decode_profile_share=row.decode_profile_share,
        metrics_window_seconds=row.metrics_window_seconds,
    )
