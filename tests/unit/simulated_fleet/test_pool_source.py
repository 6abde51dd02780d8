from pathlib import Path

import numpy as np
import pytest

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.simulated_fleet.pool_source import PoolSource, unseen_topic
from eldr_runtime.simulation.workload import MixName, WorkloadSettings, calibration_trace
from eldr_runtime.trace_files import save_trace


def source(workload: MixName | None = MixName.BALANCED, pack: Path | None = None) -> PoolSource:
    return PoolSource(pack=pack, workload=workload, n_profiles=24, prompt_tokens=20, seed=5)


def test_equal_options_give_equal_pools() -> None:
    first, second = source().open(), source().open()
    np.testing.assert_array_equal(first.decode_p, second.decode_p)
    assert first.labels == second.labels
    assert len(first) == 24


def test_pool_is_not_what_a_pack_of_the_same_seed_calibrates_on() -> None:
    pool = source().open()
    settings = WorkloadSettings(n_profiles=24, prompt_tokens=20, seed=5)
    trace = calibration_trace(settings, n_requests=24, seed=5)
    assert (pool.prefill_counts != trace.prefill_counts).any(axis=(1, 2)).all()


def test_pool_of_a_pack_file(tmp_path: Path) -> None:
    settings = WorkloadSettings(n_profiles=24, prompt_tokens=20, output_tokens=10, seed=5)
    path = tmp_path / "pack.safetensors"
    trace = calibration_trace(settings, n_requests=24, seed=6)
    save_trace(trace, path)
    pool = source(None, path).open()
    np.testing.assert_array_equal(pool.prefill_counts, trace.prefill_counts)
    assert source(None, path).topic_shares("topic-07") is None


def test_model_can_be_renamed_and_is_else_named_as_generated_packs_are() -> None:
    assert source().open().shape.model == "generated-48x128"
    named = PoolSource(
        pack=None, workload=MixName.BALANCED, n_profiles=24, prompt_tokens=20, seed=5, model="mine"
    )
    assert named.open().shape.model == "mine"


def test_shares_are_the_workloads_without_the_unseen_topic() -> None:
    shares = source(MixName.SKEWED).topic_shares("topic-07")
    assert shares is not None
    assert shares["topic-00"] == pytest.approx(0.375)
    assert "topic-07" not in shares


def test_unseen_topic_by_name_last_or_none() -> None:
    pool = source().open()
    assert unseen_topic(pool.labels, "last") == max(pool.labels)
    assert unseen_topic(pool.labels, "none") is None
    assert unseen_topic(pool.labels, "topic-03") == "topic-03"


@pytest.mark.parametrize(("workload", "pack"), [(None, None), (MixName.BALANCED, Path("pack"))])
def test_exactly_one_source_is_needed(workload: MixName | None, pack: Path | None) -> None:
    with pytest.raises(InvalidConfig, match="only one of them"):
        source(workload, pack)


def test_prompts_stand_in_the_place_of_profiles_and_name_no_model(tmp_path: Path) -> None:
    fields = {"pack": None, "workload": None, "n_profiles": 24, "prompt_tokens": 20, "seed": 5}
    with pytest.raises(InvalidConfig, match="they name none"):
        PoolSource(**fields, prompts=tmp_path)
    with pytest.raises(InvalidConfig, match="only one of them"):
        PoolSource(**{**fields, "workload": MixName.BALANCED}, model="tiny", prompts=tmp_path)
