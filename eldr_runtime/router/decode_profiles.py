"""Joins a request's event with the profile of its decode worker; whichever comes first waits."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from eldr_runtime.count_codec import MAX_ENCODED_BYTES
from eldr_runtime.decode_profile import DecodeProfile
from eldr_runtime.router.attempts import attempt_key
from eldr_runtime.router.request_clock import now_seconds
from eldr_runtime.routing_event import RoutingEvent

# Workers push to every router, so most of these may belong to requests of others.
MAX_EARLY = 1024
T = TypeVar("T")


class DecodeProfileJoin:
    """Events that wait for their profile, and profiles that came before their event.

    The key is the part of an attempt's id that nobody can guess, so that nobody can make up a profile.

    Attributes
    ----------
    n_joined, n_unclaimed
        Profiles that found their event, and those that none asked for in time: of other routers, or late.
    n_missing
        Events that went without their profile.
    """

    def __init__(
        self,
        send: Callable[[RoutingEvent], None],
        *,
        wait_seconds: float,
        max_waiting: int,
        now: Callable[[], float] = now_seconds,
    ) -> None:
        self._send = send
        self._wait_seconds = wait_seconds
        self._max_waiting = max_waiting
        self._now = now
        self._events: dict[str, tuple[float, RoutingEvent]] = {}
        self._profiles: dict[str, tuple[float, DecodeProfile]] = {}
        self.n_joined = 0
        self.n_missing = 0
        self.n_unclaimed = 0

    def wait_for(self, attempt_id: str, event: RoutingEvent) -> None:
        """Keep an event until its profile comes; it is sent at once if that is here."""
        key = attempt_key(attempt_id) or attempt_id
        early = self._profiles.pop(key, None)
        if early is not None:
            self._join(event, early[1])
            return
        if len(self._events) >= self._max_waiting:
            self.n_missing += 1
            self._send(event)
            return
        self._events[key] = (self._now() + self._wait_seconds, event)

    def arrived(self, profile: DecodeProfile) -> None:
        """Take a profile; a second one of the same attempt is ignored."""
        key = attempt_key(profile.request_id)
        waiting = None if key is None else self._events.pop(key, None)
        if waiting is not None:
            self._join(waiting[1], profile)
        elif (
            key is None or len(self._profiles) >= MAX_EARLY or len(profile.counts.counts) > MAX_ENCODED_BYTES
        ):
            self.n_unclaimed += 1
        else:
            self._profiles[key] = (self._now() + self._wait_seconds, profile)

    def expire(self) -> None:
        """Send the events that have waited long enough without their profile."""
        now = self._now()
        for key in _due(self._events, now):
            self.n_missing += 1
            self._send(self._events.pop(key)[1])
        for key in _due(self._profiles, now):
            self.n_unclaimed += 1
            del self._profiles[key]

    def give_up(self) -> None:
        """Send every event that still waits."""
        for _, event in self._events.values():
            self.n_missing += 1
            self._send(event)
        self._events.clear()

    def _join(self, event: RoutingEvent, profile: DecodeProfile) -> None:
        self.n_joined += 1
        self._send(replace(event, decode_counts=profile.counts, decode_steps=profile.steps))


def _due(waiting: Mapping[str, tuple[float, T]], now: float) -> list[str]:
    """Return the keys whose time is up; they stand in the order of their times."""
    due = []
    for key, (until, _) in waiting.items():
        if until > now:
            break
        due.append(key)
    return due
