"""What a request is routed by: one immutable value, compiled from a configuration and its versions."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eldr_runtime.centroid_version import CentroidVersion
from eldr_runtime.errors import InvalidConfig
from eldr_runtime.experiment_design import ArmSchedule, ArmWindow, ScheduleKind, arm_at
from eldr_runtime.json_values import from_json_value, parse_json
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.policies.choice import PolicyName
from eldr_runtime.router.prefill_choice import PrefillRing
from eldr_runtime.router.upstream import WorkerAddress
from eldr_runtime.routing_config import (
    Arm,
    RouterLimits,
    RoutingConfig,
    TransferMode,
    VersionRef,
    WorkerEntry,
    WorkerRole,
    WorkerState,
)
from eldr_runtime.worker_choice import RoutingTable, build_routing_table

LOAD_ONLY_ARM = "load-only"
_NO_SCHEDULE = ArmSchedule(seed=0, window_seconds=3600, washout_seconds=0, kind=ScheduleKind.SINGLE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledArm:
    """One arm, ready to decide.

    Parameters
    ----------
    version, version_ref
        What signatures are made with, and its name; None where the arm routes by load alone.
    """

    name: str
    policy: PolicyName
    table: RoutingTable
    version: CentroidVersion | None
    version_ref: VersionRef | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoutingSnapshot:
    """Everything a request reads, once.

    Parameters
    ----------
    generation
        None for a list of workers from a file, which no control plane has numbered.
    prefill, decode
        Ready workers by id, in ascending order of ids.
    has_push_transfer
        A worker's connector pushes KV: no decode worker may be chosen by what prefill found.
    known_workers
        Ids of all workers of the fleet, ready or not.
    shape
        The model that counts must belong to; None where it is not known.
    """

    generation: int | None
    model: str | None
    shape: ModelShape | None
    prefill: Mapping[str, WorkerAddress]
    decode: Mapping[str, WorkerAddress]
    known_workers: frozenset[str]
    ring: PrefillRing
    schedule: ArmSchedule
    arm_order: tuple[Arm, ...]
    arms: Mapping[str, CompiledArm]
    has_push_transfer: bool
    limits: RouterLimits

    def window_at(self, utc_seconds: float) -> ArmWindow:
        """Return the window of a moment and its arm."""
        return arm_at(self.schedule, self.arm_order, utc_seconds)


def compile_snapshot(config: RoutingConfig, versions: Mapping[str, CentroidVersion]) -> RoutingSnapshot:
    """Compile a configuration; `versions` has each version that its arms name, by content hash."""
    decode_ids = config.worker_ids(WorkerRole.DECODE)
    absent_ids = config.absent_ids(WorkerRole.DECODE)
    arms = {}
    for arm in config.arms:
        reference = config.version_of(arm)
        version = None if reference is None else versions[reference.content_hash]
        table = build_routing_table(
            version if decode_ids else None, decode_ids, arm.to_settings(), absent_workers=absent_ids
        )
        arms[arm.name] = CompiledArm(
            name=arm.name, policy=arm.policy, table=table, version=version, version_ref=reference
        )
    prefill = _addresses(config.workers, WorkerRole.PREFILL)
    return RoutingSnapshot(
        generation=config.generation,
        model=config.model.id,
        shape=config.model.to_shape(),
        prefill=prefill,
        decode=_addresses(config.workers, WorkerRole.DECODE),
        known_workers=frozenset(worker.id for worker in config.workers),
        ring=PrefillRing(worker_ids=tuple(prefill)),
        schedule=config.arm_schedule,
        arm_order=config.arms,
        arms=arms,
        has_push_transfer=any(worker.transfer_mode is TransferMode.PUSH for worker in config.workers),
        limits=config.limits,
    )


def load_only_snapshot(workers: tuple[WorkerEntry, ...]) -> RoutingSnapshot:
    """Return a snapshot that routes to given workers by load alone."""
    arm = Arm(name=LOAD_ONLY_ARM, policy=PolicyName.JOIN_SHORTEST_QUEUE)
    prefill = _addresses(workers, WorkerRole.PREFILL)
    decode = _addresses(workers, WorkerRole.DECODE)
    table = build_routing_table(None, tuple(decode), arm.to_settings())
    compiled = CompiledArm(name=arm.name, policy=arm.policy, table=table, version=None, version_ref=None)
    return RoutingSnapshot(
        generation=None,
        model=None,
        shape=None,
        prefill=prefill,
        decode=decode,
        known_workers=frozenset(worker.id for worker in workers),
        ring=PrefillRing(worker_ids=tuple(prefill)),
        schedule=_NO_SCHEDULE,
        arm_order=(arm,),
        arms={arm.name: compiled},
        has_push_transfer=False,
        limits=RouterLimits(),
    )


def read_workers_file(path: Path) -> tuple[WorkerEntry, ...]:
    """Read a list of workers: `[{"id", "role", "url"}, ...]`; state and capacity may be left out."""
    try:
        document = parse_json(path.read_bytes())
    except OSError as error:
        raise InvalidConfig(field="workers file", value=str(path), limit="a file that can be read") from error
    if not isinstance(document, list):
        raise InvalidConfig(field="workers file", value=type(document).__name__, limit="a JSON array")
    defaults = {"state": WorkerState.READY.value, "capacity": 1}
    filled = [{**defaults, **each} if isinstance(each, dict) else each for each in document]
    return from_json_value(tuple[WorkerEntry, ...], json.loads(json.dumps(filled)), unknown="refuse")


def _addresses(workers: tuple[WorkerEntry, ...], role: WorkerRole) -> dict[str, WorkerAddress]:
    ready = [each for each in workers if each.role is role and each.state is WorkerState.READY]
    ready.sort(key=lambda worker: worker.id)
    return {each.id: WorkerAddress(worker_id=each.id, url=each.url.rstrip("/")) for each in ready}
