"""Bands worked out by hand, then the published policy against a plain reference, decision by decision."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.policies.choice import Choice, PolicyName, PolicySettings, Reason, RoutingRequest
from eldr_runtime.policies.locality_band import load_limit, locality_band
from eldr_runtime.policies.registry import build_policy
from eldr_runtime.worker_load import PoolView

quick = settings(max_examples=100, deadline=None)


def choose(
    policy: PolicySettings, similarities: list[float] | None, in_flight: list[int], seed: int = 1
) -> Choice:
    pool = PoolView(
        worker_ids=tuple(f"w{i}" for i in range(len(in_flight))),
        in_flight=np.array(in_flight, dtype=np.int64),
    )
    request = RoutingRequest(
        similarities=None if similarities is None else np.array(similarities, dtype=np.float32)
    )
    return build_policy(policy).choose(request, pool, np.random.default_rng(seed))


def eldr(tau: float = 0.1, minimum_candidates: int = 1) -> PolicySettings:
    return PolicySettings(policy=PolicyName.ELDR, tau=tau, minimum_candidates=minimum_candidates)


def capped(tau: float = 0.1, load_cap: float | None = None) -> PolicySettings:
    return PolicySettings(policy=PolicyName.ELDR_CAPPED, tau=tau, load_cap=load_cap)


def band(similarities: Sequence[float], tau: float, minimum_candidates: int = 1) -> list[int]:
    return locality_band(np.array(similarities, dtype=np.float64), tau, minimum_candidates)


class TestBand:
    similarities = (0.875, 0.8125, 0.5, 0.875)  # exact in binary

    def test_tau_0_keeps_the_most_similar_and_their_ties(self) -> None:
        assert band(self.similarities, 0) == [0, 3]

    def test_tau_a_tenth(self) -> None:
        assert band(self.similarities, 0.1) == [0, 1, 3]

    def test_the_border_belongs_to_the_band(self) -> None:
        assert band(self.similarities, 0.0625) == [0, 1, 3]
        assert band(self.similarities, 0.0624) == [0, 3]

    def test_tau_1_keeps_all_that_are_nowhere_negative(self) -> None:
        assert band(self.similarities, 1) == [0, 1, 2, 3]
        assert band((0.5, -0.75), 1) == [0]

    def test_min2_adds_the_second_most_similar_to_a_band_of_one(self) -> None:
        assert band((0.2, 0.9, 0.5, 0.5), 0.1, minimum_candidates=2) == [1, 2]
        assert band((0.9,), 0.1, minimum_candidates=2) == [0]

    def test_min2_leaves_tau_0_and_larger_bands_alone(self) -> None:
        assert band((0.2, 0.9, 0.5), 0, minimum_candidates=2) == [1]
        assert band((0.2, 0.9, 0.85), 0.1, minimum_candidates=2) == [1, 2]

    @quick
    @given(
        similarities=st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=20),
        narrow=st.floats(0, 2),
        wide=st.floats(0, 2),
    )
    def test_a_wider_tau_keeps_all_that_a_narrower_one_keeps(
        self, similarities: list[float], narrow: float, wide: float
    ) -> None:
        narrow, wide = sorted((narrow, wide))
        assert set(band(similarities, narrow)) <= set(band(similarities, wide))
        assert similarities.index(max(similarities)) in band(similarities, narrow)


class TestLoadLimit:
    def test_by_hand(self) -> None:
        assert load_limit([10, 2, 3], 1.25) == 7.25  # mean 5
        assert load_limit([0, 0, 0], 1.25) == 1  # an idle pool takes one each
        assert load_limit([3, 3, 3], 1) == 4
        assert load_limit([8, 0], 1) == 5

    @quick
    @given(in_flight=st.lists(st.integers(0, 10_000), min_size=1, max_size=20), load_cap=st.floats(1, 10))
    def test_the_least_loaded_worker_always_fits(self, in_flight: list[int], load_cap: float) -> None:
        assert min(in_flight) + 1 <= load_limit(in_flight, load_cap)


class TestPublished:
    def test_the_least_loaded_of_the_band(self) -> None:
        choice = choose(eldr(), [0.9, 0.85, 0.1], [5, 4, 0])
        assert choice == Choice(index=1, band=(0, 1), reason=Reason.WITHIN_BAND)

    def test_the_lowest_index_on_a_tie(self) -> None:
        assert [choose(eldr(), [0.1, 0.9, 0.9], [0, 2, 2], seed).index for seed in range(9)] == [1] * 9

    def test_no_cap(self) -> None:
        assert choose(eldr(), [0.9, 0.1], [1000, 0]).index == 0

    def test_a_zero_signature_leaves_all_workers_in_the_band(self) -> None:
        assert choose(eldr(), [0, 0, 0], [2, 1, 1]) == Choice(
            index=1, band=(0, 1, 2), reason=Reason.WITHIN_BAND
        )

    def test_without_a_signature_the_shortest_queue_and_the_reason(self) -> None:
        choice = choose(eldr(), None, [2, 1, 3])
        assert choice == Choice(index=1, band=(0, 1, 2), reason=Reason.NO_SIGNATURE)

    def test_equals_a_plain_reference_on_1000_random_cases(self) -> None:
        rng = np.random.default_rng(20)
        for _ in range(1000):
            n_workers = int(rng.integers(1, 20))
            # Multiples of 1/16 make ties and borders; tau from a set that meets them.
            similarities = (rng.integers(-16, 17, n_workers) / 16).astype(np.float32)
            if rng.random() < 0.3:
                similarities = rng.uniform(-1, 1, n_workers).astype(np.float32)
            in_flight = rng.integers(0, 4, n_workers)
            tau = float(rng.choice([0, 0.0625, 0.1, 0.125, 0.5, 1, 2]))
            minimum = int(rng.integers(1, 3))
            expected = reference(similarities.tolist(), in_flight.tolist(), tau, minimum)
            assert choose(eldr(tau, minimum), similarities.tolist(), in_flight.tolist()).index == expected


class TestCapped:
    def test_a_band_member_over_the_cap_is_passed_over(self) -> None:
        # mean 5, limit 7.25: worker 0 would have 11.
        assert choose(capped(), [0.9, 0.85, 0.1], [10, 2, 3]) == Choice(
            index=1, band=(1,), reason=Reason.WITHIN_BAND
        )

    def test_an_emptied_band_widens_to_the_next_most_similar_under_the_cap(self) -> None:
        # mean 4, limit 6: worker 0 is full; of the others 1 and 3 are within 0.1 of the best, 1.
        choice = choose(capped(), [0.9, 0.5, 0.1, 0.45], [10, 3, 0, 3])
        assert choice.reason == Reason.BAND_WIDENED
        assert choice.band == (1, 3)
        assert choice.index in (1, 3)

    def test_a_looser_cap_keeps_the_band(self) -> None:
        assert choose(capped(load_cap=3), [0.9, 0.5, 0.1, 0.45], [10, 3, 0, 3]).index == 0

    def test_ties_are_drawn_by_seed(self) -> None:
        drawn = [choose(capped(), [0.9, 0.9, 0.9], [1, 1, 1], seed).index for seed in range(30)]
        assert set(drawn) == {0, 1, 2}
        assert drawn == [choose(capped(), [0.9, 0.9, 0.9], [1, 1, 1], seed).index for seed in range(30)]

    @quick
    @given(
        workers=st.lists(st.tuples(st.floats(-1, 1, width=32), st.integers(0, 30)), min_size=1, max_size=12),
        tau=st.floats(0, 2),
        load_cap=st.floats(1, 4),
    )
    def test_the_cap_holds_and_nobody_more_similar_was_free(
        self, workers: list[tuple[float, int]], tau: float, load_cap: float
    ) -> None:
        similarities, in_flight = [s for s, _ in workers], [n for _, n in workers]
        choice = choose(capped(tau, load_cap), similarities, in_flight)
        limit = load_limit(in_flight, load_cap)
        assert in_flight[choice.index] + 1 <= limit
        best_free = max(s for s, n in workers if n + 1 <= limit)
        assert similarities[choice.index] >= best_free - tau or choice.reason == Reason.WITHIN_BAND
        assert in_flight[choice.index] == min(in_flight[worker] for worker in choice.band)


def reference(similarities: list[float], in_flight: list[int], tau: float, minimum: int) -> int:
    """Walk the workers one by one, keeping the best so far; written without our functions."""
    best = similarities[0]
    for similarity in similarities:
        if similarity > best:
            best = similarity
    band = []
    for worker in range(len(similarities)):
        if best - similarities[worker] <= tau:
            band.append(worker)
    if minimum == 2 and tau > 0 and len(band) == 1 and len(similarities) > 1:
        second = None
        for worker in range(len(similarities)):
            if worker != band[0] and (second is None or similarities[worker] > similarities[second]):
                second = worker
        assert second is not None
        band = [min(band[0], second), max(band[0], second)]
    chosen = band[0]
    for worker in band[1:]:
        if in_flight[worker] < in_flight[chosen]:
            chosen = worker
    return chosen


def test_the_reference_itself_by_hand() -> None:
    assert reference([0.5, 0.9, 0.85], [0, 2, 1], 0.1, 1) == 2
    assert reference([0.5, 0.9, 0.1], [0, 2, 0], 0.1, 2) == 0
    with pytest.raises(IndexError):
        reference([], [], 0.1, 1)
