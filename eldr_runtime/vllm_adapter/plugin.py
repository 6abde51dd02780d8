"""What vLLM calls in each of its processes, through the entry point `vllm.general_plugins`."""

import os

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

from eldr_runtime.vllm_adapter.shared_cores import share_cores

NAME = "EldrConnector"
MODULE = "eldr_runtime.vllm_adapter.connector"
SHARED_CORES = "ELDR_SHARED_CORES"


def register() -> None:
    """Make the connector known by name; `MultiConnector` looks it up to read its statistics."""
    try:
        KVConnectorFactory.get_connector_class_by_name(NAME)
    except ValueError:
        KVConnectorFactory.register_connector(NAME, MODULE, NAME)
    if os.environ.get(SHARED_CORES) == "1":
        share_cores()
