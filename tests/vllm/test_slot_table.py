"""The table of experts by KV slot, without an engine."""

import numpy as np
import pytest

from eldr_runtime.model_shape import ModelShape

torch = pytest.importorskip("torch", reason="torch is not in this environment: .ci/make-vllm-env")


def make_table(n_experts: int = 4, *, n_layers: int = 2):
    from eldr_runtime.vllm_adapter.slot_table import SlotTable

    shape = ModelShape(model="m", n_layers=n_layers, n_experts=n_experts, top_k=2)
    return SlotTable(shape=shape, n_blocks=3, block_size=2, device="cpu")


def fill(table, slots: list[int], ids: list[list[int]]) -> None:
    for layer in range(table.shape.n_layers):
        table.record(layer, torch.tensor(slots), torch.tensor(ids, dtype=torch.int32))


def test_nothing_is_known_before_anything_is_recorded() -> None:
    table = make_table()
    rows = table.rows(np.arange(6))
    assert rows.shape == (6, 2, 2)
    assert rows.dtype == np.uint8
    assert not table.is_known(rows).any()


def test_a_token_is_known_when_every_layer_is() -> None:
    table = make_table()
    table.record(0, torch.tensor([3]), torch.tensor([[1, 2]]))
    assert table.is_known(table.rows(np.array([3]))).tolist() == [False]
    table.record(1, torch.tensor([3]), torch.tensor([[0, 3]]))
    rows = table.rows(np.array([3]))
    assert rows.tolist() == [[[1, 2], [0, 3]]]
    assert table.is_known(rows).tolist() == [True]


def test_padding_writes_no_slot() -> None:
    table = make_table()
    fill(table, [-1, 0, -1], [[1, 2], [2, 3], [0, 1]])
    rows = table.rows(np.arange(6))
    assert table.is_known(rows).tolist() == [True, False, False, False, False, False]
    assert rows[0].tolist() == [[2, 3], [2, 3]]


def test_clearing_a_block_leaves_the_others() -> None:
    table = make_table()
    fill(table, list(range(6)), [[0, 1]] * 6)
    table.clear_blocks((0, 2))
    assert table.is_known(table.rows(np.arange(6))).tolist() == [False, False, True, True, False, False]
    table.clear_blocks(())
    assert table.is_known(table.rows(np.arange(2, 4))).all()


def test_columns_behind_the_first_k_are_not_the_routers_choice() -> None:
    table = make_table()
    fill(table, [0], [[3, 1, 4, 5]])
    assert table.rows(np.array([0])).tolist() == [[[3, 1], [3, 1]]]


@pytest.mark.parametrize(
    ("n_experts", "dtype"), [(4, np.uint8), (255, np.uint8), (256, np.uint16), (1024, np.uint16)]
)
def test_ids_outside_the_models_experts_are_unknown(n_experts: int, dtype: type) -> None:
    table = make_table(n_experts)
    fill(table, [0, 1, 2, 3], [[0, n_experts - 1], [0, n_experts], [-1, 0], [0, 100_000]])
    rows = table.rows(np.arange(4))
    assert rows.dtype == dtype
    assert table.is_known(rows).tolist() == [True, False, False, False]
    assert rows[0, 0].tolist() == [0, n_experts - 1]


def test_slots_of_a_request_follow_its_blocks() -> None:
    assert make_table().slots_of((2, 0), 3).tolist() == [4, 5, 0]


def test_memory_is_one_byte_a_choice_and_a_spare_row() -> None:
    assert make_table().n_bytes == 7 * 2 * 2
    assert make_table(256).n_bytes == 7 * 2 * 2 * 2
