"""What `eldr up` can serve with: simulated workers, or real vLLM workers on this machine's CPU."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Protocol

from controlplane.domain.fleets import CreateFleet
from eldr_runtime.errors import UnreadableFile
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.routing_config import WorkerRole
from eldr_runtime.simulated_fleet.pool_source import GENERATED_SHAPE

REASON = "first start of eldr up"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersPlan:
    """A process with one or more workers: its command line but for the port and where to register.

    `ready` is the path that answers once the process is up; `engine_arguments` go to the engine it starts.
    """

    name: str
    arguments: tuple[str, ...]
    port_option: str
    ready: str
    engine_arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_seconds: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualSize:
    """Workers and traffic where nobody asks for others."""

    n_prefill: int
    n_decode: int
    rate_per_second: float
    output_tokens: int


class Engine(Protocol):
    """A way to serve a model."""

    USUAL: ClassVar[UsualSize]

    @property
    def start_seconds(self) -> float:
        """How long its workers may take to start."""

    def fleet(self) -> CreateFleet:
        """Return the command that makes its fleet."""

    def workers(self, n_prefill: int, n_decode: int) -> tuple[WorkersPlan, ...]:
        """Return the processes to start."""

    def load_arguments(self) -> tuple[str, ...]:
        """Return what `eldr load` sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEngine:
    """Simulated workers at the step times of Qwen3-30B-A3B on MI300X.

    Their traffic is generated in the shape of that model, or that of a trace pack with decode counts, which
    `pack` names and whose shape `shape` is.
    """

    USUAL: ClassVar = UsualSize(n_prefill=2, n_decode=8, rate_per_second=45.0, output_tokens=192)
    PRESET = "qwen3-30b-a3b-mi300x"
    WORKLOAD = "balanced"
    PROMPT_TOKENS = 150
    STREAM_INTERVAL_TOKENS = 4

    shape: ModelShape = GENERATED_SHAPE
    pack: Path | None = None
    seed: int = 1
    start_seconds: float = 90.0

    def fleet(self) -> CreateFleet:
        """Return the command that makes its fleet."""
        fleet = _demo_fleet("demo", self.shape, gpu="MI300X, simulated", is_simulated=True)
        return replace(fleet, latency_preset=self.PRESET)

    def workers(self, n_prefill: int, n_decode: int) -> tuple[WorkersPlan, ...]:
        """Return one process with all workers."""
        numbers = ("--prefill", str(n_prefill), "--decode", str(n_decode))
        pace = ("--preset", self.PRESET, "--stream-interval", str(self.STREAM_INTERVAL_TOKENS))
        arguments = ("fleet", *self.load_arguments(), *numbers, *pace)
        plan = WorkersPlan(
            name="fleet", arguments=arguments, port_option="--control-port", ready="/simulated/status"
        )
        return (plan,)

    def load_arguments(self) -> tuple[str, ...]:
        """Return the profiles that workers and load share."""
        profiles = ("--workload", self.WORKLOAD) if self.pack is None else ("--pack", str(self.pack))
        return (*profiles, "--prompt-tokens", str(self.PROMPT_TOKENS), "--seed", str(self.seed))


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmCpuEngine:
    """vLLM on this machine's CPU, a process a worker, KV by NIXL over loopback.

    Parameters
    ----------
    python
        Interpreter of the environment that has vLLM.
    checkpoint
        Folder of a Qwen3-MoE checkpoint.
    prompts
        File of the prompts that `--demo` sends.
    """

    USUAL: ClassVar = UsualSize(n_prefill=1, n_decode=2, rate_per_second=1.0, output_tokens=64)
    MODEL = "tiny-moe"
    CAPACITY = 16
    MODEL_TOKENS = 2048
    ENGINE_ARGUMENTS = (
        # In 32 bits, so that answers do not depend on what else is in the batch, whoever decodes them.
        *("--dtype", "float32"),
        *("--max-model-len", str(MODEL_TOKENS)),
        # Room for every prompt whole: vLLM 0.32 ends on a CPU when the prompt of a request with a seed is cut
        # in chunks, since it winds the request's generator back, and those of a CPU have no offset.
        *("--max-num-batched-tokens", str(CAPACITY * MODEL_TOKENS)),
    )
    DRAIN_SECONDS = 20.0
    # Its drain, the end of vLLM, and a margin: killed sooner, it could not end vLLM in order.
    STOP_SECONDS = DRAIN_SECONDS + 45.0

    python: Path
    checkpoint: Path
    prompts: Path
    start_seconds: float = 1200.0

    def fleet(self) -> CreateFleet:
        """Return the command that makes its fleet, of the checkpoint's shape."""
        return _demo_fleet("vllm-cpu", shape_of(self.checkpoint, self.MODEL), gpu="none", is_simulated=False)

    def workers(self, n_prefill: int, n_decode: int) -> tuple[WorkersPlan, ...]:
        """Return one process a worker."""
        prefill = [self._worker(WorkerRole.PREFILL, n) for n in range(n_prefill)]
        return (*prefill, *(self._worker(WorkerRole.DECODE, n) for n in range(n_decode)))

    def load_arguments(self) -> tuple[str, ...]:
        """Return the prompts to send."""
        return ("--prompts", str(self.prompts), "--model", self.MODEL)

    def _worker(self, role: WorkerRole, number: int) -> WorkersPlan:
        name = f"{role.value}-{number:02d}"
        model = ("--model", str(self.checkpoint), "--served-name", self.MODEL, "--device", "cpu")
        engine = ("--python", str(self.python), "--capacity", str(self.CAPACITY))
        times = ("--start-seconds", f"{self.start_seconds:g}", "--drain-seconds", f"{self.DRAIN_SECONDS:g}")
        return WorkersPlan(
            name=name,
            arguments=("worker", role.value, *model, *engine, *times, "--worker-id", name),
            port_option="--port",
            ready="/health",
            engine_arguments=self.ENGINE_ARGUMENTS,
            # Workers share the cores: more threads of each would only wait for each other.
            environment={"OMP_NUM_THREADS": "1"},
            stop_seconds=self.STOP_SECONDS,
        )


def shape_of(checkpoint: Path, model: str) -> ModelShape:
    """Return the shape in a checkpoint's `config.json`; raise `UnreadableFile` if it says none."""
    file = checkpoint / "config.json"
    try:
        config = json.loads(file.read_text())
        # transformers 5 writes another name for it than those before.
        n_experts = config["num_local_experts"] if "num_local_experts" in config else config["num_experts"]
        return ModelShape(
            model=model,
            n_layers=config["num_hidden_layers"],
            n_experts=n_experts,
            top_k=config["num_experts_per_tok"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableFile(f"{file} gives no shape of a Qwen3-MoE: {error}") from error


def _demo_fleet(name: str, shape: ModelShape, *, gpu: str, is_simulated: bool) -> CreateFleet:
    return CreateFleet(
        name=name,
        shape=shape,
        gpu=gpu,
        kv_block_size_tokens=16 if is_simulated else 128,
        decode_profile_share=1.0,
        signature_sample_share=1.0,
        metrics_window_seconds=2.0,
        is_simulated=is_simulated,
        reason=REASON,
    )
