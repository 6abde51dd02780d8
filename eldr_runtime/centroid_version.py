"""The immutable artifact of a calibration: centroids, the transform that makes signatures, and their origin.

On disk a version is one safetensors file (never pickle). All its metadata stands under one key, as JSON with
sorted keys: safetensors writes several keys in hash order, and equal versions must have equal bytes.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from eldr_runtime.array_types import Bools, Counts, Floats32
from eldr_runtime.errors import HashMismatch, InvalidVersion, ModelMismatch, UnreadableFile
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.signature import SignatureTransform, TransformName

FORMAT = 1
METADATA_KEY = "eldr"
TENSORS = ("centroids", "idf", "layer_mask", "mean_use")
LARGEST_HEADER_BYTES = 16 << 20
NORM_TOLERANCE = 1e-3
LARGEST_USE = 1.0 + 1e-5  # a token picks an expert at most once; float32 rounding

Metric: TypeAlias = float | tuple[float, ...]
_Member = TypeVar("_Member", bound=StrEnum)


class VersionOrigin(StrEnum):
    """Why a version was made."""

    CALIBRATION = "calibration"
    DRIFT_REFIT = "drift_refit"
    TOPOLOGY_REFIT = "topology_refit"
    UPLOAD = "upload"


# Identity, not equality: equal fits are recognised by their content hash.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CentroidVersion:
    """Centroids in signature space, with all that is needed to place a request among them.

    Attributes
    ----------
    shape
        The model it was fitted for.
    transform
        Weights and layer mask that turn counts into signatures.
    centroids
        float32 `(n_centroids, n_features)`, rows of unit norm; read-only.
    mean_use
        float32 `(n_layers, n_experts)`: pooled use of each expert a prompt token; read-only.
    seed
        Seed of the fit.
    origin, parent_hash
        Why it was made, and the content hash of the version it was made from.
    n_requests
        Requests it was fitted on.
    created_at
        Aware, in UTC; not part of the content hash.
    library_versions
        Pairs of name and version, sorted; not part of the content hash.
    metrics
        Pairs of name and finite number (or numbers), sorted by name.
    content_hash
        SHA-256 in hex over the tensors and the metadata, without creation time and library versions.
    """

    shape: ModelShape
    transform: SignatureTransform
    centroids: Floats32
    mean_use: Floats32
    seed: int
    origin: VersionOrigin
    parent_hash: str | None
    n_requests: int
    created_at: datetime
    library_versions: tuple[tuple[str, str], ...] = ()
    metrics: tuple[tuple[str, Metric], ...] = ()
    content_hash: str = field(init=False)

    def __post_init__(self) -> None:
        self._check_tensors()
        if self.n_requests < 1:
            raise InvalidVersion(field="n_requests", value=self.n_requests, limit="at least 1")
        if self.created_at.utcoffset() != timedelta(0):
            limit = "a time in UTC, with its zone"
            raise InvalidVersion(field="created_at", value=str(self.created_at), limit=limit)
        if self.parent_hash is not None:
            _check_hash("parent_hash", self.parent_hash)
        self._check_metrics()
        object.__setattr__(self, "centroids", _read_only(self.centroids))
        object.__setattr__(self, "mean_use", _read_only(self.mean_use))
        object.__setattr__(self, "metrics", tuple(sorted((name, _plain(m)) for name, m in self.metrics)))
        object.__setattr__(self, "library_versions", tuple(sorted(self.library_versions)))
        object.__setattr__(self, "content_hash", _content_hash(self))

    @property
    def n_centroids(self) -> int:
        """Number of centroids, K."""
        return int(self.centroids.shape[0])

    def signature(self, counts: Counts) -> Floats32:
        """Make a signature, float32 `(n_features,)`, from uint32 counts `(n_layers, n_experts)`."""
        return self.transform.apply(counts)

    def similarities(self, signature: Floats32) -> Floats32:
        """Cosine to each centroid, float32 `(n_centroids,)`, of a float32 `(n_features,)` signature."""
        similarities: Floats32 = self.centroids @ signature
        return similarities

    def _check_tensors(self) -> None:
        if self.transform.weights.shape != self.shape.counts_shape:
            limit = f"{self.shape.counts_shape} for model {self.shape.model}"
            raise InvalidVersion(field="idf shape", value=self.transform.weights.shape, limit=limit)
        _check_floats("centroids", self.centroids, (None, self.transform.n_features))
        norms = np.linalg.norm(self.centroids.astype(np.float64), axis=1)  # float32 squares may overflow
        wrong = np.flatnonzero(np.abs(norms - 1.0) > NORM_TOLERANCE)
        if len(wrong):
            where = f"norm of centroids[{wrong[0]}]"
            limit = f"1 within {NORM_TOLERANCE}"
            raise InvalidVersion(field=where, value=float(norms[wrong[0]]), limit=limit)
        _check_floats("mean_use", self.mean_use, self.shape.counts_shape)
        if self.mean_use.min() < 0.0 or self.mean_use.max() > LARGEST_USE:
            extreme = self.mean_use.min() if self.mean_use.min() < 0.0 else self.mean_use.max()
            raise InvalidVersion(field="mean_use", value=float(extreme), limit="from 0 to 1")

    def _check_metrics(self) -> None:
        names = [name for name, _ in self.metrics]
        if len(set(names)) != len(names):
            raise InvalidVersion(field="metrics", value=sorted(names), limit="of distinct names")
        for name, metric in self.metrics:
            if not np.isfinite(np.asarray(metric, dtype=np.float64)).all():
                raise InvalidVersion(field=f"metrics.{name}", value=metric, limit="finite")


def _check_hash(name: str, value: str) -> None:
    """Refuse anything but a SHA-256 in lower-case hex."""
    if len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise InvalidVersion(field=name, value=value, limit="64 lower-case hexadecimal digits")


def to_bytes(version: CentroidVersion) -> bytes:
    """Serialise the artifact; equal versions give equal bytes."""
    metadata = _hashed_metadata(version) | {
        "content_hash": version.content_hash,
        "created_at": version.created_at.isoformat().replace("+00:00", "Z"),
        "library_versions": dict(version.library_versions),
    }
    return save(_tensors_of(version), {METADATA_KEY: _canonical_json(metadata)})


def from_bytes(
    data: bytes, *, expected_hash: str | None = None, expected_shape: ModelShape | None = None
) -> CentroidVersion:
    """Read an artifact and verify it.

    Raises
    ------
    UnreadableFile
        Not safetensors, truncated, or not a centroid version.
    InvalidVersion
        A value outside its limit.
    ModelMismatch
        Made for another model or shape than `expected_shape`.
    HashMismatch
        The content is not what its own hash, or `expected_hash`, says.
    """
    fields = _Metadata(_read_metadata(data))
    shape = fields.shape()
    if expected_shape is not None and shape != expected_shape:
        raise ModelMismatch(f"the version is for {shape}; expected {expected_shape}")
    version = fields.version(shape, _read_tensors(data))
    for claimed, by in ((fields.text("content_hash"), "the file"), (expected_hash, "the caller")):
        if claimed is not None and claimed != version.content_hash:
            raise HashMismatch(f"content hash is {version.content_hash}; {by} says {claimed}")
    return version


def save_version(version: CentroidVersion, path: Path) -> None:
    """Write the artifact to a file that is either complete or not there."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        partial = Path(file.name)
        try:
            file.write(to_bytes(version))
            file.flush()
            os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def load_version(
    path: Path, *, expected_hash: str | None = None, expected_shape: ModelShape | None = None
) -> CentroidVersion:
    """Read an artifact from a file; errors as :func:`from_bytes`."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise UnreadableFile(f"{path} cannot be read: {error}") from error
    return from_bytes(data, expected_hash=expected_hash, expected_shape=expected_shape)


class _Metadata:
    """The metadata of an artifact, read with the type each field must have."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values
        found = self.integer("format")
        if found != FORMAT:
            raise InvalidVersion(field="format", value=found, limit=str(FORMAT))

    def text(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str):
            raise InvalidVersion(field=name, value=value, limit="a string")
        return value

    def integer(self, name: str) -> int:
        value = self._get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidVersion(field=name, value=value, limit="an integer")
        return value

    def one_of(self, name: str, kind: type[_Member]) -> _Member:
        try:
            return kind(self.text(name))
        except ValueError as error:
            limit = f"one of {', '.join(kind)}"
            raise InvalidVersion(field=name, value=self.text(name), limit=limit) from error

    def shape(self) -> ModelShape:
        return ModelShape(
            model=self.text("model"),
            n_layers=self.integer("layers"),
            n_experts=self.integer("experts"),
            top_k=self.integer("top_k"),
        )

    def version(self, shape: ModelShape, tensors: Mapping[str, NDArray[np.generic]]) -> CentroidVersion:
        transform = SignatureTransform(
            name=self.one_of("transform", TransformName),
            weights=cast(Floats32, tensors["idf"]),
            layer_mask=cast(Bools, tensors["layer_mask"]),
        )
        return CentroidVersion(
            shape=shape,
            transform=transform,
            centroids=cast(Floats32, tensors["centroids"]),
            mean_use=cast(Floats32, tensors["mean_use"]),
            seed=self.integer("seed"),
            origin=self.one_of("origin", VersionOrigin),
            parent_hash=None if self._get("parent_hash") is None else self.text("parent_hash"),
            n_requests=self.integer("n_requests"),
            created_at=self._moment("created_at"),
            library_versions=tuple((name, str(v)) for name, v in self._mapping("library_versions").items()),
            metrics=tuple((name, _metric(name, m)) for name, m in self._mapping("metrics").items()),
        )

    def _moment(self, name: str) -> datetime:
        try:
            return datetime.fromisoformat(self.text(name))
        except ValueError as error:
            raise InvalidVersion(field=name, value=self.text(name), limit="an RFC 3339 time") from error

    def _mapping(self, name: str) -> Mapping[str, object]:
        value = self._get(name)
        if not isinstance(value, dict):
            raise InvalidVersion(field=name, value=value, limit="an object")
        return value

    def _get(self, name: str) -> object:
        if name not in self.values:
            raise InvalidVersion(field=name, value=None, limit="present in the metadata")
        return self.values[name]


