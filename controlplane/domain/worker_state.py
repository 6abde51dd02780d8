"""The state of a worker: what it reports, what the operator wants, and what its lease says."""

from datetime import datetime

from eldr_runtime.routing_config import WorkerState


def state_on_heartbeat(reported: WorkerState, *, is_drained: bool) -> WorkerState:
    """State of a worker that has just reported; an operator's wish to drain it outranks READY and JOINING."""
    return WorkerState.DRAINING if is_drained else reported


def state_at(state: WorkerState, lease_expires_at: datetime, now: datetime) -> WorkerState:
    """State of a worker now: LOST from the moment its lease runs out, also before a tick has noted it."""
    return WorkerState.LOST if lease_expires_at <= now else state
