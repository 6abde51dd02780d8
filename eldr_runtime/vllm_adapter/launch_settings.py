"""What `eldr worker` starts, and what it refuses to start."""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from eldr_runtime.errors import InvalidConfig, UnsupportedEngine
from eldr_runtime.routing_config import WorkerRole
from eldr_runtime.vllm_adapter.extra_arguments import check_extra_arguments

ANY_ADDRESS = ("0.0.0.0", "::")


class Device(StrEnum):
    """What vLLM computes on."""

    ROCM = "rocm"
    CUDA = "cuda"
    CPU = "cpu"


class KvConnector(StrEnum):
    """What carries the KV from a prefill to a decode worker; both let the decode worker pull."""

    NIXL = "nixl"
    MORIIO = "moriio"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """One vLLM worker.

    Parameters
    ----------
    python
        Interpreter of the environment that has vLLM and this package.
    host, port
        Where vLLM listens.
    reached_at
        Host under which routers and other workers reach it.
    kv_ports
        TCP ports of the connector's own: one for NIXL, two for MoRIIO.
    capacity
        Requests it takes at once: vLLM's `--max-num-seqs`.
    profile_file
        File that tells the plugin where decode profiles go.
    """

    worker_id: str
    role: WorkerRole
    model: str
    served_name: str
    python: Path
    device: Device
    connector: KvConnector
    host: str
    port: int
    reached_at: str
    kv_ports: tuple[int, ...]
    capacity: int
    profile_file: Path
    extra_arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.reached_at in ANY_ADDRESS:
            limit = "a host that others reach: give --reached-at"
            raise InvalidConfig(field="reached-at", value=self.reached_at, limit=limit)
        if self.connector is KvConnector.MORIIO and self.device is not Device.ROCM:
            raise InvalidConfig(field="connector", value="moriio", limit=f"nixl on {self.device.value}")
        if len(self.kv_ports) != n_kv_ports(self.connector):
            limit = f"{n_kv_ports(self.connector)} ports for {self.connector.value}"
            raise InvalidConfig(field="kv_ports", value=self.kv_ports, limit=limit)
        check_extra_arguments(self.extra_arguments)
        if self.device is Device.ROCM and os.environ.get("VLLM_ROCM_MONO_DECODE", "").lower() in (
            "true",
            "1",
        ):
            raise UnsupportedEngine("VLLM_ROCM_MONO_DECODE is set: its kernel goes past the expert counts")

    @property
    def is_prefill(self) -> bool:
        """Whether it computes prompts for others."""
        return self.role is WorkerRole.PREFILL

    @property
    def url(self) -> str:
        """Base address under which others reach it."""
        return f"http://{_in_url(self.reached_at)}:{self.port}"

    @property
    def own_url(self) -> str:
        """Base address under which this machine reaches it."""
        host = "127.0.0.1" if self.host in ANY_ADDRESS else self.host
        return f"http://{_in_url(host)}:{self.port}"


def n_kv_ports(connector: KvConnector) -> int:
    """Return how many TCP ports a connector wants."""
    return 2 if connector is KvConnector.MORIIO else 1


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
