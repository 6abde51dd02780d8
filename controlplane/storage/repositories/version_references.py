"""What live traffic is compared with under a version."""

from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.versions import VersionReferenceRow


def keep_projection(session: WriteSession, version_id: str, data: bytes) -> None:
    """Store the projection of a version."""
    _row(session, version_id).projection = data
    session.flush()


def keep_drift(session: WriteSession, version_id: str, data: bytes) -> None:
    """Store the drift reference of a version."""
    _row(session, version_id).drift = data
    session.flush()


def find_projection(session: ReadSession, version_id: str) -> bytes | None:
    """Find the projection of a version."""
    row = session.get(VersionReferenceRow, version_id)
    return None if row is None else row.projection


def find_drift(session: ReadSession, version_id: str) -> bytes | None:
    """Find the drift reference of a version."""
    row = session.get(VersionReferenceRow, version_id)
    return None if row is None else row.drift


def _row(session: WriteSession, version_id: str) -> VersionReferenceRow:
    row = session.get(VersionReferenceRow, version_id)
    if row is None:
        row = VersionReferenceRow(version_id=version_id)
        session.add(row)
    return row
