"""The last good configuration on disk, with its artifacts: what a router starts from when nobody answers."""

import os
import tempfile
from pathlib import Path

from eldr_runtime.centroid_version import CentroidVersion, from_bytes
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.routing_config import RoutingConfig, VersionRef

CONFIG_NAME = "routing-config.json"
ARTIFACTS_NAME = "artifacts"


class ConfigStore:
    """A folder of one router; each file in it is whole or not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._artifacts = folder / ARTIFACTS_NAME
        self._artifacts.mkdir(parents=True, exist_ok=True)

    def save(self, config: RoutingConfig) -> None:
        """Keep a configuration whose artifacts are here, and no artifact that it does not name."""
        _write(self._folder / CONFIG_NAME, config.to_json().encode())
        named = {self._path(reference.content_hash) for reference in arm_versions(config)}
        for path in self._artifacts.iterdir():
            if path not in named:
                path.unlink(missing_ok=True)

    def load(self) -> RoutingConfig | None:
        """Return the last good configuration, None without any; InvalidMessage if the file is damaged."""
        path = self._folder / CONFIG_NAME
        return RoutingConfig.from_json(path.read_bytes()) if path.exists() else None

    def save_artifact(self, content_hash: str, data: bytes) -> None:
        """Keep the bytes of a version that has been verified."""
        _write(self._path(content_hash), data)

    def load_artifact(self, content_hash: str, shape: ModelShape) -> CentroidVersion | None:
        """Return a version, verified anew, None if it is not here; HashMismatch if the file is damaged."""
        path = self._path(content_hash)
        if not path.exists():
            return None
        return from_bytes(path.read_bytes(), expected_hash=content_hash, expected_shape=shape)

    def _path(self, content_hash: str) -> Path:
        return self._artifacts / f"{content_hash}.safetensors"


def arm_versions(config: RoutingConfig) -> tuple[VersionRef, ...]:
    """Return the versions that arms route by, each once; the shadow's is not among them."""
    wanted = [config.version_of(arm) for arm in config.arms]
    return tuple({each.content_hash: each for each in wanted if each is not None}.values())


def _write(path: Path, data: bytes) -> None:
    handle, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
