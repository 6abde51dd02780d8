import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load, save

from eldr_runtime.centroid_version import (
    CentroidVersion,
    VersionOrigin,
    from_bytes,
    load_version,
    save_version,
    to_bytes,
)
from eldr_runtime.errors import HashMismatch, InvalidVersion, ModelMismatch, UnreadableFile
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.signature import SignatureTransform, TransformName

SHAPE = ModelShape(model="tiny", n_layers=3, n_experts=4, top_k=2)
NOON = datetime(2026, 1, 2, 12, 0, 0, 250_000, tzinfo=UTC)


def build(*, seed: int = 0, n_centroids: int = 2, **changes: Any) -> CentroidVersion:
    rng = np.random.default_rng(seed)
    transform = SignatureTransform(
        name=TransformName.COUNT_IDF,
        weights=rng.random((3, 4)).astype(np.float32),
        layer_mask=np.array([True, False, True]),
    )
    centroids = rng.random((n_centroids, 8)).astype(np.float32) + 0.1
    fields: dict[str, Any] = {
        "shape": SHAPE,
        "transform": transform,
        "centroids": centroids / np.linalg.norm(centroids, axis=1, keepdims=True),
        "mean_use": np.full((3, 4), 0.5, dtype=np.float32),
        "seed": seed,
        "origin": VersionOrigin.CALIBRATION,
        "parent_hash": None,
        "n_requests": 10,
        "created_at": NOON,
        "library_versions": (("scipy", "1.17.0"), ("numpy", "2.4.0")),
        "metrics": (("rho", 0.75), ("rho_by_layer_count", (0.5, 0.75, 0.7))),
    }
    return CentroidVersion(**(fields | changes))


def rewritten(data: bytes, **changes: object) -> bytes:
    """The same artifact with metadata fields changed, without repairing its hash."""
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["eldr"])
    return save(load(data), {"eldr": json.dumps(metadata | changes)})


class TestUse:
    def test_signature_and_similarities_by_hand(self) -> None:
        # Kept layers 0 and 2, weights 1: counts 3 and 4 give the unit vector (0.6, 0, ..., 0.8, 0).
        transform = SignatureTransform(
            name=TransformName.COUNT,
            weights=np.ones((3, 4), dtype=np.float32),
            layer_mask=np.array([True, False, True]),
        )
        version = build(transform=transform, centroids=np.eye(2, 8, dtype=np.float32))
        counts = np.zeros((3, 4), dtype=np.uint32)
        counts[0, 0], counts[1, 1], counts[2, 2] = 3, 9, 4
        signature = version.signature(counts)
        np.testing.assert_allclose(signature, [0.6, 0, 0, 0, 0, 0, 0.8, 0], rtol=1e-6)
        np.testing.assert_allclose(version.similarities(signature), [0.6, 0.0], rtol=1e-6)
        assert version.n_centroids == 2

    def test_arrays_are_read_only_copies(self) -> None:
        centroids = np.eye(2, 8, dtype=np.float32)
        version = build(centroids=centroids)
        centroids[0, 0] = 0.0
        assert version.centroids[0, 0] == 1.0
        with pytest.raises(ValueError, match="read-only"):
            version.mean_use[0, 0] = 0.0


class TestContentHash:
    def test_leaves_out_creation_time_and_libraries_only(self) -> None:
        version = build()
        same = replace(version, created_at=NOON + timedelta(days=1), library_versions=())
        assert same.content_hash == version.content_hash

    @pytest.mark.parametrize(
        "change",
        [
            {"seed": 5},
            {"origin": VersionOrigin.UPLOAD},
            {"parent_hash": "0" * 64},
            {"n_requests": 11},
            {"metrics": ()},
            {"centroids": np.eye(2, 8, dtype=np.float32)},
            {"mean_use": np.full((3, 4), 0.25, dtype=np.float32)},
            {"shape": ModelShape(model="other", n_layers=3, n_experts=4, top_k=2)},
        ],
    )
    def test_covers_everything_else(self, change: dict[str, Any]) -> None:
        assert replace(build(), **change).content_hash != build().content_hash

    def test_covers_the_transform(self) -> None:
        version = build()
        other_mask = version.transform.with_mask(np.array([True, True, False]))
        assert replace(version, transform=other_mask).content_hash != version.content_hash


class TestBytes:
    @given(st.integers(0, 2**31), st.integers(1, 6))
    @settings(max_examples=25, deadline=None)
    def test_save_and_load_give_the_same_bytes(self, seed: int, n_centroids: int) -> None:
        version = build(seed=seed, n_centroids=n_centroids)
        data = to_bytes(version)
        again = from_bytes(data, expected_hash=version.content_hash, expected_shape=SHAPE)
        assert to_bytes(again) == data
        assert again.created_at == NOON
        np.testing.assert_array_equal(again.centroids, version.centroids)
        np.testing.assert_array_equal(again.transform.weights, version.transform.weights)
        np.testing.assert_array_equal(again.transform.layer_mask, version.transform.layer_mask)

    def test_order_of_metrics_does_not_change_the_bytes(self) -> None:
        metrics = (("rho", 0.75), ("rho_by_layer_count", (0.5, 0.75, 0.7)))
        assert to_bytes(build(metrics=metrics)) == to_bytes(build(metrics=metrics[::-1]))

    def test_layout_is_the_documented_one(self, tmp_path: Path) -> None:
        path = tmp_path / "version.safetensors"
        save_version(build(), path)
        with safe_open(path, framework="numpy") as file:
            assert sorted(file.keys()) == ["centroids", "idf", "layer_mask", "mean_use"]
            assert list(file.metadata()) == ["eldr"]
            metadata = json.loads(file.metadata()["eldr"])
        assert metadata["created_at"] == "2026-01-02T12:00:00.250000Z"
        assert metadata["content_hash"] == build().content_hash
        assert list(tmp_path.iterdir()) == [path]

    def test_round_trip_through_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "version.safetensors"
        save_version(build(), path)
        assert load_version(path, expected_shape=SHAPE).content_hash == build().content_hash

    def test_a_failed_write_leaves_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "version").mkdir()
        with pytest.raises(OSError, match="version"):
            save_version(build(), tmp_path / "version")
        assert [path.name for path in tmp_path.iterdir()] == ["version"]


