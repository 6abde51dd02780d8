"""Parameters of many endpoints."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Header, Query
from pydantic import AfterValidator, AwareDatetime
from pydantic_core import PydanticCustomError

from controlplane.domain.pages import MAX_LIMIT

FIRST_YEAR, LAST_YEAR = 1970, 2999


def _check_year(moment: datetime) -> datetime:
    """Refuse times near the ends of the calendar, where a zone or a range would lead out of it."""
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise PydanticCustomError("moment", f"must be a time of the years {FIRST_YEAR} to {LAST_YEAR}")
    return moment.astimezone(UTC)


Cursor = Annotated[str | None, Query(max_length=64, description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="items a page")]
Moment = Annotated[
    Annotated[AwareDatetime, AfterValidator(_check_year)] | None,
    Query(description="a time with its zone, RFC 3339"),
]
DryRun = Annotated[bool, Query(description="tell what would happen, and change nothing")]
Reason = Annotated[str, Header(alias="X-Reason", description="why, for the audit")]
