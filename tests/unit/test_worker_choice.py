from dataclasses import dataclass

import numpy as np
import pytest

from eldr_runtime.array_types import Floats32
from eldr_runtime.centroid_map import assign
from eldr_runtime.errors import InvalidConfig, InvalidValue
from eldr_runtime.policies.choice import PolicyName, PolicySettings, Reason
from eldr_runtime.worker_choice import RoutingTable, build_routing_table, choose_worker
from eldr_runtime.worker_load import PoolView

ELDR = PolicySettings(policy=PolicyName.ELDR)


@dataclass(frozen=True)
class Version:
    centroids: Floats32
    content_hash: str = "v1"


AXES = Version(np.eye(3, dtype=np.float32))  # three centroids along the axes of three features


def table(n_workers: int = 3, settings: PolicySettings = ELDR) -> RoutingTable:
    return build_routing_table(AXES, [f"w{i}" for i in range(n_workers)], settings)


def pool(in_flight: dict[str, int]) -> PoolView:
    return PoolView(worker_ids=tuple(in_flight), in_flight=np.array(list(in_flight.values()), dtype=np.int64))


def along(axis: int) -> Floats32:
    return np.eye(3, dtype=np.float32)[axis]


def carrier(centroid: int, n_workers: int = 3) -> str:
    centroid_map = assign("v1", 3, [f"w{i}" for i in range(n_workers)])
    return next(
        worker
        for worker, centroids in zip(centroid_map.worker_ids, centroid_map.centroids_of, strict=True)
        if centroid in centroids
    )


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("n_workers", [2, 3])
def test_a_request_goes_to_the_worker_of_its_centroid(axis: int, n_workers: int) -> None:
    loads = {f"w{i}": i for i in range(n_workers)}
    decision = choose_worker(along(axis), pool(loads), table(n_workers), rng())
    assert decision.worker_id == carrier(axis, n_workers)
    assert decision.band == (decision.worker_id,)
    assert decision.reason == Reason.WITHIN_BAND
    assert decision.in_flight == tuple(loads.values())
    assert (decision.nearest_centroid, decision.nearest_similarity) == (axis, 1)


def test_the_replicas_of_a_centroid_share_its_requests_by_load() -> None:
    routing = table(n_workers=4)
    assert routing.centroid_map is not None
    double = next(c for c in range(3) if sum(c in each for each in routing.centroid_map.centroids_of) == 2)
    replicas = [
        w
        for w, each in zip(routing.worker_ids, routing.centroid_map.centroids_of, strict=True)
        if double in each
    ]
    loads = dict.fromkeys(routing.worker_ids, 0) | {replicas[0]: 5, replicas[1]: 4}
    decision = choose_worker(along(double), pool(loads), routing, rng())
    assert decision.worker_id == replicas[1]
    assert decision.band == tuple(replicas)


def test_candidates_in_another_order_or_fewer() -> None:
    signature = np.array([0.8, 0.6, 0], dtype=np.float32)
    routing = table()
    whole = choose_worker(signature, pool({"w0": 0, "w1": 0, "w2": 0}), routing, rng())
    assert whole.similarities is not None
    turned = choose_worker(signature, pool({"w2": 0, "w0": 0, "w1": 0}), routing, rng())
    assert turned.worker_id == whole.worker_id == carrier(0)
    assert turned.similarities is not None
    assert turned.similarities.tolist() == whole.similarities[[2, 0, 1]].tolist()
    # The worker of the nearest centroid is not a candidate: the next most similar one takes the request.
    others = {worker: 0 for worker in ("w0", "w1", "w2") if worker != carrier(0)}
    assert choose_worker(signature, pool(others), routing, rng()).worker_id == carrier(1)


def test_without_a_signature_by_load_and_the_reason() -> None:
    decision = choose_worker(None, pool({"w0": 3, "w1": 1, "w2": 2}), table(), rng())
    assert (decision.worker_id, decision.reason) == ("w1", Reason.NO_SIGNATURE)
    assert decision.similarities is decision.nearest_centroid is decision.nearest_similarity is None


def test_without_a_version_by_load_and_the_reason() -> None:
    routing = build_routing_table(None, ["w1", "w0"], ELDR)
    assert routing.worker_ids == ("w0", "w1")
    decision = choose_worker(along(0), pool({"w0": 3, "w1": 1}), routing, rng())
    assert (decision.worker_id, decision.reason) == ("w1", Reason.NO_SIGNATURE)


def test_the_label_reaches_the_oracle() -> None:
    domain = PolicySettings(policy=PolicyName.DOMAIN)
    routing = build_routing_table(None, ["w0", "w1"], domain, label_shares={"a": 1, "b": 1})
    decision = choose_worker(None, pool({"w0": 0, "w1": 9}), routing, rng(), label="b")
    assert (decision.worker_id, decision.reason) == ("w1", Reason.LABEL_POOL)


def test_absent_workers_keep_the_map_of_the_others() -> None:
    left = [worker for worker in ("w0", "w1", "w2") if worker != carrier(0)]
    routing = build_routing_table(AXES, left, ELDR, absent_workers=[carrier(0)])
    for axis in (1, 2):
        loads = dict.fromkeys(left, 0)
        assert choose_worker(along(axis), pool(loads), routing, rng()).worker_id == carrier(axis)


@pytest.mark.parametrize(
    ("signature", "field"),
    [
        (np.array([np.nan, 0, 0], dtype=np.float32), "signature squared norm"),
        (np.array([np.inf, -np.inf, 0], dtype=np.float32), "signature squared norm"),
        (np.zeros(4, dtype=np.float32), "signature shape"),
        (np.zeros((3, 1), dtype=np.float32), "signature shape"),
        (np.zeros(3, dtype=np.float64), "signature dtype"),
    ],
)
def test_refuses_a_signature(signature: np.ndarray, field: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        choose_worker(signature, pool({"w0": 0, "w1": 0, "w2": 0}), table(), rng())
    assert refused.value.field == field


def test_refuses_a_candidate_that_the_table_does_not_know() -> None:
    with pytest.raises(InvalidValue, match="'w9'"):
        choose_worker(along(0), pool({"w0": 0, "w9": 0}), table(), rng())


def test_refuses_centroids_that_are_not_finite_or_not_a_table() -> None:
    for centroids in (np.full((2, 3), np.nan, dtype=np.float32), np.zeros(3, dtype=np.float32)):
        with pytest.raises(InvalidConfig, match="centroids"):
            build_routing_table(Version(centroids), ["w0"], ELDR)


def test_the_table_does_not_follow_later_changes_of_the_version_array() -> None:
    centroids = np.eye(3, dtype=np.float32)
    routing = build_routing_table(Version(centroids), ["w0", "w1", "w2"], ELDR)
    centroids[:] = 0
    assert routing.centroid_similarities(along(1)).tolist() == [0, 1, 0]
    assert routing.centroids is not None
    assert not routing.centroids.flags.writeable
