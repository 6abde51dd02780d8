"""Tables, one file a noun; importing this package knows them all."""

from controlplane.storage.models import access, alerts, calibrations, fleets, telemetry, versions
from controlplane.storage.models.metadata import Table

METADATA = Table.metadata

__all__ = ["METADATA", "Table", "access", "alerts", "calibrations", "fleets", "telemetry", "versions"]
