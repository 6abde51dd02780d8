"""Parameters of lists."""

from typing import Annotated

from fastapi import Query

from controlplane.domain.pages import MAX_LIMIT

Cursor = Annotated[str | None, Query(max_length=64, description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="items a page")]
