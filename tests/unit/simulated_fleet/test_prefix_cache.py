from eldr_runtime.simulated_fleet.kv_leases import BLOCKS_ARE_HELD_SECONDS, KvLeases
from eldr_runtime.simulated_fleet.prefix_cache import PrefixCache


def words(n: int, start: int = 0) -> list[str]:
    return [f"w{i}" for i in range(start, start + n)]


def test_full_blocks_of_a_held_prefix_are_cached() -> None:
    cache = PrefixCache(capacity_blocks=10, block_tokens=4)
    assert cache.cached_tokens(words(10)) == 0
    cache.insert(words(10))
    assert cache.cached_tokens(words(10)) == 8
    assert cache.cached_tokens([*words(6), "other", "other"]) == 4
    assert cache.cached_tokens(words(8, start=4)) == 0  # the same words, but not as a prefix


def test_last_token_is_always_computed() -> None:
    cache = PrefixCache(capacity_blocks=10, block_tokens=4)
    cache.insert(words(8))
    assert cache.cached_tokens(words(8)) == 4


def test_least_recently_used_blocks_go_first_and_a_prefix_outlives_its_tail() -> None:
    cache = PrefixCache(capacity_blocks=3, block_tokens=2)
    cache.insert(words(6))
    cache.insert(words(2, start=50))
    assert cache.cached_tokens(words(7)) == 4
    assert cache.cached_tokens(words(3, start=50)) == 2


def test_leases_end_when_pulled_or_after_their_time() -> None:
    now = [0.0]
    leases = KvLeases(lambda: now[0])
    first, second = leases.grant(2), leases.grant(1)
    assert leases.n_held() == 2
    assert leases.release(first)
    assert not leases.release(first)
    assert not leases.release([])
    now[0] = BLOCKS_ARE_HELD_SECONDS
    assert leases.n_held() == 0
    assert not leases.release(second)
