"""How long one decode step takes, from active experts, batch and KV tokens; presets and fits.

`T_step_ms = t0 + b * U + c * B + d * KV_tokens`, with U the active experts a layer (mean over layers) and B
the batch. Form: ours, after the paper's Fig. 2 (arXiv 2607.00466), where the step time at a fixed number of
active experts hardly depends on the batch. A preset carries the source and the uncertainty of every constant;
one that nobody measured says so. :func:`fit_latency` replaces presets by measurements.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import overload

import numpy as np
from scipy.optimize import nnls

from eldr_runtime.array_types import Floats
from eldr_runtime.errors import InvalidValue
from eldr_runtime.model_shape import ModelShape

CONSTANT_NAMES = ("t0_ms", "per_expert_ms", "per_request_ms", "per_kv_token_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyModel:
    """The four constants of a decode step."""

    t0_ms: float
    per_expert_ms: float
    per_request_ms: float
    per_kv_token_ms: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (np.isfinite(value) and value >= 0):
                raise InvalidValue(field=field.name, value=value, limit="a number of at least 0")

    @overload
    def step_ms(self, active_experts: float, batch: float, kv_tokens: float) -> float: ...
    @overload
    def step_ms(self, active_experts: Floats, batch: Floats, kv_tokens: Floats) -> Floats: ...
    def step_ms(
        self, active_experts: float | Floats, batch: float | Floats, kv_tokens: float | Floats
    ) -> float | Floats:
        """Return the time of one decode step.

        Parameters
        ----------
        active_experts : float64, any shape; distinct experts a layer, mean over layers
        batch : requests in the step, the same shape
        kv_tokens : KV tokens of the whole batch at the start of the step, the same shape

        Examples
        --------
        >>> model = LatencyModel(t0_ms=5.0, per_expert_ms=0.1, per_request_ms=0.5, per_kv_token_ms=0.001)
        >>> model.step_ms(60.0, 8.0, 4000.0)
        19.0
        """
        return (
            self.t0_ms
            + self.per_expert_ms * active_experts
            + self.per_request_ms * batch
            + self.per_kv_token_ms * kv_tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantOrigin:
    """Where one constant of a preset comes from; `uncertainty_percent` None: nobody stated one."""

    name: str
    value: float
    source: str
    uncertainty_percent: float | None
    is_assumed: bool

    def __post_init__(self) -> None:
        if self.name not in CONSTANT_NAMES:
            raise InvalidValue(field="name", value=self.name, limit=f"one of {', '.join(CONSTANT_NAMES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPreset:
    """A step-time model of one model on one GPU, with what is known about its truth."""

    name: str
    model: LatencyModel
    shape: ModelShape
    kv_bytes_per_token: float
    expert_bytes: float
    source: str
    uncertainty_percent: float | None
    notes: str = ""
    origins: tuple[ConstantOrigin, ...] = ()

    def note_on(self, shape: ModelShape) -> str | None:
        """Say what these step times mean for a model of another shape; None for the preset's own."""
        if (self.shape.n_layers, self.shape.n_experts) == (shape.n_layers, shape.n_experts):
            return None
        return (
            f"step times are those of {self.name}, {self.shape.n_layers} layers of {self.shape.n_experts} "
            f"experts; {shape.n_layers} layers of {shape.n_experts} stand in for them: a step counts the "
            "active experts a layer, on average over layers"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRows:
    """Measured decode steps: four float64 arrays `(n_rows,)`."""

    active_experts: Floats
    batch: Floats
    kv_tokens: Floats
    step_ms: Floats

    def __post_init__(self) -> None:
        shapes = {field.name: getattr(self, field.name).shape for field in fields(self)}
        for name, shape in shapes.items():
            if len(shape) != 1 or shape != self.step_ms.shape:
                raise InvalidValue(field=name, value=f"shape {shape}", limit="one value a row")
            values = getattr(self, name)
            if not np.all(np.isfinite(values)) or np.any(values < 0):
                raise InvalidValue(field=name, value=_first_bad(values), limit="finite and at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyFit:
    """A fitted model; a constant in `held_at_zero` has no standard error (None), as the data gave none."""

    model: LatencyModel
    standard_errors: tuple[float | None, float | None, float | None, float | None]
    held_at_zero: tuple[str, ...]
    r2: float
    residual_ms: float
    n_rows: int


def fit_latency(rows: LatencyRows) -> LatencyFit:
    """Fit the four constants by least squares, none below 0 (ours).

    A column that is 0 in all rows holds its constant at 0. A column that cannot be told from the others
    (constant, or a mixture of them) is refused, because any value would fit.

    Examples
    --------
    >>> n = np.arange(8.0)
    >>> rows = LatencyRows(active_experts=20 + 9 * n, batch=1 + n % 3, kv_tokens=0 * n, step_ms=7 + 0.9 * n)
    >>> fit = fit_latency(rows)
    >>> round(fit.model.t0_ms, 6), round(fit.model.per_expert_ms, 6), fit.held_at_zero[-1]
    (5.0, 0.1, 'per_kv_token_ms')
    """
    design = np.column_stack([np.ones_like(rows.step_ms), rows.active_experts, rows.batch, rows.kv_tokens])
    measured = np.flatnonzero(np.any(design != 0, axis=0))
    _check_separable(design, measured)
    scale = np.abs(design[:, measured]).max(axis=0)
    scaled = design[:, measured] / scale
    solution = nnls(scaled, rows.step_ms)[0]
    values = np.zeros(4)
    values[measured] = solution / scale
    values[values < 1e-12 * np.abs(rows.step_ms).max()] = 0.0
    residuals = rows.step_ms - design @ values
    free = np.flatnonzero(values > 0)
    return LatencyFit(
        model=LatencyModel(**dict(zip(CONSTANT_NAMES, map(float, values), strict=True))),
        standard_errors=_standard_errors(design, free, residuals),
        held_at_zero=tuple(name for i, name in enumerate(CONSTANT_NAMES) if i not in free),
        r2=_r_squared(rows.step_ms, residuals),
        residual_ms=float(np.sqrt(np.mean(residuals**2))),
        n_rows=len(residuals),
    )


def find_preset(name: str, field: str = "preset") -> LatencyPreset:
    """Return the preset of this name, or raise `InvalidValue` of the field that held the name."""
    if name not in PRESETS:
        raise InvalidValue(field=field, value=name, limit=f"one of {', '.join(sorted(PRESETS))}")
    return PRESETS[name]


def _check_separable(design: Floats, measured: np.ndarray[tuple[int], np.dtype[np.intp]]) -> None:
    n_rows = design.shape[0]
    if n_rows <= len(measured):
        raise InvalidValue(field="rows", value=n_rows, limit=f"more than {len(measured)} measured steps")
    names = ("t0", "active_experts", "batch", "kv_tokens")
    for position, column in enumerate(measured):
        kept = design[:, measured[: position + 1]]
        if np.linalg.matrix_rank(kept / np.abs(kept).max(axis=0), tol=1e-8 * n_rows**0.5) <= position:
            limit = "neither constant nor a mixture of the other columns, else its constant cannot be told"
            raise InvalidValue(field=names[column], value="no variation of its own", limit=limit)


def _standard_errors(
    design: Floats, free: np.ndarray[tuple[int], np.dtype[np.intp]], residuals: Floats
) -> tuple[float | None, float | None, float | None, float | None]:
    columns = design[:, free]
    variance = float(residuals @ residuals) / (len(residuals) - len(free))
    scale = np.abs(columns).max(axis=0)
    covariance = np.linalg.inv((columns / scale).T @ (columns / scale)) * variance
    errors: list[float | None] = [None, None, None, None]
    for i, position in enumerate(free):
        errors[position] = float(np.sqrt(covariance[i, i]) / scale[i])
    return (errors[0], errors[1], errors[2], errors[3])


def _r_squared(step_ms: Floats, residuals: Floats) -> float:
    total = float(np.sum((step_ms - step_ms.mean()) ** 2))
    if total == 0:
        raise InvalidValue(field="step_ms", value=float(step_ms[0]), limit="not the same in every row")
    return 1.0 - float(residuals @ residuals) / total


def _first_bad(values: Floats) -> float:
    return float(values[~(np.isfinite(values) & (values >= 0))][0])


def _measured(name: str, value: float, source: str, uncertainty_percent: float | None) -> ConstantOrigin:
    return ConstantOrigin(
        name=name, value=value, source=source, uncertainty_percent=uncertainty_percent, is_assumed=False
    )


def _assumed(name: str, value: float, source: str, uncertainty_percent: float | None) -> ConstantOrigin:
    return ConstantOrigin(
        name=name, value=value, source=source, uncertainty_percent=uncertainty_percent, is_assumed=True
    )


def _preset(
    name: str,
    shape: ModelShape,
    origins: tuple[ConstantOrigin, ConstantOrigin, ConstantOrigin, ConstantOrigin],
    *,
    kv_bytes_per_token: float,
    expert_bytes: float,
    source: str,
    uncertainty_percent: float | None,
    notes: str,
) -> LatencyPreset:
    return LatencyPreset(
        name=name,
        model=LatencyModel(**{origin.name: origin.value for origin in origins}),
        shape=shape,
        kv_bytes_per_token=kv_bytes_per_token,
        expert_bytes=expert_bytes,
        source=source,
        uncertainty_percent=uncertainty_percent,
        notes=notes,
        origins=origins,
    )


_QWEN3_30B = ModelShape(model="Qwen3-30B-A3B", n_layers=48, n_experts=128, top_k=8)
_GPT_OSS_120B = ModelShape(model="GPT-OSS-120B", n_layers=36, n_experts=128, top_k=4)
_GPT_OSS_20B = ModelShape(model="GPT-OSS-20B", n_layers=24, n_experts=32, top_k=4)
_GPT_OSS_FIT = "fit to four public serving points of GPT-OSS-120B on MI300X; weak"
_GPT_OSS_SCALED = "assumed, not measured: the GPT-OSS-120B value times 24 / 36 layers (equal bytes an expert)"
_H200_TABLES = "per-layer fit to public kernel tables on H200, times 48 layers"
_H200_VALUE = "assumed: the H200 value"

_ALL_PRESETS = (
    _preset(
        "qwen3-30b-a3b-mi300x",
        _QWEN3_30B,
        (
            _assumed(
                "t0_ms", 5.59, "MoE part from the paper's 4.7x from 16 to 128 experts; rest assumed", 30.0
            ),
            _assumed("per_expert_ms", 0.113, "48 layers of 9.44 MB at an achieved 4.0 TB/s of HBM", None),
            _assumed("per_request_ms", 0.012, "assumed, not measured", 30.0),
            _assumed("per_kv_token_ms", 2.5e-5, "assumed: 98,304 bytes a token at 4.0 TB/s", 30.0),
        ),
        kv_bytes_per_token=98_304,
        expert_bytes=9.44e6,
        source="derived from achieved HBM bandwidth and one published ratio; not fitted to measured steps",
        uncertainty_percent=30.0,
        notes="Replace it by a fit to your own workers' telemetry before you trust absolute times.",
    ),
    _preset(
        "gpt-oss-120b-mi300x",
        _GPT_OSS_120B,
        (
            _measured("t0_ms", 12.8, _GPT_OSS_FIT, None),
            _measured("per_expert_ms", 0.094, _GPT_OSS_FIT, None),
            _measured("per_request_ms", 0.133, _GPT_OSS_FIT, None),
            _assumed(
                "per_kv_token_ms",
                0.0,
                "not told apart by the fit: held at 0, its cost sits in the rest",
                None,
            ),
        ),
        kv_bytes_per_token=73_728,
        expert_bytes=13.2e6,
        source=_GPT_OSS_FIT,
        uncertainty_percent=None,
        notes="Four points for three constants: nobody can state an uncertainty.",
    ),
    _preset(
        "gpt-oss-20b-mi300x",
        _GPT_OSS_20B,
        (
            _assumed("t0_ms", 12.8 * 24 / 36, _GPT_OSS_SCALED, None),
            _assumed("per_expert_ms", 0.094 * 24 / 36, _GPT_OSS_SCALED, None),
            _assumed("per_request_ms", 0.133 * 24 / 36, _GPT_OSS_SCALED, None),
            _assumed("per_kv_token_ms", 0.0, _GPT_OSS_SCALED, None),
        ),
        kv_bytes_per_token=49_152,
        expert_bytes=13.2e6,
        source=_GPT_OSS_SCALED,
        uncertainty_percent=None,
        notes="Assumed, no measurement: say so wherever a figure from it is shown.",
    ),
    _preset(
        "qwen3-30b-a3b-h200",
        _QWEN3_30B,
        (
            _measured("t0_ms", 0.70 + 48 * 0.0774, "0.70 ms outside the layers; " + _H200_TABLES, 1.3),
            _measured("per_expert_ms", 48 * 0.00222, _H200_TABLES, 1.3),
            _measured("per_request_ms", 48 * 0.0002, _H200_TABLES, 1.3),
            _measured("per_kv_token_ms", 48 * 4.9e-7, _H200_TABLES, 1.3),
        ),
        kv_bytes_per_token=98_304,
        expert_bytes=9.44e6,
        source=_H200_TABLES,
        uncertainty_percent=1.3,
        notes="1.3 % is the error of the fit on the kernel tables, not of a running server.",
    ),
    _preset(
        "qwen3-30b-a3b-h100",
        _QWEN3_30B,
        (
            _assumed("t0_ms", 0.70 + 48 * (0.0774 - 0.0224 + 0.0238), "H200 with the MoE part of H100", None),
            _measured("per_expert_ms", 48 * 0.00316, "per-layer fit to public kernel tables on H100", None),
            _assumed("per_request_ms", 48 * 0.0002, _H200_VALUE, None),
            _assumed("per_kv_token_ms", 48 * 4.9e-7, _H200_VALUE, None),
        ),
        kv_bytes_per_token=98_304,
        expert_bytes=9.44e6,
        source="MoE kernels from public H100 tables; the rest assumed as on H200",
        uncertainty_percent=None,
        notes="Only the constant of the experts is measured on this GPU.",
    ),
)

PRESETS: Mapping[str, LatencyPreset] = MappingProxyType({preset.name: preset for preset in _ALL_PRESETS})
