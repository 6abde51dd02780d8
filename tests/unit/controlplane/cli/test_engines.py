import json
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from controlplane.cli.engine_options import Serving, engine_options
from controlplane.cli.engines import Engine, SimulatedEngine, VllmCpuEngine, shape_of
from controlplane.cli.up import up_command
from eldr_runtime.errors import InvalidTrace, UnreadableFile
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.simulation.request_profiles import calibration_trace
from eldr_runtime.simulation.workload_settings import WorkloadSettings
from eldr_runtime.trace_files import load_trace, save_trace

SMALL = ModelShape(model="small", n_layers=2, n_experts=8, top_k=2)
CONFIG = {"num_hidden_layers": 6, "num_experts_per_tok": 4}


@pytest.fixture(params=["num_experts", "num_local_experts"])
def model_folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, request.param: 64}))
    (tmp_path / "prompts.jsonl").write_text("")
    return tmp_path


@pytest.fixture
def engine(model_folder: Path) -> VllmCpuEngine:
    return VllmCpuEngine(
        python=Path("/env/bin/python"), checkpoint=model_folder, prompts=model_folder / "prompts.jsonl"
    )


def test_vllm_workers_are_processes_of_their_own(engine: VllmCpuEngine) -> None:
    plans = engine.workers(1, 2)
    assert [plan.name for plan in plans] == ["prefill-00", "decode-00", "decode-01"]
    assert plans[1].arguments[:2] == ("worker", "decode")
    assert {plan.port_option for plan in plans} == {"--port"}
    given = dict(zip(plans[0].arguments[2::2], plans[0].arguments[3::2], strict=True))
    assert (given["--device"], given["--python"]) == ("cpu", "/env/bin/python")
    assert given["--worker-id"] == "prefill-00"
    assert plans[0].stop_seconds > float(given["--drain-seconds"])


def test_vllm_fleet_has_the_shape_of_the_checkpoint(engine: VllmCpuEngine, tmp_path: Path) -> None:
    fleet = engine.fleet()
    shape = fleet.shape
    assert (shape.model, shape.n_layers, shape.n_experts, shape.top_k) == ("tiny-moe", 6, 64, 4)
    assert not fleet.is_simulated
    with pytest.raises(UnreadableFile, match="no shape"):
        shape_of(tmp_path / "elsewhere", "m")


def test_simulated_workers_share_a_process_and_the_loads_profiles() -> None:
    engine = SimulatedEngine()
    (plan,) = engine.workers(2, 8)
    assert plan.arguments[0] == "fleet"
    assert plan.arguments[1 : 1 + len(engine.load_arguments())] == engine.load_arguments()
    assert engine.fleet().is_simulated
    assert engine.fleet().latency_preset == plan.arguments[plan.arguments.index("--preset") + 1]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "pack.safetensors"
    save_trace(calibration_trace(WorkloadSettings(shape=SMALL), n_requests=12, seed=1), path)
    return path


def test_simulated_workers_serve_a_pack(recorded: Path) -> None:
    engine = engine_of("--pack", str(recorded))
    assert isinstance(engine, SimulatedEngine)
    assert engine.fleet().shape == SMALL
    assert engine.load_arguments()[:2] == ("--pack", str(recorded.resolve()))
    assert "--workload" not in engine.workers(1, 2)[0].arguments


def test_pack_without_decode_counts_is_refused_before_anything_starts(recorded: Path, tmp_path: Path) -> None:
    trace = load_trace(recorded)
    prefill_only = tmp_path / "prefill.safetensors"
    save_trace(replace(trace, decode_counts=None, decode_steps=None), prefill_only)
    with pytest.raises(InvalidTrace, match="decode_counts"):
        engine_of("--pack", str(prefill_only))


def test_real_workers_serve_no_pack(recorded: Path) -> None:
    result = CliRunner().invoke(up_command, ["--engine", "vllm-cpu", "--pack", str(recorded)])
    assert "--pack is what simulated workers serve" in result.output


def engine_of(*arguments: str) -> Engine:
    """The engine that `eldr up` would take with these options."""
    found: list[Serving] = []

    @click.command
    @engine_options
    def command(serving: Serving) -> None:
        found.append(serving)

    command.main(list(arguments), standalone_mode=False)
    return found[0].engine


def test_each_engine_has_its_own_size(model_folder: Path) -> None:
    (model_folder / ".installed").touch()
    found: list[Serving] = []
    command = engine_options(lambda serving: found.append(serving))
    given = {
        "pack": None,
        "engine_env": model_folder,
        "checkpoint": model_folder,
        "prompts": model_folder / "prompts.jsonl",
    }
    unset = dict.fromkeys(("n_prefill", "n_decode", "rate_per_second", "output_tokens"))
    command(engine="simulated", **given, **unset)
    command(engine="vllm-cpu", **given, **{**unset, "n_decode": 3})
    sizes = [(each.n_prefill, each.n_decode, each.rate_per_second, each.output_tokens) for each in found]
    assert sizes == [(2, 8, 45.0, 192), (1, 3, 1.0, 64)]
    assert isinstance(found[1].engine, VllmCpuEngine)


def test_story_needs_simulated_workers(model_folder: Path) -> None:
    (model_folder / ".installed").touch()
    files = ["--checkpoint", str(model_folder), "--prompts", str(model_folder / "prompts.jsonl")]
    arguments = ["--demo", "--auto", "--engine", "vllm-cpu", "--engine-env", str(model_folder), *files]
    result = CliRunner().invoke(up_command, arguments)
    assert "--auto plays on simulated workers" in result.output


def test_missing_model_is_named_before_anything_is_installed(tmp_path: Path) -> None:
    result = CliRunner().invoke(up_command, ["--engine", "vllm-cpu", "--checkpoint", str(tmp_path / "none")])
    assert "config.json is not there" in str(result.exception)
