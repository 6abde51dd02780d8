from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eldr_runtime.errors import InvalidValue
from eldr_runtime.latency_model import (
    CONSTANT_NAMES,
    PRESETS,
    ConstantOrigin,
    LatencyModel,
    LatencyRows,
    find_preset,
    fit_latency,
)

MODEL = LatencyModel(t0_ms=5.59, per_expert_ms=0.113, per_request_ms=0.012, per_kv_token_ms=2.5e-5)


def rows(n_rows: int, model: LatencyModel, noise_ms: float = 0.0, seed: int = 1) -> LatencyRows:
    rng = np.random.default_rng(seed)
    experts, batch = rng.uniform(20, 120, n_rows), rng.integers(1, 64, n_rows).astype(float)
    kv_tokens = batch * rng.uniform(200, 3000, n_rows)
    step_ms = model.step_ms(experts, batch, kv_tokens) + rng.normal(0, noise_ms, n_rows)
    return LatencyRows(active_experts=experts, batch=batch, kv_tokens=kv_tokens, step_ms=step_ms)


class TestStepTime:
    def test_worked_by_hand(self):
        # 5.59 + 0.113 * 82.4 + 0.012 * 16 + 2.5e-5 * 20000 = 5.59 + 9.3112 + 0.192 + 0.5
        assert MODEL.step_ms(82.4, 16.0, 20_000.0) == pytest.approx(15.5932)

    def test_arrays(self):
        steps = MODEL.step_ms(np.array([0.0, 100.0]), np.zeros(2), np.zeros(2))
        assert steps == pytest.approx([5.59, 16.89])

    @pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf")])
    def test_refuses_a_constant_below_zero_or_not_finite(self, bad):
        with pytest.raises(InvalidValue, match="must be a number of at least 0"):
            LatencyModel(t0_ms=1.0, per_expert_ms=bad, per_request_ms=0.0, per_kv_token_ms=0.0)


class TestPresets:
    @pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
    def test_every_constant_has_its_origin(self, preset):
        assert tuple(origin.name for origin in preset.origins) == CONSTANT_NAMES
        for origin in preset.origins:
            assert origin.source
            assert getattr(preset.model, origin.name) == origin.value
        assert preset.source

    def test_the_qwen_expert_constant_is_the_time_to_read_48_experts(self):
        preset = find_preset("qwen3-30b-a3b-mi300x")
        milliseconds = preset.shape.n_layers * preset.expert_bytes / 4.0e12 * 1e3
        assert preset.model.per_expert_ms == pytest.approx(milliseconds, abs=5e-4)

    def test_h200_by_hand(self):
        model = find_preset("qwen3-30b-a3b-h200").model
        assert model.t0_ms == pytest.approx(4.4152)
        assert model.per_expert_ms == pytest.approx(0.10656)

    def test_gpt_oss_20b_is_called_assumed(self):
        preset = find_preset("gpt-oss-20b-mi300x")
        assert all(origin.is_assumed for origin in preset.origins)
        assert "assumed" in preset.source
        assert preset.model.per_expert_ms == pytest.approx(0.06267, abs=1e-5)

    def test_unknown_preset_lists_the_known(self):
        with pytest.raises(InvalidValue, match="preset is 'x'; must be one of gpt-oss-120b-mi300x, "):
            find_preset("x")

    def test_unknown_constant(self):
        with pytest.raises(InvalidValue, match="name is 'tau'; must be one of t0_ms"):
            ConstantOrigin(name="tau", value=1.0, source="s", uncertainty_percent=None, is_assumed=True)


class TestFit:
    @given(
        st.floats(0.5, 20),
        st.floats(0.01, 1),
        st.floats(0.001, 0.3),
        st.floats(1e-6, 1e-4),
        st.integers(0, 99),
    )
    def test_recovers_the_constants_of_exact_rows(self, t0, b, c, d, seed):
        model = LatencyModel(t0_ms=t0, per_expert_ms=b, per_request_ms=c, per_kv_token_ms=d)
        fit = fit_latency(rows(40, model, seed=seed))
        for name in CONSTANT_NAMES:
            assert getattr(fit.model, name) == pytest.approx(getattr(model, name), rel=1e-5)
        assert fit.r2 == pytest.approx(1.0)

    def test_agrees_with_ordinary_least_squares(self):
        data = rows(200, MODEL, noise_ms=0.3)
        design = np.column_stack([np.ones(200), data.active_experts, data.batch, data.kv_tokens])
        plain, squares, _, _ = np.linalg.lstsq(design, data.step_ms)
        errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * squares[0] / 196)
        fit = fit_latency(data)
        assert [getattr(fit.model, name) for name in CONSTANT_NAMES] == pytest.approx(plain, rel=1e-6)
        assert fit.standard_errors == pytest.approx(errors, rel=1e-4)
        assert fit.residual_ms == pytest.approx(np.sqrt(squares[0] / 200))

    def test_a_constant_that_would_be_negative_is_held_at_zero(self):
        n = np.arange(12.0)
        data = LatencyRows(
            active_experts=50 + 5 * (n % 4), batch=1 + n, kv_tokens=0 * n, step_ms=30 + (n % 4) - 0.2 * n
        )
        fit = fit_latency(data)
        assert fit.held_at_zero == ("per_request_ms", "per_kv_token_ms")
        assert fit.model.per_request_ms == 0.0
        assert fit.standard_errors[2] is None

    def test_refuses_a_batch_that_never_varies(self):
        n = np.arange(8.0)
        data = LatencyRows(active_experts=50 + n, batch=0 * n + 8, kv_tokens=n**2, step_ms=9 + n)
        with pytest.raises(InvalidValue, match="batch is 'no variation of its own'"):
            fit_latency(data)

    def test_refuses_fewer_rows_than_constants(self):
        with pytest.raises(InvalidValue, match="rows is 4; must be more than 4 measured steps"):
            fit_latency(rows(4, MODEL))

    def test_refuses_equal_step_times(self):
        data = rows(10, MODEL)
        with pytest.raises(InvalidValue, match="step_ms is 7"):
            fit_latency(
                LatencyRows(
                    active_experts=data.active_experts,
                    batch=data.batch,
                    kv_tokens=data.kv_tokens,
                    step_ms=np.full(10, 7.0),
                )
            )

    def test_rows_name_the_bad_column(self):
        good = np.ones(3)
        with pytest.raises(InvalidValue, match=r"batch is 'shape \(2,\)'; must be one value a row"):
            LatencyRows(active_experts=good, batch=np.ones(2), kv_tokens=good, step_ms=good)
        with pytest.raises(InvalidValue, match=r"kv_tokens is -1\.0"):
            LatencyRows(active_experts=good, batch=good, kv_tokens=-good, step_ms=good)


def test_profiles_of_another_shape_are_said_to_stand_in() -> None:
    preset = find_preset("qwen3-30b-a3b-mi300x")
    assert preset.note_on(preset.shape) is None
    note = preset.note_on(replace(preset.shape, n_layers=6, n_experts=64))
    assert note is not None
    assert "48 layers of 128 experts; 6 layers of 64 stand in" in note
