"""The story that `eldr up --demo --auto` plays: from no version to a measured gain, drift, refit and back.

Every step is what an operator does in the dashboard, through the same API.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from controlplane.cli.load_control import LoadStatus, inject_unseen_topic, read_load_status
from controlplane.cli.stack import Stack
from controlplane.client import ControlPlaneClient
from controlplane.domain.alerts import Alert, AlertState
from controlplane.domain.calibrations import RunState, StartCalibration
from controlplane.domain.telemetry import Effect, Experiment, ExperimentState, StartExperiment
from controlplane.domain.versions import Promote, RollBack, Tune, Version, VersionState

WARM_UP_REQUESTS = 900
UNSEEN_TOPIC_SHARE = 0.3
NEW_TAU = 0.2
WINDOW_SECONDS = 8
WASHOUT_SECONDS = 3
STEP_TIMEOUT_SECONDS = 300.0
LIVE_TIMEOUT_SECONDS = 20.0
DRIFT_RULE = "fit_degradation"
OVER = frozenset({RunState.FAILED, RunState.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change in percent with its 95 % interval; None where there were too few pairs."""

    mean: float | None
    interval: tuple[float, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryResult:
    """What came of the story."""

    requests: int
    failed_requests: int
    n_pairs: int
    tpot_p50_change_percent: Change
    tpot_p99_change_percent: Change
    active_experts_change_percent: Change
    verdict: str
    false_alerts: int
    drift_alert_delay_seconds: float
    refits: int
    promotions: int
    rollbacks: int
    tau_live_seconds: float
    audit_events: int
    audit_events_without_actor_or_reason: int


class Story:
    """Plays the story on a running stack, telling each step."""

    def __init__(self, stack: Stack, client: ControlPlaneClient, tell: Callable[[str], None]) -> None:
        self._stack = stack
        self._client = client
        self._tell = tell
        self._load_url = stack.url("load")

    def play(self, n_pairs: int) -> StoryResult:
        """Play all of it; `n_pairs` pairs of windows in the experiment."""
        first = self._calibrate()
        self._promote(first, "first version, from live traffic")
        experiment = self._experiment(n_pairs)
        false_alerts = self._fired()
        delay_seconds = self._drift({alert.id for alert in false_alerts})
        refit = self._refit(first)
        self._promote(refit, "follows the traffic that drifted")
        self._client.roll_back(RollBack(reason="rehearsal: back to the version before"))
        self._tell(f"rolled back to version {first.number}")
        self._promote(refit, "rehearsal over: forward again")
        tau_live_seconds = self._set_tau()
        return self._result(experiment, len(false_alerts), delay_seconds, tau_live_seconds)

    def _calibrate(self) -> Version:
        self._tell(f"traffic under join-shortest-queue; waiting for {WARM_UP_REQUESTS} requests")
        self._wait("warm-up", lambda: self._load().finished >= WARM_UP_REQUESTS)
        run = self._client.start_calibration(StartCalibration(reason="first calibration, from live samples"))
        self._wait("the calibration", lambda: self._run_is_over(run.id))
        done = self._client.calibration_run(run.id)
        if done.version_id is None:
            raise click.ClickException(f"the calibration ended as {done.state}: {done.error}")
        version = self._version(done.version_id)
        self._tell(f"calibrated version {version.number} from {version.n_requests:,} requests")
        return version

    def _run_is_over(self, run_id: str) -> bool:
        state = self._client.calibration_run(run_id).state
        return state is RunState.SUCCEEDED or state in OVER

    def _promote(self, version: Version, reason: str) -> None:
        preview = self._client.preview_promotion(version.id)
        failed = [f"{check.name}: {check.detail}" for check in preview.checks if not check.is_passed]
        if failed:
            self._tell(f"the gate says no, and is overridden on the record: {'; '.join(failed)}")
        command = Promote(reason=reason, is_override=bool(failed))
        activation = self._client.promote(version.id, command)
        self._wait_live(activation.generation)
        self._tell(f"promoted version {version.number} as generation {activation.generation}")

    def _experiment(self, n_pairs: int) -> Experiment:
        command = StartExperiment(
            reason="does it help?",
            n_pairs=n_pairs,
            window_seconds=WINDOW_SECONDS,
            washout_seconds=WASHOUT_SECONDS,
        )
        started = self._client.start_experiment(command)
        seconds = 2 * n_pairs * WINDOW_SECONDS
        self._tell(f"switchback of {n_pairs} pairs against {command.control_policy}: {seconds} s")
        self._wait("the experiment", lambda: self._is_finished(started.id), seconds + STEP_TIMEOUT_SECONDS)
        experiment = self._client.experiment(started.id)
        self._tell(f"TPOT median against control: {_in_words(_effect(experiment, 'tpot_p50_ms'))}")
        return experiment

    def _is_finished(self, experiment_id: str) -> bool:
        return self._client.experiment(experiment_id).state is not ExperimentState.RUNNING

    def _fired(self) -> list[Alert]:
        return [alert for alert in self._client.alerts() if alert.fired_at is not None]

    def _drift(self, known_alerts: set[str]) -> float:
        injected_at = datetime.now(UTC)
        inject_unseen_topic(self._load_url, UNSEEN_TOPIC_SHARE)
        self._tell(f"an unseen topic takes {UNSEEN_TOPIC_SHARE:.0%} of the traffic")
        fired: list[Alert] = []

        def has_fired() -> bool:
            fired[:] = [
                alert for alert in self._fired() if alert.rule == DRIFT_RULE and alert.id not in known_alerts
            ]
            return bool(fired)

        self._wait("the drift alert", has_fired)
        fired_at = fired[0].fired_at
        assert fired_at is not None
        delay_seconds = (fired_at - injected_at).total_seconds()
        self._tell(f"drift alert after {delay_seconds:.0f} s: {fired[0].summary}")
        if fired[0].state is AlertState.FIRING:
            self._client.acknowledge(fired[0].id, "seen; waiting for the refit")
        return delay_seconds

    def _refit(self, first: Version) -> Version:
        found: list[Version] = []

        def has_candidate() -> bool:
            found[:] = [
                version
                for version in self._client.versions()
                if version.number > first.number and version.state is VersionState.CANDIDATE
            ]
            return bool(found)

        self._wait("the refit", has_candidate)
        self._tell(f"drift started a refit; it made candidate {found[0].number}")
        return found[0]

    def _set_tau(self) -> float:
        revision = self._client.settings().revision
        begin = time.monotonic()
        changed = self._client.tune(Tune(reason="moved live by the demo", tau=NEW_TAU), revision=revision)
        self._wait_live(changed.generation)
        seconds = time.monotonic() - begin
        self._tell(f"tau {NEW_TAU} is live on every router after {seconds:.2f} s")
        return seconds

    def _wait_live(self, generation: int) -> None:
        def is_live() -> bool:
            routers = self._client.routers()
            return bool(routers) and all((r.generation_applied or 0) >= generation for r in routers)

        self._wait(f"generation {generation} on every router", is_live, LIVE_TIMEOUT_SECONDS)

    def _result(
        self, experiment: Experiment, n_false_alerts: int, delay_seconds: float, tau_live_seconds: float
    ) -> StoryResult:
        load = self._load()
        activations = self._client.activations()
        runs = self._client.calibration_runs()
        audit = self._client.audit()
        p50 = _effect(experiment, "tpot_p50_ms")
        return StoryResult(
            requests=load.sent,
            failed_requests=load.failed,
            n_pairs=experiment.n_pairs_done,
            tpot_p50_change_percent=_change(p50),
            tpot_p99_change_percent=_change(_effect(experiment, "tpot_p99_ms")),
            active_experts_change_percent=_change(_effect(experiment, "active_experts")),
            verdict=p50.verdict,
            false_alerts=n_false_alerts,
            drift_alert_delay_seconds=delay_seconds,
            refits=sum(run.origin == "drift_refit" and run.state is RunState.SUCCEEDED for run in runs),
            promotions=sum(activation.kind == "promote" for activation in activations),
            rollbacks=sum(activation.kind == "roll_back" for activation in activations),
            tau_live_seconds=tau_live_seconds,
            audit_events=len(audit),
            audit_events_without_actor_or_reason=sum(not (e.actor and e.reason) for e in audit),
        )

    def _load(self) -> LoadStatus:
        return read_load_status(self._load_url)

    def _version(self, version_id: str) -> Version:
        return next(version for version in self._client.versions() if version.id == version_id)

    def _wait(
        self, what: str, is_so: Callable[[], bool], timeout_seconds: float = STEP_TIMEOUT_SECONDS
    ) -> None:
        self._stack.children.wait_for(what, is_so, timeout_seconds)


def _effect(experiment: Experiment, metric: str) -> Effect:
    for effect in experiment.effects:
        if effect.metric == metric:
            return effect
    raise LookupError(f"the experiment has no effect on {metric}")


def _change(effect: Effect) -> Change:
    return Change(mean=effect.mean_percent, interval=effect.interval_percent)


def _in_words(effect: Effect) -> str:
    if effect.mean_percent is None or effect.interval_percent is None:
        return f"{effect.verdict} after {effect.n_pairs} pairs"
    low, high = effect.interval_percent
    return f"{effect.mean_percent:+z.1f} % [{low:+z.1f}, {high:+z.1f}], {effect.verdict}"
