"""Parameters of many endpoints."""

from typing import Annotated

from fastapi import Header, Query
from pydantic import AwareDatetime

from controlplane.domain.pages import MAX_LIMIT

Cursor = Annotated[str | None, Query(max_length=64, description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="items a page")]
Moment = Annotated[AwareDatetime | None, Query(description="a time with its zone, RFC 3339")]
DryRun = Annotated[bool, Query(description="tell what would happen, and change nothing")]
Reason = Annotated[str, Header(alias="X-Reason", description="why, for the audit")]
