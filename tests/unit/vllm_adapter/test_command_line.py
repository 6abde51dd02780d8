import json
from itertools import pairwise
from pathlib import Path

import pytest

from eldr_runtime.errors import InvalidConfig, UnsupportedEngine
from eldr_runtime.routing_config import WorkerRole
from eldr_runtime.vllm_adapter.command_line import build_command, build_environment, transfer_config
from eldr_runtime.vllm_adapter.launch_settings import Device, KvConnector


def connectors(launch) -> list[dict]:
    return transfer_config(launch)["kv_connector_extra_config"]["connectors"]


@pytest.mark.parametrize(("device", "is_eager"), [("cpu", True), ("rocm", False), ("cuda", False)])
def test_command_of_each_device(make_launch, device: str, is_eager: bool) -> None:
    launch = make_launch(device=Device(device), extra_arguments=("--max-model-len", "2048"))
    command = build_command(launch)
    assert command[:3] == ("python", "-m", "vllm.entrypoints.openai.api_server")
    assert ("--enforce-eager" in command) is is_eager
    assert "--no-async-scheduling" in command
    assert command[-2:] == ("--max-model-len", "2048")
    given = dict(pairwise(command))
    assert (given["--model"], given["--served-model-name"]) == ("org/model", "tiny")
    assert (given["--port"], given["--max-num-seqs"]) == ("8100", "16")
    assert json.loads(given["--kv-transfer-config"]) == transfer_config(launch)


@pytest.mark.parametrize(("device", "buffer"), [("cpu", "cpu"), ("rocm", "cuda"), ("cuda", "cuda")])
def test_nixl_stands_beside_the_plugin(make_launch, device: str, buffer: str) -> None:
    mover, plugin = connectors(make_launch(device=Device(device)))
    assert mover == {"kv_connector": "NixlConnector", "kv_buffer_device": buffer, "kv_role": "kv_consumer"}
    assert plugin["kv_connector"] == "EldrConnector"
    extra = {"worker_id": "decode-0", "model": "tiny", "decode_profile_file": "/run/profiles.json"}
    assert plugin["kv_connector_extra_config"] == extra


def test_moriio_reads_and_is_told_its_ports(make_launch) -> None:
    launch = make_launch(KvConnector.MORIIO, device=Device.ROCM, reached_at="10.0.0.7")
    mover, _ = connectors(launch)
    assert mover["kv_connector"] == "MoRIIOConnector"
    extra = {"read_mode": True, "host_ip": "10.0.0.7", "http_port": 8100}
    assert mover["kv_connector_extra_config"] == {**extra, "handshake_port": 5600, "notify_port": 5601}
    assert not any(name.startswith("VLLM_NIXL") for name in build_environment(launch, {}))


def test_a_prefill_worker_produces_and_has_no_decode_profiles(make_launch) -> None:
    launch = make_launch(role=WorkerRole.PREFILL)
    assert transfer_config(launch)["kv_role"] == "kv_producer"
    assert "decode_profile_file" not in connectors(launch)[1]["kv_connector_extra_config"]


def test_environment_of_a_cpu_worker_on_loopback(make_launch, tmp_path: Path) -> None:
    environment = build_environment(make_launch(model=str(tmp_path)), {"VLLM_CPU_KVCACHE_SPACE": "4"})
    assert environment == {
        "VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": "5600",
        "UCX_TLS": "tcp,self,sm", "UCX_NET_DEVICES": "lo", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "ELDR_SHARED_CORES": "1", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip


def test_environment_of_a_gpu_worker_leaves_the_network_to_ucx(make_launch) -> None:
    environment = build_environment(make_launch(device=Device.ROCM, reached_at="10.0.0.7"), {})
    assert environment == {
        "VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "10.0.0.7",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.7", "VLLM_NIXL_SIDE_CHANNEL_PORT": "5600",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-tp", "2"), "tensor_parallel_size is 2"),
        (("--tensor_parallel_size=4",), "tensor_parallel_size is 4"),
        (("--tensor-par", "2"), "tensor_parallel_size is 2"),
        (("--max-model-len", "9", "--enable-expert-parallel"), "expert parallelism"),
        (("-sc", "{}"), "speculative decoding"),
        (("--speculative-config.method", "ngram"), "speculative decoding"),
        (("--async-scheduling",), "async scheduling"),
    ],
)
def test_what_the_plugin_cannot_vouch_for_is_refused(make_launch, arguments, reason: str) -> None:
    with pytest.raises(UnsupportedEngine, match=reason):
        make_launch(extra_arguments=arguments)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--port", "1"), "--port"),
        (("--config", "a.yaml"), "must see"),
        (("--api-key", "x"), "no key"),
        (("-tp", "many"), "a number"),
    ],
)
def test_what_the_launcher_sets_is_refused(make_launch, arguments, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        make_launch(extra_arguments=arguments)


def test_what_cannot_work_is_refused(make_launch, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidConfig, match="nixl on cpu"):
        make_launch(KvConnector.MORIIO)
    with pytest.raises(InvalidConfig, match="--reached-at"):
        make_launch(reached_at="0.0.0.0")
    monkeypatch.setenv("VLLM_ROCM_MONO_DECODE", "1")
    with pytest.raises(UnsupportedEngine, match="VLLM_ROCM_MONO_DECODE"):
        make_launch(device=Device.ROCM)
