"""What vLLM calls in each of its processes, through the entry point `vllm.general_plugins`."""

import os

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

from eldr_runtime.vllm_adapter.nixl_pace import slow_down_nixl

NAME = "EldrConnector"
MODULE = "eldr_runtime.vllm_adapter.connector"
NIXL_PAUSE = "ELDR_NIXL_PAUSE_MICROSECONDS"


def register() -> None:
    """Make the connector known by name; `MultiConnector` looks it up to read its statistics."""
    try:
        KVConnectorFactory.get_connector_class_by_name(NAME)
    except ValueError:
        KVConnectorFactory.register_connector(NAME, MODULE, NAME)
    pause = os.environ.get(NIXL_PAUSE)
    if pause is not None:
        slow_down_nixl(int(pause))
