"""`/v1/fleets/{fleet}/telemetry`: what routers report."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from controlplane.api.security import ServiceCall
from controlplane.domain.telemetry import TelemetryReceipt
from controlplane.services.ingest_telemetry import ingest_telemetry
from eldr_runtime.telemetry_batch import TelemetryBatch

router = APIRouter(prefix="/v1/fleets/{fleet}/telemetry", tags=["telemetry"])

BATCH_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["v", "router_id"],
                    "properties": {
                        "v": {"type": "integer", "example": 1},
                        "router_id": {"type": "string"},
                        "events": {"type": "array", "items": {"type": "object"}},
                        "blobs": {"type": "array", "items": {"type": "object"}},
                    },
                }
            }
        },
    }
}


async def batch_text(request: Request, call: ServiceCall) -> bytes:
    """Receive the batch, once its sender is known to be allowed to send one."""
    return await request.body()


@router.post("", openapi_extra=BATCH_BODY)
def take_telemetry(
    fleet: str, call: ServiceCall, text: Annotated[bytes, Depends(batch_text)]
) -> TelemetryReceipt:
    """Take sampled events and metrics blobs; what has come before is counted and otherwise ignored."""
    return ingest_telemetry(call.state.database, fleet, TelemetryBatch.from_json(text), call.now)
