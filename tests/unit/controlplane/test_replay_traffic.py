from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pytest

from controlplane.services.replay_traffic import RecentTraffic, ReplayedSteps, replay_traffic
from eldr_runtime.centroid_version import CentroidVersion, VersionOrigin
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.policies.choice import PolicyName, PolicySettings
from eldr_runtime.signature import SignatureTransform, TransformName

SHAPE = ModelShape(model="toy/moe", n_layers=1, n_experts=4, top_k=2)
TOPICS = np.array([[1, 1, 0, 0], [0, 0, 1, 1]], dtype=np.float32)


@pytest.fixture
def version() -> CentroidVersion:
    return CentroidVersion(
        shape=SHAPE,
        transform=SignatureTransform(
            name=TransformName.COUNT,
            weights=np.ones((1, 4), dtype=np.float32),
            layer_mask=np.ones(1, dtype=np.bool_),
        ),
        centroids=TOPICS / np.float32(np.sqrt(2)),
        mean_use=np.full((1, 4), 0.5, dtype=np.float32),
        seed=1,
        origin=VersionOrigin.CALIBRATION,
        parent_hash=None,
        n_requests=100,
        created_at=datetime(2026, 3, 1, tzinfo=UTC),
    )


@pytest.fixture
def replay(version: CentroidVersion) -> Callable[..., ReplayedSteps]:
    """Replay requests of two topics drawn at random; each uses both experts of its topic in every step."""
    topic = np.random.default_rng(3).integers(2, size=200)
    traffic = RecentTraffic(
        signatures=version.centroids[topic], use=TOPICS[topic][:, None, :], kv_tokens=np.full(200, 10.0)
    )

    def run(**settings: object) -> ReplayedSteps:
        return replay_traffic(traffic, version, ["a", "b"], PolicySettings(**settings), n_in_flight=8)

    return run


def test_pure_locality_loads_one_topic_a_worker(replay: Callable[..., ReplayedSteps]) -> None:
    steps = replay(policy=PolicyName.ELDR, tau=0.0)
    assert steps.similarity_kept_share == pytest.approx(1.0)
    assert set(steps.unions) == {2.0}
    assert steps.load_max_over_mean > 1.1


def test_a_band_over_everything_balances_and_mixes_topics(replay: Callable[..., ReplayedSteps]) -> None:
    local, wide = replay(policy=PolicyName.ELDR, tau=0.0), replay(policy=PolicyName.ELDR, tau=2.0)
    assert wide.similarity_kept_share < 0.75
    assert wide.unions.mean() > 3.0
    assert wide.load_max_over_mean < local.load_max_over_mean


def test_all_requests_in_flight_are_counted_at_every_look(replay: Callable[..., ReplayedSteps]) -> None:
    steps = replay(policy=PolicyName.ROUND_ROBIN)
    assert set(steps.batches) == {4.0}, "eight in flight, in turns on two workers"
    assert set(steps.kv_tokens) == {40.0}
    assert steps.load_max_over_mean == 1.0


def test_the_same_traffic_gives_the_same_figures(replay: Callable[..., ReplayedSteps]) -> None:
    first, second = (replay(policy=PolicyName.ELDR_CAPPED, tau=0.1) for _ in range(2))
    assert first.similarity_kept_share == second.similarity_kept_share
    assert first.unions.tolist() == second.unions.tolist()
