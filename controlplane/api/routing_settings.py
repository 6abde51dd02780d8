"""`/v1/fleets/{fleet}/settings`."""

from fastapi import APIRouter, Response

from controlplane.api.answers import IfMatch, answer, check_if_match, etag
from controlplane.api.parameters import Cursor, DryRun, Limit
from controlplane.api.security import OperatorCall, ViewerCall
from controlplane.domain.pages import Page
from controlplane.domain.versions import RoutingSettings, Tune, TuningPreview
from controlplane.services import tune_settings
from controlplane.services.predict_effect import predict_effect

router = APIRouter(prefix="/v1/fleets/{fleet}/settings", tags=["settings"])


@router.get("")
def get_settings(fleet: str, call: ViewerCall, response: Response) -> RoutingSettings:
    """Answer the live settings, their revision as ETag."""
    with call.read() as session:
        settings = tune_settings.get_settings(session, fleet)
    response.headers["ETag"] = etag(settings.revision)
    return settings


@router.patch("", response_model=RoutingSettings | TuningPreview)
def tune(
    fleet: str, command: Tune, call: OperatorCall, if_match: IfMatch = None, dry_run: DryRun = False
) -> Response:
    """Change live knobs; every router runs them within two seconds."""
    if dry_run:
        return answer(predict_effect(call.state.database, fleet, command, call.now, call.state.settings))

    def check_current(current: RoutingSettings) -> None:
        check_if_match(if_match, revision=current.revision, current=current)

    return call.act(
        command,
        lambda change: tune_settings.tune_settings(change, fleet, command, check_current),
        revision_of=lambda settings: settings.revision,
    )


@router.get("/revisions")
def list_revisions(
    fleet: str, call: ViewerCall, cursor: Cursor = None, limit: Limit = 100
) -> Page[RoutingSettings]:
    """List revisions, newest first."""
    with call.read() as session:
        return tune_settings.list_revisions(session, fleet, cursor, limit)
