"""Experiments: does it help? Randomised pairs of time windows over the whole pool, with intervals."""

from dataclasses import replace
from functools import partial

import streamlit as st

from app.charts_control import METRIC_NAMES, effect_forest, experiment_windows
from app.confirm import Change, Consent, Difference, ask
from app.formats import age, change_ends, duration, interval, moment, number, signed, words
from app.kept_data import fetch
from app.panels import guarded, panel, show_empty, show_freshness, show_table
from app.redraw import redraw_when_changed
from app.time_range import current_view
from controlplane.client import ControlPlaneClient
from controlplane.domain.telemetry import Experiment, ExperimentState, StartExperiment

CONTROLS = ("join_shortest_queue", "power_of_two_choices", "round_robin", "random")
MINIMUM_PAIRS = 6
BARE = {"displayModeBar": False}
VERDICTS = {
    "lower": ":green[:material/arrow_downward: lower]",
    "higher": ":red[:material/arrow_upward: higher]",
    "no_effect": ":gray[:material/remove: no effect]",
    "inconclusive": ":orange[:material/help: inconclusive]",
}


def render(client: ControlPlaneClient) -> None:
    """Draw the page: the choice and the levers, then one live region."""
    with guarded():
        redraw_when_changed(lambda: [(each.id, each.state) for each in _experiments(client)])
        experiments = _experiments(client)
        _show_start(client, experiments)
        if not experiments:
            with st.container(border=True):
                show_empty("No experiment yet. Start one to measure the TPOT delta with its interval.")
            return
        by_id = {each.id: each for each in experiments}
        with st.container(horizontal=True, vertical_alignment="bottom"):
            chosen = st.selectbox(
                "Experiment",
                list(by_id),
                format_func=lambda each: _name(by_id[each]),
                key="experiment",
                bind="query-params",
                width=420,
            )
            is_running = by_id[chosen].state is ExperimentState.RUNNING
            if st.button("Stop", key="stop_experiment", icon=":material/stop:", disabled=not is_running):
                ask(_stop(client, by_id[chosen]))
            st.caption(by_id[chosen].state.value, width="content")
        st.fragment(_show, run_every=current_view().refresh_seconds)(client, chosen)


def _experiments(client: ControlPlaneClient) -> tuple[Experiment, ...]:
    return fetch(client, "experiments", client.experiments, max_age_seconds=2).value


def _name(experiment: Experiment) -> str:
    against = words(experiment.control_policy)
    return f"{moment(experiment.starts_at)} · against {against}"


def _show(client: ControlPlaneClient, experiment_id: str) -> None:
    with guarded():
        kept = fetch(
            client, f"experiment/{experiment_id}", lambda: client.experiment(experiment_id), max_age_seconds=2
        )
        show_freshness(kept)
        experiment = kept.value
        _show_tiles(experiment)
        left, right = st.columns(2)
        with (
            left,
            panel(
                "Effect of the live settings", "Diamonds: mean change; bars: 95 % interval, sign-flip test."
            ),
        ):
            if any(each.mean_percent is not None for each in experiment.effects):
                st.plotly_chart(effect_forest(experiment.effects), key="forest", config=BARE)
                _show_effects(experiment)
            else:
                show_empty(
                    f"No effect to show: {experiment.n_pairs_done} pairs are done, "
                    f"a verdict takes {MINIMUM_PAIRS}."
                )
        with right, panel("Windows", is_tall=True):
            if experiment.windows:
                st.plotly_chart(experiment_windows(experiment.windows), key="windows", config=BARE)
                st.caption(
                    f"Windows of {experiment.window_seconds} s; requests of the first "
                    f"{experiment.washout_seconds} s "
                    "of each are left out."
                )
            else:
                show_empty("No window is over yet.")
    with panel("All experiments"):
        _show_all(_experiments(client))


def _show_tiles(experiment: Experiment) -> None:
    row = st.columns(4)
    for column, metric in zip(row, ("tpot_p50_ms", "tpot_p99_ms", "active_experts"), strict=False):
        mean, ends = _measured(experiment, metric)
        column.metric(
            METRIC_NAMES[metric],
            signed(mean),
            delta=interval(ends),
            delta_color="off",
            delta_arrow="off",
            border=True,
        )
    needed = max(MINIMUM_PAIRS - experiment.n_pairs_done, 0)
    note = f"{needed} more for a verdict" if needed else "enough for a verdict"
    if needed and experiment.state is not ExperimentState.RUNNING:
        note = "too few for a verdict"
    row[3].metric(
        "Pairs done",
        f"{experiment.n_pairs_done} of {experiment.n_pairs}",
        delta=note,
        delta_color="off",
        delta_arrow="off",
        border=True,
    )


