import json

import numpy as np
import pytest

from eldr_runtime.errors import InvalidMessage, InvalidTrace
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.simulated_fleet.generation_request import GenerationRequest, parse_generation_request
from eldr_runtime.simulated_fleet.profile_pool import ProfilePool, pool_of_trace, pool_of_workload
from eldr_runtime.simulation.workload import RequestProfiles, WorkloadSettings, generate_profiles, to_trace


@pytest.fixture(scope="module")
def profiles() -> RequestProfiles:
    shape = ModelShape(model="toy", n_layers=3, n_experts=8, top_k=2)
    settings = WorkloadSettings(shape=shape, n_topics=3, n_profiles=12, prompt_tokens=20, output_tokens=30)
    return generate_profiles(settings, seed=2)


@pytest.fixture(scope="module")
def pool(profiles: RequestProfiles) -> ProfilePool:
    return pool_of_workload(profiles)


def ask(prompt: str) -> GenerationRequest:
    return parse_generation_request(json.dumps({"prompt": prompt}).encode(), is_chat=False)


def test_prompt_names_its_profile_anywhere(pool: ProfilePool) -> None:
    assert pool.find(ask("request 9 profile 7: river")) == 7
    assert pool.find(ask("river profile 11")) == 11


def test_other_prompts_get_a_profile_by_their_hash(pool: ProfilePool) -> None:
    found = {pool.find(ask(f"hello {n}")) for n in range(200)}
    assert found == set(range(12))
    assert pool.find(ask("hello 1")) == pool.find(ask("hello 1"))


def test_profile_that_is_not_in_the_pool_is_refused(pool: ProfilePool) -> None:
    with pytest.raises(InvalidMessage, match="profile is 12; must be below 12"):
        pool.find(ask("profile 12"))


def test_counts_of_the_profiles_own_length_are_the_recorded_ones(
    pool: ProfilePool, profiles: RequestProfiles
) -> None:
    np.testing.assert_array_equal(pool.prompt_counts(4, 20), profiles.prefill_counts[4])


@pytest.mark.parametrize("n_tokens", [1, 7, 300])
def test_counts_of_another_length_are_complete_and_always_alike(pool: ProfilePool, n_tokens: int) -> None:
    counts = pool.prompt_counts(4, n_tokens)
    assert (counts.sum(axis=1) == 2 * n_tokens).all()
    np.testing.assert_array_equal(counts, pool.prompt_counts(4, n_tokens))


def test_decode_counts_follow_the_seed(pool: ProfilePool) -> None:
    counts = pool.decode_counts(3, 40, seed=1)
    assert (counts.sum(axis=1) == 80).all()
    np.testing.assert_array_equal(counts, pool.decode_counts(3, 40, seed=1))
    assert (counts != pool.decode_counts(3, 40, seed=2)).any()


def test_pool_of_a_pack_takes_the_recorded_shares(profiles: RequestProfiles) -> None:
    trace = to_trace(profiles)
    assert trace.decode_counts is not None
    pool = pool_of_trace(trace)
    np.testing.assert_allclose(pool.decode_p, trace.decode_counts / 30, rtol=1e-6)
    assert pool.labels == trace.labels
    assert np.isfinite(pool.log_unused(0)).all()


def test_pack_without_decode_counts_is_refused(profiles: RequestProfiles) -> None:
    trace = to_trace(profiles)
    rows = {name: getattr(trace, name) for name in trace.__dataclass_fields__}
    bare = type(trace)(**{**rows, "decode_counts": None, "decode_steps": None})
    with pytest.raises(InvalidTrace, match="decode_counts"):
        pool_of_trace(bare)
