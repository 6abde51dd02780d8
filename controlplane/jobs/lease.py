"""The lease under which one of several control planes does the work in the background."""

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from controlplane.errors import ControlPlaneError
from controlplane.services.record_change import Change
from controlplane.storage.database import Database
from controlplane.storage.repositories import leases

LEASE_NAME = "background jobs"
LEASE_SECONDS = 15.0


class LeaseLost(ControlPlaneError):
    """Another process does the work by now: what this one was about to write is not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease that was taken: every write says under which epoch."""

    name: str
    holder: str
    epoch: int


def name_holder() -> str:
    """Name this process, unlike any other and any earlier one."""
    return f"{socket.gethostname()[:64]}:{os.getpid()}:{secrets.token_hex(4)}"


def take_lease(database: Database, holder: str, seconds: float = LEASE_SECONDS) -> Lease | None:
    """Take the lease or renew it; None while another process has it."""
    with database.write() as session:
        epoch = leases.take_lease(session, LEASE_NAME, holder, seconds)
    return None if epoch is None else Lease(name=LEASE_NAME, holder=holder, epoch=epoch)


def give_up_lease(database: Database, holder: str) -> None:
    """Let another process have the lease at once."""
    with database.write() as session:
        leases.give_up_lease(session, LEASE_NAME, holder)


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedDatabase:
    """A database in which a job writes only while it has its lease."""

    database: Database
    lease: Lease

    @contextmanager
    def change(self, actor: str, now: datetime) -> Iterator[Change]:
        """Open a transaction that is refused if the lease is lost."""
        with self.database.write() as session:
            if not leases.holds_lease(session, self.lease.name, self.lease.holder, self.lease.epoch):
                raise LeaseLost(f"epoch {self.lease.epoch} of {self.lease.name} is over")
            request_id = f"{self.lease.name} {self.lease.epoch}"[:64]
            yield Change(session=session, actor=actor, request_id=request_id, now=now)
