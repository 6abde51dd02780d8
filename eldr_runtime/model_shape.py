"""The shape of a mixture-of-experts model, which every artifact and message must agree on."""

from dataclasses import dataclass

from eldr_runtime.errors import InvalidValue

MAX_LAYERS = 256
MAX_EXPERTS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Name and expert dimensions of one model; `n_layers` counts the layers that have experts."""

    model: str
    n_layers: int
    n_experts: int
    top_k: int

    def __post_init__(self) -> None:
        if not self.model:
            raise InvalidValue(field="model", value=self.model, limit="a non-empty name")
        _check_range("n_layers", self.n_layers, 1, MAX_LAYERS)
        _check_range("n_experts", self.n_experts, 2, MAX_EXPERTS)
        _check_range("top_k", self.top_k, 1, self.n_experts)

    @property
    def counts_shape(self) -> tuple[int, int]:
        """Shape of one request's expert counts, `(n_layers, n_experts)`."""
        return (self.n_layers, self.n_experts)


def _check_range(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidValue(field=field, value=value, limit=f"an integer from {low} to {high}")