def _show_effects(experiment: Experiment) -> None:
    rows = [
        f"| {METRIC_NAMES.get(each.metric, words(each.metric))} | {signed(each.mean_percent)} "
        f"| {change_ends(each.interval_percent)} | {number(each.p_value, 3)} "
        f"| {VERDICTS.get(each.verdict, each.verdict)} |"
        for each in experiment.effects
    ]
    st.markdown("\n".join(["| | change | 95 % interval | p | verdict |", "|---|---|---|---|---|", *rows]))


def _show_start(client: ControlPlaneClient, experiments: tuple[Experiment, ...]) -> None:
    is_running = any(each.state is ExperimentState.RUNNING for each in experiments)
    if is_running:
        st.caption(":material/science: An experiment is under way; the next one can start after it.")
        return
    # Not a popover: it may lie over the dialog that asks for the reason, and catch its clicks.
    with st.expander("Start an experiment", icon=":material/science:", key="start_form"):
        policy, pairs, length, head, order = st.columns(5)
        control = policy.selectbox("Control policy", CONTROLS, format_func=words, key="start_control")
        n_pairs = pairs.number_input("Pairs of windows", MINIMUM_PAIRS, 100, 8, key="start_pairs")
        window = length.number_input("Window (s)", 10, 3600, 60, key="start_window")
        washout = head.number_input("Washout of each (s)", 0, 1800, 20, key="start_washout")
        seed = order.number_input("Seed of the order", 0, 1_000_000, 1, key="start_seed")
        st.caption(f"Takes {duration(2 * n_pairs * window)}; half of it runs the control policy.")
        is_asked = st.button("Start", type="primary", key="start_experiment", disabled=washout >= window)
    if is_asked:
        command = StartExperiment(
            reason="",
            control_policy=control,
            n_pairs=int(n_pairs),
            window_seconds=int(window),
            washout_seconds=int(washout),
            seed=int(seed),
        )
        ask(_start(client, command))


def _start(client: ControlPlaneClient, command: StartExperiment) -> Change:
    seconds = 2 * command.n_pairs * command.window_seconds
    return Change(
        title="Start an experiment",
        verb="Start",
        differences=(
            Difference(what="control", before="none", after=words(command.control_policy)),
            Difference(
                what="pairs of windows", before="–", after=f"{command.n_pairs} of {command.window_seconds} s"
            ),
        ),
        show_effect=partial(
            st.markdown,
            f"For **{duration(seconds)}**, half of the time the whole pool runs the control policy.",
        ),
        act=partial(_send_start, client, command),
    )


def _send_start(client: ControlPlaneClient, command: StartExperiment, consent: Consent) -> str:
    sent = replace(command, reason=consent.reason)
    done = client.start_experiment(sent, idempotency_key=consent.idempotency_key)
    return f"The experiment runs until {moment(done.ends_at)} UTC. It can be stopped at any time."


def _stop(client: ControlPlaneClient, experiment: Experiment) -> Change:
    return Change(
        title="Stop the experiment",
        verb="Stop",
        differences=(
            Difference(what="state", before="running", after="stopped, its windows kept"),
            Difference(
                what="pairs done", before=f"{experiment.n_pairs_done} of {experiment.n_pairs}", after="as now"
            ),
        ),
        act=partial(_send_stop, client, experiment),
    )


def _send_stop(client: ControlPlaneClient, experiment: Experiment, consent: Consent) -> str:
    client.stop_experiment(experiment.id, consent.reason, idempotency_key=consent.idempotency_key)
    return "The experiment is stopped; the live settings run all of the time."


def _show_all(experiments: tuple[Experiment, ...]) -> None:
    show_table(
        "experiments",
        {
            "started (UTC)": [moment(each.starts_at) for each in experiments],
            "state": [each.state.value for each in experiments],
            "treatment": [words(each.treatment_policy) for each in experiments],
            "control": [words(each.control_policy) for each in experiments],
            "pairs": [f"{each.n_pairs_done} of {each.n_pairs}" for each in experiments],
            "TPOT P50": [signed(_measured(each, "tpot_p50_ms")[0]) for each in experiments],
            "95 % interval": [change_ends(_measured(each, "tpot_p50_ms")[1]) for each in experiments],
            "age": [age(each.starts_at) for each in experiments],
            "who": [each.actor for each in experiments],
            "why": [each.reason for each in experiments],
        },
        height=300,
    )


def _measured(experiment: Experiment, metric: str) -> tuple[float | None, tuple[float, ...] | None]:
    """Return mean change and interval of a metric, in percent; None where there is none."""
    effect = next((each for each in experiment.effects if each.metric == metric), None)
    return (None, None) if effect is None else (effect.mean_percent, effect.interval_percent)
