"""Panels with their states: data, empty, forbidden, refused, control plane away; one failure stays one."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

import streamlit as st

from app.formats import age, moment
from app.kept_data import Kept
from controlplane.client_transport import ClientError, Refused, Unreachable

FORBIDDEN = (401, 403)
WHOLE_ROWS = 14
Cell = str | float | int | bool | datetime | None
Table = Mapping[str, Sequence[Cell]]


@contextmanager
def panel(title: str, help_text: str | None = None, *, is_tall: bool = False) -> Iterator[None]:
    """Draw a bordered panel, as tall as its neighbour if asked; what the client raises becomes its state."""
    with st.container(border=True, height="stretch" if is_tall else "content"):
        st.markdown(f"##### {title}", help=help_text)
        with guarded():
            yield


@contextmanager
def guarded() -> Iterator[None]:
    """Show what the client raises instead of what was to be drawn."""
    try:
        yield
    except ClientError as error:
        show_error(error)


def show_error(error: ClientError) -> None:
    """Say what went wrong and what can be done."""
    if isinstance(error, Unreachable):
        st.warning(
            "The control plane gives no answer, and nothing was loaded before.", icon=":material/cloud_off:"
        )
    elif isinstance(error, Refused) and error.problem.status in FORBIDDEN:
        st.info(f"Your key may not see or do this: {error.problem.detail}", icon=":material/lock:")
    elif isinstance(error, Refused):
        st.error(
            f"**{error.problem.title}.** {error.problem.detail}  \nRequest `{error.problem.request_id}`",
            icon=":material/error:",
        )
    else:
        st.error(f"The answer could not be read: {error}", icon=":material/error:")


def show_empty(text: str, icon: str = ":material/inbox:") -> None:
    """Say that there is nothing yet, and what would make something appear."""
    st.caption(f"{icon} {text}")


def show_freshness(*kept: Kept[object]) -> None:
    """Mark a panel whose data is not from now."""
    stale = [each for each in kept if each.is_stale]
    if stale:
        oldest = min(each.at for each in stale)
        st.badge(
            f"stale, {age(oldest)}",
            icon=":material/history:",
            color="orange",
            help=f"Loaded at {moment(oldest)} UTC.",
        )


def show_table(name: str, table: Table, *, height: int | None = None, hidden: Sequence[str] = ()) -> None:
    """Draw a table with its CSV export, which also has the `hidden` columns."""
    n_rows = max((len(cells) for cells in table.values()), default=0)
    st.dataframe(
        {
            column: [moment(cell) if isinstance(cell, datetime) else cell for cell in cells]
            for column, cells in table.items()
        },
        hide_index=True,
        height=height if height is not None and n_rows > WHOLE_ROWS else "content",
        column_order=[column for column in table if column not in hidden],
        key=f"table_{name}",
    )
    st.download_button(
        "CSV",
        to_csv(table),
        file_name=f"{name}.csv",
        mime="text/csv",
        key=f"csv_{name}",
        on_click="ignore",
        icon=":material/download:",
        type="tertiary",
    )


def to_csv(table: Table) -> str:
    """Write a table as CSV, times as RFC 3339; a text that a spreadsheet would run is made plain."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows([_plain(cell) for cell in row] for row in zip(*table.values(), strict=True))
    return text.getvalue()


def _plain(cell: Cell) -> Cell:
    if isinstance(cell, datetime):
        return cell.isoformat()
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "@") else cell
