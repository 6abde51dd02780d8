"""Keeps the snapshot in force up to date: from the control plane, else from disk, else from a file."""

import asyncio
import logging
from collections.abc import Callable

from eldr_runtime.centroid_version import CentroidVersion, from_bytes
from eldr_runtime.errors import EldrError, InvalidConfig
from eldr_runtime.heartbeats import ConfigSource
from eldr_runtime.router.config_store import ConfigStore, arm_versions
from eldr_runtime.router.control_plane_link import ControlPlaneLink
from eldr_runtime.router.snapshot import RoutingSnapshot, compile_snapshot, load_only_snapshot
from eldr_runtime.routing_config import RoutingConfig, VersionRef, WorkerEntry

_log = logging.getLogger(__name__)


class ConfigFeed:
    """Owner of the snapshot in force; requests read `snapshot` once and keep what they got.

    Attributes
    ----------
    snapshot
        Replaced by assignment, never changed.
    problem
        Why the last look at the control plane brought nothing; None when it was well.
    """

    def __init__(
        self,
        *,
        fleet: str,
        store: ConfigStore,
        link: ControlPlaneLink | None,
        workers: tuple[WorkerEntry, ...] | None,
        on_applied: Callable[[RoutingSnapshot], None],
    ) -> None:
        self.snapshot: RoutingSnapshot | None = None
        self.source = ConfigSource.NONE
        self.problem: str | None = None if link is not None else "no control plane is set"
        self._fleet = fleet
        self._store = store
        self._link = link
        self._workers = workers
        self._on_applied = on_applied
        self._versions: dict[str, CentroidVersion] = {}
        self._etag: str | None = None

    @property
    def generation(self) -> int | None:
        """Generation in force, None without a configuration."""
        return None if self.snapshot is None else self.snapshot.generation

    def why_none(self) -> str:
        """Say why there is nothing to serve by."""
        return f"no configuration and no workers: {self.problem or 'the control plane has not answered yet'}"

    async def start(self) -> None:
        """Ask the control plane once; without it serve from disk, and without that from the workers file."""
        await self.poll()
        if self.snapshot is None:
            await self._load_from_disk()
        if self.snapshot is None and self._workers is not None:
            _log.warning("no configuration: serving %d workers by load alone", len(self._workers))
            self._put_in_force(load_only_snapshot(self._workers), ConfigSource.NONE)

    async def poll(self) -> None:
        """Ask for a newer configuration and put it in force; what goes wrong becomes `problem`."""
        if self._link is None:
            return
        try:
            answer = await self._link.routing_config(self._etag)
            if answer.status == 200:
                await self._take(RoutingConfig.from_json(answer.body), self._link)
                self._etag = answer.etag
            self.source = ConfigSource.CONTROL_PLANE
        except EldrError as error:
            self._note(str(error))
        else:
            self._note(None)

    async def _take(self, config: RoutingConfig, link: ControlPlaneLink) -> None:
        if config.fleet != self._fleet:
            raise InvalidConfig(field="fleet", value=config.fleet, limit=self._fleet)
        in_force = self.generation
        if in_force is not None and config.generation < in_force:
            limit = f"at least {in_force}, the one in force; generations only go up"
            raise InvalidConfig(field="generation", value=config.generation, limit=limit)
        if config.generation == in_force:
            return
        for reference in arm_versions(config):
            if reference.content_hash not in self._versions:
                self._versions[reference.content_hash] = await self._fetch(reference, config, link)
        await self._apply(config, ConfigSource.CONTROL_PLANE)
        await asyncio.to_thread(self._store.save, config)

    async def _fetch(
        self, reference: VersionRef, config: RoutingConfig, link: ControlPlaneLink
    ) -> CentroidVersion:
        """Return a version from disk, else from the control plane; verified either way."""
        content_hash, shape = reference.content_hash, config.model.to_shape()
        try:
            kept = await asyncio.to_thread(self._store.load_artifact, content_hash, shape)
        except EldrError:
            kept = None  # damaged on disk: what comes over the wire replaces it
        if kept is not None:
            return kept
        data = await link.artifact(content_hash)
        version = from_bytes(data, expected_hash=content_hash, expected_shape=shape)
        await asyncio.to_thread(self._store.save_artifact, content_hash, data)
        return version

    async def _load_from_disk(self) -> None:
        try:
            config = await asyncio.to_thread(self._store.load)
            if config is None:
                return
            if config.fleet != self._fleet:
                raise InvalidConfig(field="fleet on disk", value=config.fleet, limit=self._fleet)
            for reference in arm_versions(config):
                version = self._store.load_artifact(reference.content_hash, config.model.to_shape())
                if version is None:
                    limit = "kept beside the configuration"
                    raise InvalidConfig(field="artifact", value=reference.content_hash, limit=limit)
                self._versions[reference.content_hash] = version
        except EldrError as error:
            _log.warning("the configuration on disk cannot be used: %s", error)
            return
        await self._apply(config, ConfigSource.DISK)
        _log.warning("serving from disk, generation %d: %s", config.generation, self.problem)
        self._etag = f'"{config.generation}"'

    async def _apply(self, config: RoutingConfig, source: ConfigSource) -> None:
        snapshot = await asyncio.to_thread(compile_snapshot, config, dict(self._versions))
        self._put_in_force(snapshot, source)
        named = {reference.content_hash for reference in arm_versions(config)}
        self._versions = {each: version for each, version in self._versions.items() if each in named}

    def _put_in_force(self, snapshot: RoutingSnapshot, source: ConfigSource) -> None:
        self.snapshot = snapshot
        self.source = source
        self._on_applied(snapshot)

    def _note(self, problem: str | None) -> None:
        if problem is not None and problem != self.problem:
            _log.warning("configuration: %s", problem)
        self.problem = problem
