import pytest

from eldr_runtime.model_shape import ModelShape


@pytest.fixture
def tiny_shape() -> ModelShape:
    return ModelShape(model="tiny", n_layers=3, n_experts=12, top_k=3)
