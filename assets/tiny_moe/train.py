"""Trains the model: two processes of one thread each, which average their gradients."""

import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, distributed, multiprocessing
from torch.nn import functional

from assets.tiny_moe.groups import GROUPS
from assets.tiny_moe.model import MoeOutput, TinyMoe, TinyMoeConfig
from assets.tiny_moe.optimizer import Optimizers

N_PROCESSES = 2
SEQUENCE_TOKENS = 256
SEQUENCES_PER_STEP = 16
N_STEPS = 1_600
BALANCE_COEFFICIENT = 0.02
MAX_GRADIENT_NORM = 1.0
PROGRESS_STEPS = 20
# Kept by the allocator, the 50 MB of logits cost 0.1 s a step; mapped anew each step, they cost 0.4 s.
PROCESS_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one training is given."""

    corpus: Path
    output: Path
    seed: int
    n_steps: int


def plan_batches(corpus: Path, seed: int, n_steps: int) -> NDArray[np.int64]:
    """Draw the sequences of every step: all groups alike, each window of a group once before any twice.

    Returns
    -------
    int64 `(n_steps, SEQUENCES_PER_STEP, SEQUENCE_TOKENS + 1)`; the last token is only predicted.
    """
    rng = np.random.default_rng(seed)
    n_sequences = n_steps * SEQUENCES_PER_STEP
    n_a_group = math.ceil(n_sequences / len(GROUPS))
    parts = []
    with np.load(corpus / "tokens.npz") as tokens:
        for group in GROUPS:
            stream = tokens[f"train/{group.name}"]
            n_windows = (len(stream) - 1) // SEQUENCE_TOKENS
            rounds = [rng.permutation(n_windows) for _ in range(math.ceil(n_a_group / n_windows))]
            starts = np.concatenate(rounds)[:n_a_group] * SEQUENCE_TOKENS
            parts.append(stream[starts[:, None] + np.arange(SEQUENCE_TOKENS + 1)])
    sequences = rng.permutation(np.concatenate(parts))[:n_sequences]
    return sequences.astype(np.int64).reshape(n_steps, SEQUENCES_PER_STEP, SEQUENCE_TOKENS + 1)


def balance_loss(output: MoeOutput, config: TinyMoeConfig) -> Tensor:
    """Load-balance loss over the batch of all processes: 1 where the experts of every layer share alike."""
    ids = output.expert_ids.transpose(0, 1).flatten(1)
    shares = torch.stack([layer.bincount(minlength=config.n_experts) for layer in ids]) / ids.shape[1]
    distributed.all_reduce(shares)
    shares /= N_PROCESSES
    # The mean probabilities stay local: their gradients are averaged with all others.
    return config.n_experts * (shares * output.router_probabilities).sum(dim=1).mean()


def average_gradients(parameters: list[Tensor]) -> None:
    """Average over processes, in one message, and clip the norm of the whole."""
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
    distributed.all_reduce(flat)
    flat /= N_PROCESSES
    flat *= (MAX_GRADIENT_NORM / (flat.norm() + 1e-6)).clamp(max=1.0)
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, part in zip(parameters, flat.split(sizes), strict=True):
        parameter.grad = part.view_as(parameter)


def train_process(rank: int, run: Run, port: int) -> None:
    """Train as process `rank`; process 0 tells of progress and writes the weights at the end."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=N_PROCESSES
    )
    batches = torch.from_numpy(plan_batches(run.corpus, run.seed, run.n_steps)[:, rank::N_PROCESSES])
    model = TinyMoe(TinyMoeConfig())
    model.initialise(run.seed)
    parameters = list(model.parameters())
    optimizers = Optimizers(model, run.n_steps)
    losses: list[float] = []
    started = time.monotonic()
    for step, batch in enumerate(batches):
        output = model(batch[:, :-1])
        logits = model.logits(output.hidden).flatten(0, 1)
        loss = functional.cross_entropy(logits, batch[:, 1:].flatten())
        balance = balance_loss(output, model.config)
        for parameter in parameters:
            parameter.grad = None
        (loss + BALANCE_COEFFICIENT * balance).backward()
        average_gradients(parameters)
        optimizers.step(step)
        losses.append(loss.item())
        if rank == 0 and ((step + 1) % PROGRESS_STEPS == 0 or step + 1 == run.n_steps):
            tell_progress(step + 1, run.n_steps, losses, balance.item(), time.monotonic() - started)
    if rank == 0:
        write_weights(model, run, losses, time.monotonic() - started)
    distributed.destroy_process_group()


def tell_progress(n_done: int, n_steps: int, losses: list[float], balance: float, seconds: float) -> None:
    """Print one line: step, loss of this process over the last steps, pace and the time left."""
    step_seconds = seconds / n_done
    click.echo(
        f"step {n_done}/{n_steps}  loss {np.mean(losses[-PROGRESS_STEPS:]):.3f}  balance {balance:.3f}  "
        f"{step_seconds:.2f} s a step  {(n_steps - n_done) * step_seconds / 60:.1f} min left"
    )


def write_weights(model: TinyMoe, run: Run, losses: list[float], seconds: float) -> None:
    """Write the float32 weights, and how the training went."""
    run.output.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), run.output / "weights.safetensors")
    summary = {
        "seed": run.seed,
        "n_steps": run.n_steps,
        "n_tokens": run.n_steps * SEQUENCES_PER_STEP * SEQUENCE_TOKENS,
        "seconds": round(seconds, 1),
        "last_loss": round(float(np.mean(losses[-100:])), 4),
    }
    (run.output / "training.json").write_text(json.dumps(summary, indent=2) + "\n")


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on."""
    return distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port


@click.command()
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--steps", "n_steps", type=click.IntRange(min=2), default=N_STEPS, show_default=True)
@click.option("--corpus", type=click.Path(path_type=Path), default=Path("out/tiny_moe/corpus"))
@click.option("--output", type=click.Path(path_type=Path), help="Default: out/tiny_moe/seed-SEED.")
def main(seed: int, n_steps: int, corpus: Path, output: Path | None) -> None:
    """Train one seed; Ctrl-C ends both processes and writes nothing."""
    os.environ.update(PROCESS_ENVIRONMENT)
    run = Run(corpus=corpus, output=output or Path(f"out/tiny_moe/seed-{seed}"), seed=seed, n_steps=n_steps)
    try:
        multiprocessing.spawn(train_process, args=(run, free_port()), nprocs=N_PROCESSES)
    except KeyboardInterrupt:
        raise click.Abort from None


if __name__ == "__main__":
    main()
