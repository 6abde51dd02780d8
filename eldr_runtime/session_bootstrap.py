"""Bounds of statistics of traffic whose requests come in sessions, by resampling whole sessions.

Two samples differ by chance twice over, as the reference is a sample too: each resample draws a reference
of its own size and a window of the recent size, and the bound is an outer quantile of their difference.
"""

from collections.abc import Callable

import numpy as np

from eldr_runtime.array_types import Floats, Ints


def weighted_quantile(ascending: Floats, weights: Floats, quantile: float) -> float:
    """Return the least value whose cumulative weight reaches the given share.

    Parameters
    ----------
    ascending
        float64 `(n,)`, sorted.
    weights
        float64 `(n,)`, 0 or more, some above 0.

    Examples
    --------
    >>> weighted_quantile(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 2.0]), 0.5)
    2.0
    """
    cumulative = np.cumsum(weights)
    # Rounding must not carry a share that is met exactly past its value.
    place = np.searchsorted(cumulative, quantile * cumulative[-1] * (1 - 1e-12))
    return float(ascending[place])


def quantile_bound(
    values: Floats,
    clusters: Ints,
    sessions: Ints,
    *,
    recent_occupancy: Ints,
    n_recent_sessions: int,
    quantile: float,
    false_alarm_share: float,
    n_bootstrap: int,
    seed: int,
) -> float:
    """Return the lower bound of a quantile of a recent window that has not drifted.

    Clusters differ in their values, so the reference is taken in the cluster shares of the recent window,
    and so is each resampled reference in those of its resampled window: a change of shares is no drift here.

    Parameters
    ----------
    values
        float64 `(n_requests,)` of the reference.
    clusters, sessions
        int64 `(n_requests,)`; sessions numbered from 0.
    recent_occupancy
        int64 `(n_clusters,)`, requests of the recent window by cluster.
    n_recent_sessions
        Sessions in the recent window.
    """
    order = np.argsort(values, kind="stable")
    ascending, cluster_of, session_of = values[order], clusters[order], sessions[order]
    by_session = _occupancy_by_session(clusters, sessions, len(recent_occupancy))
    rng = np.random.default_rng(seed)
    windows = _draw_sessions(rng, n_recent_sessions, len(by_session), n_bootstrap)
    references = _draw_sessions(rng, len(by_session), len(by_session), n_bootstrap)
    # Shares in which each resampled reference is taken, float64 (n_bootstrap, n_clusters).
    shares = (windows @ by_session + 0.5) / (references @ by_session + 0.5)
    differences = [
        weighted_quantile(ascending, window[session_of], quantile)
        - weighted_quantile(ascending, reference[session_of] * share[cluster_of], quantile)
        for window, reference, share in zip(windows, references, shares, strict=True)
    ]
    share_of_now = (recent_occupancy + 0.5) / (by_session.sum(axis=0) + 0.5)
    centre = weighted_quantile(ascending, share_of_now[cluster_of], quantile)
    return centre + float(np.quantile(differences, false_alarm_share, method="lower"))


def occupancy_shift_bound(
    clusters: Ints,
    sessions: Ints,
    *,
    n_clusters: int,
    n_recent_sessions: int,
    shift: Callable[[Floats, Floats], Floats],
    false_alarm_share: float,
    n_bootstrap: int,
    seed: int,
) -> float:
    """Return the upper bound of a shift of cluster occupancy in a recent window that has not drifted.

    Parameters
    ----------
    clusters, sessions
        int64 `(n_requests,)` of the reference.
    shift
        Distance between occupancies, each float64 `(n_bootstrap, n_clusters)`; one number a row.
    """
    by_session = _occupancy_by_session(clusters, sessions, n_clusters)
    rng = np.random.default_rng(seed)
    windows = _draw_sessions(rng, n_recent_sessions, len(by_session), n_bootstrap)
    references = _draw_sessions(rng, len(by_session), len(by_session), n_bootstrap)
    shifts = shift(references @ by_session, windows @ by_session)
    return float(np.quantile(shifts, 1 - false_alarm_share, method="higher"))


def _draw_sessions(rng: np.random.Generator, n_drawn: int, n_sessions: int, n_bootstrap: int) -> Floats:
    """How often each session is drawn, float64 `(n_bootstrap, n_sessions)`."""
    even = np.full(n_sessions, 1 / n_sessions)
    return rng.multinomial(n_drawn, even, size=n_bootstrap).astype(np.float64)


def _occupancy_by_session(clusters: Ints, sessions: Ints, n_clusters: int) -> Floats:
    """Count requests, float64 `(n_sessions, n_clusters)`."""
    by_session = np.zeros((int(sessions.max()) + 1, n_clusters), dtype=np.float64)
    np.add.at(by_session, (sessions, clusters), 1)
    return by_session
