import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.centroid_map import CentroidMap, assign
from eldr_runtime.errors import InvalidConfig, InvalidValue

quick = settings(max_examples=60, deadline=None)
pools = st.lists(st.text("abcxyz-0123", min_size=1, max_size=6), min_size=1, max_size=12, unique=True)


def sizes(centroid_map: CentroidMap) -> list[int]:
    return [len(centroids) for centroids in centroid_map.centroids_of]


def workers_of(centroid_map: CentroidMap, n_centroids: int) -> list[set[str]]:
    carriers: list[set[str]] = [set() for _ in range(n_centroids)]
    for worker, centroids in zip(centroid_map.worker_ids, centroid_map.centroids_of, strict=True):
        for centroid in centroids:
            carriers[centroid].add(worker)
    return carriers


def names(n: int) -> list[str]:
    return [f"decode-{i}" for i in range(n)]


class TestWorkerSimilarities:
    similarities = np.array([0.5, 0.25, 0.75], dtype=np.float32)

    def test_one_centroid_a_worker(self) -> None:
        centroid_map = CentroidMap(worker_ids=("a", "b", "c"), centroids_of=((2,), (0,), (1,)))
        assert centroid_map.worker_similarities(self.similarities).tolist() == [0.75, 0.5, 0.25]

    def test_several_centroids_a_worker(self) -> None:
        centroid_map = CentroidMap(worker_ids=("a", "b"), centroids_of=((0, 1), (2,)))
        assert centroid_map.worker_similarities(self.similarities).tolist() == [0.5, 0.75]

    def test_several_workers_a_centroid(self) -> None:
        centroid_map = CentroidMap(worker_ids=("a", "b", "c", "d"), centroids_of=((0,), (1,), (2,), (0,)))
        assert centroid_map.worker_similarities(self.similarities).tolist() == [0.5, 0.25, 0.75, 0.5]


class TestAssign:
    def test_as_many_workers_as_centroids_is_a_bijection(self) -> None:
        centroid_map = assign("hash", 8, names(8))
        assert sizes(centroid_map) == [1] * 8
        assert sorted(c for (c,) in centroid_map.centroids_of) == list(range(8))

    def test_fewer_workers_carry_several_centroids(self) -> None:
        assert sorted(sizes(assign("hash", 8, names(3)))) == [2, 3, 3]

    def test_more_workers_share_centroids(self) -> None:
        carriers = workers_of(assign("hash", 3, names(8)), 3)
        assert sorted(map(len, carriers)) == [2, 3, 3]

    def test_weights_decide_who_doubles_up(self) -> None:
        # 6 workers, traffic 4 : 1 : 1 -> centroid 0 gets the three extra workers (4/1, 4/2, 4/3 > 1).
        carriers = workers_of(assign("hash", 3, names(6), centroid_weights=[4, 1, 1]), 3)
        assert [len(each) for each in carriers] == [4, 1, 1]
        # 2 workers: after one centroid each, the last goes to the worker without the heavy one.
        heavy = assign("hash", 3, names(2), centroid_weights=[4, 4, 100])
        assert sorted(sizes(heavy)) == [1, 2]
        assert (2,) in heavy.centroids_of

    @quick
    @given(pool=pools, n_centroids=st.integers(1, 20), seed=st.integers(0, 1000))
    def test_order_does_not_matter_all_is_covered_and_balanced(
        self, pool: list[str], n_centroids: int, seed: int
    ) -> None:
        centroid_map = assign("v", n_centroids, pool)
        shuffled = np.random.default_rng(seed).permutation(pool).tolist()
        assert assign("v", n_centroids, [*shuffled, shuffled[0]]) == centroid_map
        carriers = workers_of(centroid_map, n_centroids)
        assert all(carriers)
        assert max(sizes(centroid_map)) - min(sizes(centroid_map)) <= 1
        assert max(map(len, carriers)) - min(map(len, carriers)) <= 1

    @quick
    @given(pool=pools, n_centroids=st.integers(1, 20), data=st.data())
    def test_absent_workers_move_nobody_else(
        self, pool: list[str], n_centroids: int, data: st.DataObject
    ) -> None:
        before = assign("v", n_centroids, pool)
        ready = data.draw(st.lists(st.sampled_from(pool), min_size=1, unique=True))
        after = assign("v", n_centroids, ready, absent_workers=[w for w in pool if w not in ready])
        assert all(workers_of(after, n_centroids))
        old = dict(zip(before.worker_ids, before.centroids_of, strict=True))
        new = dict(zip(after.worker_ids, after.centroids_of, strict=True))
        lost = {c for worker in pool if worker not in ready for c in old[worker]}
        for worker in ready:
            assert set(old[worker]) <= set(new[worker])
            assert set(new[worker]) - set(old[worker]) <= lost

    def test_a_lost_worker_that_nobody_names_moves_little(self) -> None:
        """Mean over pools and lost workers of centroids that move although their worker stayed: 1.3 of 16."""
        moved = []
        for pool_number in range(10):
            pool = [f"{pool_number}/{i}" for i in range(16)]
            before = workers_of(assign("v", 16, pool), 16)
            for lost in pool:
                after = workers_of(assign("v", 16, [w for w in pool if w != lost]), 16)
                moved.append(sum(old != new for old, new in zip(before, after, strict=True) if old != {lost}))
        assert np.mean(moved) <= 2

    def test_versions_differ_and_processes_agree(self) -> None:
        assert assign("v1", 16, names(16)) != assign("v2", 16, names(16))
        code = (
            "from eldr_runtime.centroid_map import assign;"
            "print(assign('v1', 5, ['decode-0', 'decode-1', 'decode-2']).centroids_of)"
        )
        other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert other.stdout.strip() == str(assign("v1", 5, names(3)).centroids_of)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"n_centroids": 2, "ready_workers": []}, "ready_workers"),
        ({"n_centroids": 0, "ready_workers": ["a"]}, "n_centroids"),
        ({"n_centroids": 5000, "ready_workers": ["a"]}, "n_centroids"),
        ({"n_centroids": 2, "ready_workers": ["a"], "centroid_weights": [1]}, "centroid_weights length"),
        (
            {"n_centroids": 2, "ready_workers": ["a"], "centroid_weights": [1, float("nan")]},
            "centroid_weights[1]",
        ),
        ({"n_centroids": 1, "ready_workers": ["a"], "centroid_weights": [-1]}, "centroid_weights[0]"),
    ],
)
def test_refuses(arguments: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        assign("v", **arguments)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("worker_ids", "centroids_of"),
    [
        ((), ()),
        (("b", "a"), ((0,), (1,))),
        (("a", "a"), ((0,), (1,))),
        (("a",), ((),)),
        (("a",), ((0,), (1,))),
    ],
)
def test_refuses_a_map_that_contradicts_itself(
    worker_ids: tuple[str, ...], centroids_of: tuple[tuple[int, ...], ...]
) -> None:
    with pytest.raises(InvalidValue):
        CentroidMap(worker_ids=worker_ids, centroids_of=centroids_of)
