"""The command and the environment that start one vLLM worker with its KV connector and the plugin."""

import json
from collections.abc import Mapping
from pathlib import Path

from eldr_runtime.vllm_adapter.launch_settings import Device, KvConnector, LaunchSettings

Json = dict[str, object]
# For vLLM's CPU build inside one Python process, as tests and benchmarks run it: no servers, no network.
IN_PROCESS_ENVIRONMENT: Mapping[str, str] = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def build_command(settings: LaunchSettings) -> tuple[str, ...]:
    """Return the command; what the user adds comes last and goes before the launcher's own choices."""
    on_cpu = settings.device is Device.CPU
    return (
        str(settings.python), "-m", "vllm.entrypoints.openai.api_server",
        "--model", settings.model,
        "--served-model-name", settings.served_name,
        "--host", settings.host,
        "--port", str(settings.port),
        "--max-num-seqs", str(settings.capacity),
        # Async scheduling, vLLM's default on a GPU, was not checked against the counts.
        "--no-async-scheduling",
        # torch.compile on a CPU traces the layers before the plugin hooks them.
        *(("--enforce-eager",) if on_cpu else ()),
        "--kv-transfer-config", json.dumps(transfer_config(settings), separators=(",", ":")),
        *settings.extra_arguments,
    )  # fmt: skip


def build_environment(settings: LaunchSettings, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add; what the user has set already stays as it is."""
    added = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": settings.reached_at,
        **(_nixl_environment(settings) if settings.connector is KvConnector.NIXL else {}),
        **(_cpu_environment() if settings.device is Device.CPU else {}),
    }
    if Path(settings.model).exists():
        added["HF_HUB_OFFLINE"] = "1"
    if settings.reached_at in LOOPBACK:
        added["GLOO_SOCKET_IFNAME"] = "lo"
    return {name: value for name, value in added.items() if name not in inherited}


def transfer_config(settings: LaunchSettings) -> Json:
    """Return the value of `--kv-transfer-config`: the connector that moves KV, and the plugin beside it."""
    role = "kv_producer" if settings.is_prefill else "kv_consumer"
    plugin = {"worker_id": settings.worker_id, "model": settings.served_name}
    if not settings.is_prefill:
        plugin["decode_profile_file"] = str(settings.profile_file)
    connectors = [
        {**_kv_mover(settings), "kv_role": role},
        {"kv_connector": "EldrConnector", "kv_role": role, "kv_connector_extra_config": plugin},
    ]
    return {
        "kv_connector": "MultiConnector",
        "kv_role": role,
        "kv_connector_extra_config": {"connectors": connectors},
    }


def _kv_mover(settings: LaunchSettings) -> Json:
    if settings.connector is KvConnector.NIXL:
        # On ROCm too vLLM calls the GPU's memory "cuda".
        buffer = "cpu" if settings.device is Device.CPU else "cuda"
        return {"kv_connector": "NixlConnector", "kv_buffer_device": buffer}
    handshake_port, notify_port = settings.kv_ports
    extra = {
        # Only in read mode does the prefill worker not have to know which decode worker is chosen.
        "read_mode": True,
        "host_ip": settings.reached_at,
        "http_port": settings.port,
        "handshake_port": handshake_port,
        "notify_port": notify_port,
    }
    return {"kv_connector": "MoRIIOConnector", "kv_connector_extra_config": extra}


def _nixl_environment(settings: LaunchSettings) -> dict[str, str]:
    side_channel = {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": settings.reached_at,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(settings.kv_ports[0]),
    }
    if settings.reached_at in LOOPBACK and settings.device is Device.CPU:
        side_channel |= {"UCX_TLS": "tcp,self,sm", "UCX_NET_DEVICES": "lo"}
    return side_channel


def _cpu_environment() -> dict[str, str]:
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "ELDR_SHARED_CORES": "1",
    }
