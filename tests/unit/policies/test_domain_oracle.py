import math
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.policies.choice import Choice, PolicyName, PolicySettings, Reason, RoutingRequest
from eldr_runtime.policies.domain_oracle import largest_remainder, share_out
from eldr_runtime.policies.registry import build_policy
from eldr_runtime.worker_load import PoolView

SETTINGS = PolicySettings(policy=PolicyName.DOMAIN)


def choose(shares: dict[str, float], label: str | None, in_flight: list[int]) -> Choice:
    policy = build_policy(SETTINGS, label_shares=shares)
    ids = tuple(f"w{i}" for i in range(len(in_flight)))
    pool = PoolView(worker_ids=ids, in_flight=np.array(in_flight, dtype=np.int64))
    return policy.choose(RoutingRequest(label=label), pool, np.random.default_rng(0))


class TestLargestRemainder:
    def test_by_hand(self) -> None:
        assert largest_remainder((0.5, 0.3, 0.2), 10) == (5, 3, 2)
        assert largest_remainder((0.5, 0.3, 0.2), 4) == (2, 1, 1)  # quotas 2.0, 1.2, 0.8
        assert largest_remainder((0.29, 0.71), 100) == (29, 71)  # 28.999999999999996 in binary
        assert largest_remainder((1, 1, 1), 4) == (2, 1, 1)  # a tie goes to the earlier

    @settings(max_examples=60, deadline=None)
    @given(shares=st.lists(st.floats(0.01, 1), min_size=1, max_size=10), n_seats=st.integers(1, 64))
    def test_all_seats_are_given_and_nobody_is_a_seat_off_his_quota(
        self, shares: list[float], n_seats: int
    ) -> None:
        seats = largest_remainder(tuple(shares), n_seats)
        assert sum(seats) == n_seats
        for share, seat in zip(shares, seats, strict=True):
            assert abs(seat - share / sum(shares) * n_seats) < 1 + 1e-6


class TestPools:
    shares = (("chat", 0.5), ("code", 0.3), ("law", 0.15), ("math", 0.05))

    def test_by_hand_with_8_workers(self) -> None:
        # 1/8 = 0.125: chat, code and law have their own, math alone is small. Quotas 4, 2.4, 1.2, 0.4:
        # the one seat left goes to code or math (0.4 each): to the larger share, code.
        pools = share_out(self.shares, tuple(f"w{i}" for i in range(8)))
        assert pools.own == {"chat": (0, 1, 2, 3), "code": (4, 5, 6), "law": (7,)}
        assert pools.small_labels == {"math"}
        assert pools.shared == ()

    def test_by_hand_with_4_workers(self) -> None:
        # 1/4: law and math share. Quotas 2, 1.2, 0.8.
        pools = share_out(self.shares, ("w0", "w1", "w2", "w3"))
        assert pools.own == {"chat": (0, 1), "code": (2,)}
        assert pools.small_labels == {"law", "math"}
        assert pools.shared == (3,)

    def test_the_order_of_workers_does_not_matter(self) -> None:
        pools = share_out(self.shares, ("w3", "w1", "w0", "w2"))
        assert pools.own == {"chat": (1, 2), "code": (3,)}
        assert pools.shared == (0,)


class TestChoice:
    shares: ClassVar = dict(TestPools.shares)

    def test_the_shortest_queue_of_the_labels_own_workers(self) -> None:
        assert choose(self.shares, "chat", [5, 4, 0, 0]) == Choice(
            index=1, band=(0, 1), reason=Reason.LABEL_POOL
        )

    def test_small_labels_share_a_pool(self) -> None:
        for label in ("law", "math"):
            assert choose(self.shares, label, [0, 0, 0, 9]) == Choice(
                index=3, band=(3,), reason=Reason.SHARED_POOL
            )

    @pytest.mark.parametrize("label", [None, "poetry"])
    def test_an_unknown_label_goes_to_the_shared_pool(self, label: str | None) -> None:
        assert choose(self.shares, label, [0, 0, 0, 9]) == Choice(
            index=3, band=(3,), reason=Reason.UNKNOWN_LABEL
        )

    def test_without_a_shared_pool_to_all(self) -> None:
        assert choose({"a": 1, "b": 1}, "c", [3, 1]) == Choice(
            index=1, band=(0, 1), reason=Reason.UNKNOWN_LABEL
        )


@pytest.mark.parametrize("shares", [None, {}, {"a": 0.0}, {"a": -1.0, "b": 2.0}, {"a": math.nan}])
def test_refuses_a_mix_that_shares_nothing_out(shares: dict[str, float] | None) -> None:
    with pytest.raises(InvalidConfig, match="label_shares"):
        build_policy(SETTINGS, label_shares=shares)
