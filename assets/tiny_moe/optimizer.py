"""Muon for the matrices of attention and experts, AdamW for the rest, both on one cosine."""

import math

import torch
from torch import Tensor, distributed

from assets.tiny_moe.model import TinyMoe

MUON_RATE = 0.02
ADAMW_RATE = 4e-3
MUON_MOMENTUM = 0.95
WARMUP_SHARE = 0.02
# Coefficients of the quintic iteration of Muon (K. Jordan and others, 2024): five rounds bring every
# singular value near 1.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_N_ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal, matrix by matrix; a stack of matrices is one parameter.

    Each process makes the updates of every n-th parameter and gets the others by one sum over processes.
    """

    def __init__(self, parameters: list[Tensor], rate: float) -> None:
        super().__init__(parameters, {"lr": rate})

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter from its gradient, which is the same in all processes."""
        (group,) = self.param_groups
        parameters = group["params"]
        rank, n_processes = distributed.get_rank(), distributed.get_world_size()
        updates = [
            self._update(parameter) if index % n_processes == rank else torch.zeros_like(parameter)
            for index, parameter in enumerate(parameters)
        ]
        flat = torch.cat([update.flatten() for update in updates])
        distributed.all_reduce(flat)
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, update in zip(parameters, flat.split(sizes), strict=True):
            parameter.add_(update.view_as(parameter), alpha=-group["lr"])

    def _update(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].lerp_(parameter.grad, 1.0 - MUON_MOMENTUM)
        scale = max(1.0, parameter.shape[-2] / parameter.shape[-1]) ** 0.5
        return orthogonal(parameter.grad.lerp(momentum, MUON_MOMENTUM)) * scale


def orthogonal(matrices: Tensor) -> Tensor:
    """Bring the singular values of each matrix of float32 `(..., n_rows, n_columns)` near 1."""
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if is_tall else matrices).reshape(-1, *sorted(matrices.shape[-2:]))
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    linear, cubic, quintic = _QUINTIC
    for _ in range(_N_ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=cubic, alpha=quintic), x, beta=linear)
    return (x.mT if is_tall else x).reshape(matrices.shape)


class Optimizers:
    """The two optimizers and their schedule over a fixed number of steps."""

    def __init__(self, model: TinyMoe, n_steps: int) -> None:
        matrices, rest = [], []
        for name, parameter in model.named_parameters():
            (matrices if name.endswith("_proj") or "_proj.weight" in name else rest).append(parameter)
        self._rates = [
            (Muon(matrices, MUON_RATE), MUON_RATE),
            (torch.optim.AdamW(rest, lr=ADAMW_RATE, betas=(0.9, 0.95), weight_decay=0.0), ADAMW_RATE),
        ]
        self._n_steps = n_steps

    def step(self, step: int) -> None:
        """Apply the gradients of step `step`, from 0."""
        share = rate_share(step, self._n_steps)
        for optimizer, rate in self._rates:
            for group in optimizer.param_groups:
                group["lr"] = rate * share
            optimizer.step()


def rate_share(step: int, n_steps: int) -> float:
    """Share of the full rate: a linear warm-up, then a cosine to 0 over steps, so that a seed repeats."""
    n_warmup = max(1, round(WARMUP_SHARE * n_steps))
    if step < n_warmup:
        return (step + 1) / n_warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - n_warmup) / (n_steps - n_warmup)))
