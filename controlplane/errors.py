"""Everything the control plane refuses, as one tree; each class carries its HTTP status.

::

    ControlPlaneError
    ├── InvalidSettings            the process cannot start with these settings
    └── RefusedRequest             a request that is answered with a problem document
        ├── MalformedRequest 400   not what the endpoint can read
        ├── Unauthenticated 401    no key, or one that is unknown, expired or revoked
        ├── Forbidden 403          a key whose role may not do this
        ├── NotFound 404
        ├── Conflict 409           the resource's state does not allow it
        ├── StaleRevision 412      If-Match names an older revision; carries the current state
        ├── TooLarge 413
        ├── InvalidField 422       a field, its value and its limit
        ├── UnstorableValue 422    a value that the database has no place for
        ├── IfMatchRequired 428
        └── NotReady 503           the database or its schema is not there

The runtime's own errors (`eldr_runtime.errors`) are answered as 422, a model mismatch as 409.
"""

from typing import ClassVar


class ControlPlaneError(Exception):
    """Base of all errors this package raises on purpose."""


class InvalidSettings(ControlPlaneError):
    """An `ELDR_` variable that is unknown or outside its limit."""


class RefusedRequest(ControlPlaneError):
    """A request the control plane does not carry out; `status` and `title` go into the answer."""

    status: ClassVar[int] = 400
    title: ClassVar[str] = "Request refused"


class MalformedRequest(RefusedRequest):
    """A request that cannot be read."""

    status: ClassVar[int] = 400
    title: ClassVar[str] = "Malformed request"


class Unauthenticated(RefusedRequest):
    """No usable key."""

    status: ClassVar[int] = 401
    title: ClassVar[str] = "Not authenticated"


class Forbidden(RefusedRequest):
    """A key whose role does not allow this."""

    status: ClassVar[int] = 403
    title: ClassVar[str] = "Not allowed"


class NotFound(RefusedRequest):
    """No such resource."""

    status: ClassVar[int] = 404
    title: ClassVar[str] = "Not found"

    def __init__(self, *, resource: str, name: str) -> None:
        super().__init__(f"there is no {resource} {name!r}")


class Conflict(RefusedRequest):
    """The state of a resource does not allow this."""

    status: ClassVar[int] = 409
    title: ClassVar[str] = "Conflict with the current state"


class StaleRevision(RefusedRequest):
    """The client changes an older revision than the current one, which the answer carries."""

    status: ClassVar[int] = 412
    title: ClassVar[str] = "Changed since it was read"

    def __init__(self, *, given: str, current_revision: int, current: object) -> None:
        self.current_revision = current_revision
        self.current = current
        super().__init__(f"If-Match is {given}; the current revision is {current_revision}")


class TooLarge(RefusedRequest):
    """A body over its limit."""

    status: ClassVar[int] = 413
    title: ClassVar[str] = "Body too large"

    def __init__(self, *, size_bytes: int, limit_bytes: int) -> None:
        self.field = "body"
        self.value = f"{size_bytes} bytes"
        self.limit = f"at most {limit_bytes} bytes"
        super().__init__(f"the body has at least {size_bytes} bytes; must be {self.limit}")


class InvalidField(RefusedRequest):
    """A field of the request with a value outside its limit."""

    status: ClassVar[int] = 422
    title: ClassVar[str] = "Invalid value"

    def __init__(self, *, field: str, value: object, limit: str) -> None:
        self.field = field
        self.value = value
        self.limit = limit
        super().__init__(f"{field} is {value!r}; must be {limit}")


class UnstorableValue(RefusedRequest):
    """A value that no column can hold, and that no check of a field has caught before."""

    status: ClassVar[int] = 422
    title: ClassVar[str] = "Invalid value"


class IfMatchRequired(RefusedRequest):
    """A change without saying which revision it changes."""

    status: ClassVar[int] = 428
    title: ClassVar[str] = "If-Match required"


class NotReady(RefusedRequest):
    """The database cannot be used."""

    status: ClassVar[int] = 503
    title: ClassVar[str] = "Not ready"
