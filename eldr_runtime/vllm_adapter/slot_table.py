"""Which experts the token in each KV slot used: the signature cache, indexed like the KV cache itself."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from eldr_runtime.array_types import ExpertIds
from eldr_runtime.expert_trace import UNKNOWN_UINT8
from eldr_runtime.model_shape import ModelShape


class SlotTable:
    """Expert ids of every physical KV slot, on the device of the model.

    A prefix-cache hit reuses the block, so its rows are there already; a block that is given out anew is
    cleared first. One spare row at the end takes what vLLM writes for padding, whose slot is -1.

    Attributes
    ----------
    shape
        The model.
    block_size
        Slots a block.
    n_bytes
        Memory the table takes.

    Examples
    --------
    >>> shape = ModelShape(model="m", n_layers=1, n_experts=4, top_k=2)
    >>> table = SlotTable(shape=shape, n_blocks=2, block_size=2, device="cpu")
    >>> table.record(0, torch.tensor([2, -1]), torch.tensor([[3, 1], [0, 0]]))
    >>> table.rows(np.array([1, 2])).tolist(), table.is_known(table.rows(np.array([1, 2]))).tolist()
    ([[[255, 255]], [[3, 1]]], [False, True])
    """

    def __init__(
        self, *, shape: ModelShape, n_blocks: int, block_size: int, device: torch.device | str
    ) -> None:
        self.shape = shape
        self.block_size = block_size
        self._is_narrow = shape.n_experts <= UNKNOWN_UINT8
        # torch does little with unsigned 16-bit integers: the bits are kept as signed ones, unknown is -1.
        dtype = torch.uint8 if self._is_narrow else torch.int16
        self._largest = torch.iinfo(dtype).max
        self._unknown = self._largest if self._is_narrow else -1
        size = (n_blocks * block_size + 1, shape.n_layers, shape.top_k)
        self._table = torch.full(size, self._unknown, dtype=dtype, device=device)

    @property
    def n_bytes(self) -> int:
        """Memory the table takes."""
        return int(self._table.numel() * self._table.element_size())

    def record(self, layer: int, slots: torch.Tensor, topk_ids: torch.Tensor) -> None:
        """Write what one layer chose; stays on the device, so that a captured graph repeats it.

        Parameters
        ----------
        layer
            Index among the layers that have experts.
        slots
            int64 `(n_tokens,)`: physical slots, -1 for padding.
        topk_ids
            Integers `(n_tokens, at least top_k)`. Columns behind `top_k` are shared experts that a kernel
            has appended; ids outside the model's experts make the token unknown.
        """
        ids = topk_ids[:, : self.shape.top_k].clamp(-1, self._largest).to(self._table.dtype)
        self._table[:, layer].index_put_((slots,), ids)

    def clear_blocks(self, block_ids: Sequence[int]) -> None:
        """Make all slots of these blocks unknown."""
        if block_ids:
            blocks = self._table[:-1].unflatten(0, (-1, self.block_size))
            blocks[torch.as_tensor(block_ids, device=self._table.device)] = self._unknown

    def rows(self, slots: NDArray[np.int64]) -> ExpertIds:
        """Return the ids of these slots.

        Parameters
        ----------
        slots
            int64 `(n_tokens,)`.

        Returns
        -------
        uint8 or uint16 `(n_tokens, n_layers, top_k)`; what is not below `n_experts` is unknown.
        """
        index = torch.from_numpy(slots).to(self._table.device)
        rows: NDArray[np.uint8] | NDArray[np.int16] = self._table.index_select(0, index).cpu().numpy()
        return rows.view(np.uint8) if self._is_narrow else rows.view(np.uint16)

    def slots_of(self, block_ids: Sequence[int], n_tokens: int) -> NDArray[np.int64]:
        """Return the slots of the first tokens of a request, int64 `(n_tokens,)`."""
        first = np.asarray(block_ids, dtype=np.int64)[:, None] * self.block_size
        return (first + np.arange(self.block_size)).ravel()[:n_tokens]

    def is_known(self, rows: ExpertIds) -> NDArray[np.bool_]:
        """Return which tokens have known experts in every layer, bool `(n_tokens,)`."""
        is_known: NDArray[np.bool_] = np.all(rows < self.shape.n_experts, axis=(1, 2))
        return is_known
