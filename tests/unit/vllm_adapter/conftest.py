from collections.abc import Callable
from pathlib import Path

import pytest

from eldr_runtime.routing_config import WorkerRole
from eldr_runtime.vllm_adapter.launch_settings import Device, KvConnector, LaunchSettings, n_kv_ports

MakeLaunch = Callable[..., LaunchSettings]


@pytest.fixture
def make_launch() -> MakeLaunch:
    """Settings of a decode worker on a CPU with NIXL, unless a test says otherwise."""

    def make(connector: KvConnector = KvConnector.NIXL, **changes: object) -> LaunchSettings:
        settings: dict[str, object] = {
            "worker_id": "decode-0", "role": WorkerRole.DECODE, "model": "org/model", "served_name": "tiny",
            "python": Path("python"), "device": Device.CPU, "connector": connector, "host": "127.0.0.1",
            "port": 8100, "reached_at": "127.0.0.1", "capacity": 16,
            "kv_ports": tuple(range(5600, 5600 + n_kv_ports(connector))),
            "profile_file": Path("/run/profiles.json"),
        }  # fmt: skip
        return LaunchSettings(**{**settings, **changes})  # type: ignore[arg-type]

    return make
