"""`/v1/fleets/{fleet}/trace-packs`."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from controlplane.api.bodies import Upload, spool
from controlplane.api.parameters import Cursor, Limit, Reason
from controlplane.api.security import OperatorCall, ViewerCall
from controlplane.api.versions import UPLOAD_BODY
from controlplane.domain.calibrations import TracePack
from controlplane.domain.pages import Page
from controlplane.services import keep_trace_pack

router = APIRouter(prefix="/v1/fleets/{fleet}/trace-packs", tags=["calibrations"])


async def pack_upload(request: Request, call: OperatorCall) -> AsyncIterator[Upload]:
    """Receive a pack, once its sender is known to be allowed to send one."""
    async with spool(request, call.state.settings.trace_pack_limit_bytes) as upload:
        yield upload


@router.get("")
def list_trace_packs(
    fleet: str, call: ViewerCall, cursor: Cursor = None, limit: Limit = 100
) -> Page[TracePack]:
    """List packs, newest first."""
    with call.read() as session:
        return keep_trace_pack.list_trace_packs(session, fleet, cursor, limit)


@router.post("", status_code=201, response_model=TracePack, openapi_extra=UPLOAD_BODY)
def upload_trace_pack(
    fleet: str,
    call: OperatorCall,
    upload: Annotated[Upload, Depends(pack_upload)],
    name: Annotated[str, Query(min_length=1, max_length=keep_trace_pack.LONGEST_NAME)],
    reason: Reason,
) -> Response:
    """Store a trace pack (safetensors) of the fleet's model."""
    trace = keep_trace_pack.read_upload(upload.path)
    data = upload.path.read_bytes()
    return call.act(
        {"sha256": upload.sha256, "reason": reason},
        lambda change: keep_trace_pack.keep_trace_pack(
            change, fleet, trace, data, content_hash=upload.sha256, name=name, reason=reason
        ),
        status=201,
    )