def _metric(name: str, value: object) -> Metric:
    values: list[object] = value if isinstance(value, list) else [value]
    limit = "a number or a list of numbers"
    try:
        numbers = [float(n) for n in values if isinstance(n, int | float) and not isinstance(n, bool)]
    except OverflowError as error:  # an integer of hundreds of digits
        raise InvalidVersion(field=f"metrics.{name}", value="above any float", limit=limit) from error
    if len(numbers) < len(values):
        raise InvalidVersion(field=f"metrics.{name}", value=value, limit=limit)
    return tuple(numbers) if isinstance(value, list) else numbers[0]


def _read_metadata(data: bytes) -> Mapping[str, object]:
    """Read the JSON under our key in the safetensors header, `length u64, JSON of that length, tensors`."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= min(len(data) - 8, LARGEST_HEADER_BYTES):
        raise UnreadableFile(f"not a safetensors file, or truncated: {len(data)} bytes")
    try:
        header = json.loads(data[8 : 8 + length])
        metadata = json.loads(header["__metadata__"][METADATA_KEY], parse_constant=_refuse_constant)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableFile("not a centroid version: its safetensors header has no such metadata") from error
    if not isinstance(metadata, dict):
        raise UnreadableFile("not a centroid version: its metadata is no JSON object")
    return metadata


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _read_tensors(data: bytes) -> Mapping[str, NDArray[np.generic]]:
    try:
        tensors = load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise UnreadableFile(f"not a safetensors file, or truncated: {error}") from error
    missing = [name for name in TENSORS if name not in tensors]
    if missing:
        raise InvalidVersion(field="tensors", value=sorted(tensors), limit=f"complete: {', '.join(TENSORS)}")
    return tensors


def _tensors_of(version: CentroidVersion) -> dict[str, NDArray[np.generic]]:
    """Name the tensors of the artifact: float32 little-endian, and bool."""
    return {
        "centroids": np.ascontiguousarray(version.centroids, dtype="<f4"),
        "idf": np.ascontiguousarray(version.transform.weights, dtype="<f4"),
        "layer_mask": np.ascontiguousarray(version.transform.layer_mask),
        "mean_use": np.ascontiguousarray(version.mean_use, dtype="<f4"),
    }


def _hashed_metadata(version: CentroidVersion) -> dict[str, object]:
    """Collect the metadata that the content hash covers, as JSON values."""
    return {
        "format": FORMAT,
        "model": version.shape.model,
        "layers": version.shape.n_layers,
        "experts": version.shape.n_experts,
        "top_k": version.shape.top_k,
        "transform": version.transform.name.value,
        "seed": version.seed,
        "origin": version.origin.value,
        "parent_hash": version.parent_hash,
        "n_requests": version.n_requests,
        "metrics": {name: list(m) if isinstance(m, tuple) else m for name, m in version.metrics},
    }


def _canonical_json(values: Mapping[str, object]) -> str:
    """JSON with sorted keys and no spaces; NaN is refused."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _content_hash(version: CentroidVersion) -> str:
    digest = hashlib.sha256(_canonical_json(_hashed_metadata(version)).encode())
    for name, tensor in sorted(_tensors_of(version).items()):
        digest.update(f"\n{name} {tensor.dtype.str} {list(tensor.shape)}\n".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def _plain(metric: Metric) -> Metric:
    return tuple(float(m) for m in metric) if isinstance(metric, tuple) else float(metric)


def _read_only(array: Floats32) -> Floats32:
    copy = np.array(array, dtype=np.float32, order="C")
    copy.flags.writeable = False
    return copy


def _check_floats(name: str, array: Floats32, expected: tuple[int | None, int]) -> None:
    n_rows, n_columns = expected
    is_right = (
        array.ndim == 2 and array.shape[1] == n_columns and array.shape[0] == (n_rows or array.shape[0])
    )
    if array.dtype != np.float32 or not is_right or not array.size:
        limit = f"float32 ({n_rows or 'at least 1'}, {n_columns})"
        raise InvalidVersion(field=name, value=f"{array.dtype} {array.shape}", limit=limit)
    if not np.isfinite(array).all():
        raise InvalidVersion(field=name, value="NaN or infinite", limit="finite")
