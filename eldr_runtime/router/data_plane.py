"""What serves requests, shared by all of them."""

from collections.abc import Callable
from dataclasses import dataclass

from eldr_runtime.router.config_feed import ConfigFeed
from eldr_runtime.router.doors import Doors
from eldr_runtime.router.exchange import Exchange
from eldr_runtime.router.legs import Legs
from eldr_runtime.router.metrics import RouterMetrics
from eldr_runtime.router.readiness import Proof


@dataclass(frozen=True, kw_only=True)
class DataPlane:
    """The parts that a request meets; `record` takes it when it has ended."""

    legs: Legs
    config: ConfigFeed
    doors: Doors
    metrics: RouterMetrics
    proof: Proof
    record: Callable[[Exchange], None]
    max_body_bytes: int
