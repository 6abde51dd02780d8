"""`/v1/fleets/{fleet}/versions`, `/artifacts`, and what makes a version active."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from controlplane.api.answers import answer
from controlplane.api.bodies import UPLOAD_TYPE, Upload, spool
from controlplane.api.parameters import Cursor, DryRun, Limit, Moment, Reason
from controlplane.api.security import OperatorCall, ReaderCall, ViewerCall
from controlplane.domain.pages import Page
from controlplane.domain.versions import (
    Activation,
    LiveState,
    Promote,
    PromotionPreview,
    RejectVersion,
    RollBack,
    Version,
)
from controlplane.services import activate_version, keep_version
from controlplane.services.judge_version import compare_if_needed
from controlplane.services.show_live_state import list_activations, show_live_state
from controlplane.storage.repositories.versions import to_version

router = APIRouter(prefix="/v1/fleets/{fleet}", tags=["versions"])

UPLOAD_BODY = {"requestBody": {"required": True, "content": {UPLOAD_TYPE: {"schema": {"type": "string"}}}}}


async def artifact_upload(request: Request, call: OperatorCall) -> AsyncIterator[Upload]:
    """Receive an artifact, once its sender is known to be allowed to send one."""
    async with spool(request, call.state.settings.artifact_limit_bytes) as upload:
        yield upload


@router.get("/versions")
def list_versions(fleet: str, call: ViewerCall, cursor: Cursor = None, limit: Limit = 100) -> Page[Version]:
    """List versions, newest first."""
    with call.read() as session:
        return keep_version.list_versions(session, fleet, cursor, limit)


@router.get("/versions/{version_id}")
def get_version(fleet: str, version_id: str, call: ViewerCall) -> Version:
    """Answer one version."""
    with call.read() as session:
        return to_version(keep_version.get_version(session, fleet, version_id))


@router.post("/versions", status_code=201, response_model=Version, openapi_extra=UPLOAD_BODY)
def upload_version(
    fleet: str, call: OperatorCall, upload: Annotated[Upload, Depends(artifact_upload)], reason: Reason
) -> Response:
    """Store an artifact as a candidate: its hash must verify, its model and shape be the fleet's."""
    data = upload.path.read_bytes()
    return call.act(
        {"sha256": upload.sha256, "reason": reason},
        lambda change: keep_version.upload_version(change, fleet, data, reason),
        status=201,
    )


@router.get("/artifacts/{content_hash}", response_class=Response)
def get_artifact(fleet: str, content_hash: str, call: ReaderCall) -> Response:
    """Answer the safetensors bytes of a version; they never change."""
    with call.read() as session:
        data = keep_version.get_artifact(session, fleet, content_hash)
    headers = {"ETag": f'"{content_hash}"', "Cache-Control": "private, max-age=31536000, immutable"}
    return Response(data, media_type=UPLOAD_TYPE, headers=headers)


@router.post("/versions/{version_id}/promote", response_model=Activation | PromotionPreview)
def promote_version(
    fleet: str, version_id: str, command: Promote, call: OperatorCall, dry_run: DryRun = False
) -> Response:
    """Make a candidate active, if its gate passes; `is_override` passes a failed comparison."""
    if dry_run or not command.is_override:
        compare_if_needed(call.state.database, fleet, version_id, call.now)
    if dry_run:
        with call.read() as session:
            return answer(
                activate_version.preview_promotion(
                    session, fleet, version_id, is_override=command.is_override
                )
            )
    return call.act(
        command, lambda change: activate_version.promote_version(change, fleet, version_id, command)
    )


@router.post("/versions/{version_id}/reject", response_model=Version)
def reject_version(fleet: str, version_id: str, command: RejectVersion, call: OperatorCall) -> Response:
    """Rule a candidate out for good."""
    return call.act(command, lambda change: keep_version.reject_version(change, fleet, version_id, command))


@router.post("/rollback", response_model=Activation | PromotionPreview)
def roll_back(fleet: str, command: RollBack, call: OperatorCall, dry_run: DryRun = False) -> Response:
    """Go back to a version that was active before; a running experiment ends."""
    if dry_run:
        with call.read() as session:
            return answer(activate_version.preview_rollback(session, fleet, command.version_id))
    return call.act(command, lambda change: activate_version.roll_back(change, fleet, command))


@router.get("/activations")
def get_activations(
    fleet: str, call: ViewerCall, cursor: Cursor = None, limit: Limit = 100
) -> Page[Activation]:
    """List activations, newest first."""
    with call.read() as session:
        return list_activations(session, fleet, cursor, limit)


@router.get("/live")
def get_live_state(fleet: str, call: ViewerCall, at: Moment = None) -> LiveState:
    """Answer what was live at a moment, now by default."""
    with call.read() as session:
        return show_live_state(session, fleet, at or call.now)