class TestRefusals:
    @pytest.mark.parametrize("n_bytes", [0, 5, 8, 100, -1])
    def test_truncated(self, n_bytes: int) -> None:
        with pytest.raises(UnreadableFile):
            from_bytes(to_bytes(build())[:n_bytes])

    @pytest.mark.parametrize("data", [b"PK\x03\x04" + bytes(100), bytes(64), b"\x02" + bytes(7) + b"[]"])
    def test_not_safetensors(self, data: bytes) -> None:
        with pytest.raises(UnreadableFile):
            from_bytes(data)

    def test_other_safetensors(self) -> None:
        with pytest.raises(UnreadableFile, match="not a centroid version"):
            from_bytes(save({"x": np.zeros(1)}, {"format": "pt"}))

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableFile, match="No such file"):
            load_version(tmp_path / "absent")
        with pytest.raises(UnreadableFile, match="null byte"):
            load_version(tmp_path / "a\0b")

    def test_other_model(self) -> None:
        other = ModelShape(model="other", n_layers=3, n_experts=4, top_k=2)
        with pytest.raises(ModelMismatch, match=r"model='tiny'.*model='other'"):
            from_bytes(to_bytes(build()), expected_shape=other)

    def test_other_hash_expected(self) -> None:
        with pytest.raises(HashMismatch, match="the caller says"):
            from_bytes(to_bytes(build()), expected_hash="0" * 64)

    def test_changed_tensor(self) -> None:
        data = bytearray(to_bytes(build()))
        offset = data.rfind(np.float32(0.5).tobytes())
        data[offset : offset + 4] = np.float32(0.25).tobytes()
        with pytest.raises(HashMismatch, match="the file says"):
            from_bytes(bytes(data))

    def test_changed_metadata(self) -> None:
        with pytest.raises(HashMismatch, match="the file says"):
            from_bytes(rewritten(to_bytes(build()), seed=77))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"format": 2}, "format is 2; must be 1"),
            ({"seed": "1"}, "seed is '1'; must be an integer"),
            ({"seed": True}, "seed is True; must be an integer"),
            ({"model": 3}, "model is 3; must be a string"),
            ({"origin": "luck"}, "origin is 'luck'; must be one of calibration"),
            ({"created_at": "noon"}, "created_at is 'noon'"),
            ({"created_at": "2026-01-02T12:00:00"}, "created_at is .*; must be a time in UTC"),
            ({"metrics": {"rho": "high"}}, "metrics.rho is 'high'"),
            ({"metrics": {"rho": 10**400}}, "metrics.rho is 'above any float'; must be a number"),
            ({"metrics": {"rho": [1, True]}}, "metrics.rho is"),
            ({"metrics": [1]}, r"metrics is \[1\]; must be an object"),
        ],
    )
    def test_wrong_metadata_is_named(self, changes: dict[str, object], message: str) -> None:
        with pytest.raises(InvalidVersion, match=message):
            from_bytes(rewritten(to_bytes(build()), **changes))

    def test_missing_tensor(self) -> None:
        data = to_bytes(build())
        tensors = load(data)
        del tensors["idf"]
        length = int.from_bytes(data[:8], "little")
        with pytest.raises(InvalidVersion, match="complete: centroids, idf, layer_mask, mean_use"):
            from_bytes(save(tensors, json.loads(data[8 : 8 + length])["__metadata__"]))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"centroids": np.full((2, 8), np.nan, dtype=np.float32)}, "centroids is 'NaN or infinite'"),
            ({"centroids": np.ones((2, 8), dtype=np.float32)}, r"norm of centroids\[0\] is 2.828"),
            (
                {"centroids": np.full((2, 8), 3e38, dtype=np.float32)},
                r"norm of centroids\[0\] is 8.48.*e\+38",
            ),
            ({"centroids": np.eye(2, 7, dtype=np.float32)}, r"centroids is 'float32 \(2, 7\)'; must be .*8"),
            ({"centroids": np.eye(2, 8)}, "centroids is 'float64"),
            ({"centroids": np.zeros((0, 8), dtype=np.float32)}, "centroids is"),
            ({"mean_use": np.full((3, 4), -0.5, dtype=np.float32)}, "mean_use is -0.5; must be from 0 to 1"),
            ({"mean_use": np.full((3, 4), 1.5, dtype=np.float32)}, "mean_use is 1.5"),
            ({"mean_use": np.full((3, 3), 0.5, dtype=np.float32)}, "mean_use is"),
            ({"n_requests": 0}, "n_requests is 0"),
            ({"parent_hash": "abc"}, "parent_hash is 'abc'"),
            ({"created_at": NOON.replace(tzinfo=None)}, "created_at"),
            ({"created_at": NOON.astimezone(timezone(timedelta(hours=1)))}, "created_at"),
            ({"metrics": (("rho", float("nan")),)}, "metrics.rho is nan; must be finite"),
            ({"metrics": (("rho", 1.0), ("rho", 2.0))}, "metrics is"),
            ({"shape": ModelShape(model="tiny", n_layers=2, n_experts=4, top_k=2)}, "idf shape is"),
        ],
    )
    def test_wrong_values_are_named(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidVersion, match=message):
            build(**changes)
