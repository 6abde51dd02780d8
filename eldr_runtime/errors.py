"""Everything the runtime refuses, as one tree.

::

    EldrError
    ├── InvalidValue (also a ValueError)   a field, its value and its limit
    │   ├── InvalidTrace                   expert traces and trace packs
    │   ├── InvalidVersion                 centroid versions
    │   ├── InvalidConfig                  routing settings and configuration
    │   └── InvalidMessage                 what arrives over the wire
    ├── ModelMismatch                      an artifact of another model or shape
    ├── HashMismatch                       content that is not what its hash says
    ├── UnreadableFile                     truncated, or of another format
    ├── UnsupportedEngine                  an engine set up in a way that the plugin cannot vouch for
    └── Cancelled                          a long computation was asked to stop

The command line prints one line for any of them and ends with status 2.
"""


class EldrError(Exception):
    """Base of all errors this package raises on purpose."""


class InvalidValue(EldrError, ValueError):
    """A field has a value outside its limit."""

    def __init__(self, *, field: str, value: object, limit: str) -> None:
        self.field = field
        self.value = value
        self.limit = limit
        super().__init__(f"{field} is {value!r}; must be {limit}")


class InvalidTrace(InvalidValue):
    """An expert trace that contradicts itself."""


class InvalidVersion(InvalidValue):
    """A centroid version that cannot be used."""


class InvalidConfig(InvalidValue):
    """A routing setting outside its limit."""


class InvalidMessage(InvalidValue):
    """A message from another process that breaks the wire format."""


class ModelMismatch(EldrError):
    """An artifact made for another model or another shape of experts."""


class HashMismatch(EldrError):
    """Content that does not hash to what it claims."""


class UnreadableFile(EldrError):
    """A file that is truncated or not of the expected format."""


class UnsupportedEngine(EldrError):
    """An inference engine started in a way in which its experts cannot be counted."""


class Cancelled(EldrError):
    """A long computation was cancelled by its caller."""
