"""`/v1/fleets/{fleet}/versions/{id}/projection` and `/clusters/{k}/experts`."""

from typing import Annotated

from fastapi import APIRouter, Query

from controlplane.api.security import ViewerCall
from controlplane.domain.calibrations import ClusterExperts, Projection
from controlplane.services.project_traffic import (
    MOST_POINTS,
    project_calibration,
    project_live,
    show_cluster_experts,
)

router = APIRouter(prefix="/v1/fleets/{fleet}/versions/{version_id}", tags=["versions"])

Points = Annotated[int, Query(ge=1, le=MOST_POINTS, description="points at most")]
Live = Annotated[bool, Query(description="requests that come now, in place of those of the calibration")]


@router.get("/projection")
def show_projection(
    fleet: str, version_id: str, call: ViewerCall, live: Live = False, limit: Points = 2000
) -> Projection:
    """Answer requests and centroids on the principal components of a version's calibration."""
    show = project_live if live else project_calibration
    with call.read() as session:
        return show(session, fleet, version_id, limit)


@router.get("/clusters/{cluster}/experts")
def show_experts(fleet: str, version_id: str, cluster: int, call: ViewerCall) -> ClusterExperts:
    """Answer which experts the recent requests of one cluster use, as a share of their prompt tokens."""
    with call.read() as session:
        return show_cluster_experts(session, fleet, version_id, cluster)
