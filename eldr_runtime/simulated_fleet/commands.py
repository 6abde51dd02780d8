"""Bodies of commands to a fleet, a worker or a load generator: JSON objects without unknown fields."""

from typing import TypeVar

from eldr_runtime.json_values import from_json_value, parse_json

Command = TypeVar("Command")


def read_command(command: type[Command], body: bytes) -> Command:
    """Return the command in this body; InvalidMessage names what is wrong with it."""
    return from_json_value(command, parse_json(body), unknown="refuse")
