"""Experiments, metric blobs and their roll-ups, sampled requests, drift checks."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from controlplane.storage.models.metadata import HASH_LENGTH, ID_LENGTH, NAME_LENGTH, Table, UtcDateTime


class ExperimentRow(Table):
    """One switchback; `effects` is JSON text, written when it ends."""

    __tablename__ = "experiments"
    __table_args__ = (Index(None, "fleet", "state"),)

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"))
    state: Mapped[str] = mapped_column(String(16))
    treatment_policy: Mapped[str] = mapped_column(String(64))
    treatment_tau: Mapped[float]
    treatment_load_cap: Mapped[float | None]
    treatment_version_id: Mapped[str | None] = mapped_column(ForeignKey("versions.id"))
    control_policy: Mapped[str] = mapped_column(String(64))
    n_pairs: Mapped[int]
    window_seconds: Mapped[int]
    washout_seconds: Mapped[int]
    seed: Mapped[int]
    starts_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ends_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    actor: Mapped[str] = mapped_column(String(NAME_LENGTH))
    reason: Mapped[str] = mapped_column(Text)
    effects: Mapped[str | None] = mapped_column(Text)


class MetricBlobRow(Table):
    """One aggregate as a router sent it; its key makes a second arrival a duplicate."""

    __tablename__ = "metric_blobs"
    __table_args__ = (
        UniqueConstraint(
            "fleet",
            "router_id",
            "window_start",
            "experiment_window",
            "sequence",
            name="uq_metric_blobs_source",
        ),
        Index(None, "fleet", "is_rolled_up", "window_start"),
    )

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"))
    router_id: Mapped[str] = mapped_column(String(NAME_LENGTH))
    window_start: Mapped[datetime] = mapped_column(UtcDateTime)
    experiment_window: Mapped[int]
    sequence: Mapped[int]
    data: Mapped[bytes] = mapped_column(LargeBinary)
    received_at: Mapped[datetime] = mapped_column(UtcDateTime)
    is_rolled_up: Mapped[bool]


class MetricRow(Table):
    """One roll-up window of one series: a worker's or a cluster's requests under one version and arm.

    `subject_kind` is `worker` or `cluster`; histograms are hdrhistogram's base64, per-layer sums JSON text.
    `experiment_window` is -1 outside an experiment and `version_number` 0 without a version, so that the
    key has no NULL in it, which would make every row unique.
    """

    __tablename__ = "metric_rows"
    __table_args__ = (
        UniqueConstraint(
            "fleet", "window_seconds", "window_start", "subject_kind", "subject", "arm", "version_number",
            "experiment_id", "experiment_window", "is_washout", name="uq_metric_rows_series",
        ),
        Index(None, "fleet", "experiment_id"),
    )  # fmt: skip

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"))
    window_seconds: Mapped[int]
    window_start: Mapped[datetime] = mapped_column(UtcDateTime)
    subject_kind: Mapped[str] = mapped_column(String(16))
    subject: Mapped[str] = mapped_column(String(NAME_LENGTH))
    arm: Mapped[str] = mapped_column(String(64))
    version_number: Mapped[int]
    experiment_id: Mapped[str] = mapped_column(String(ID_LENGTH))
    experiment_window: Mapped[int]
    is_washout: Mapped[bool]
    n_requests: Mapped[int]
    n_errors: Mapped[int]
    n_without_signature: Mapped[int]
    prompt_tokens: Mapped[int] = mapped_column(BigInteger)
    output_tokens: Mapped[int] = mapped_column(BigInteger)
    band_size_sum: Mapped[float]
    n_bands: Mapped[int]
    n_steps: Mapped[int]
    batch_sum: Mapped[float]
    active_experts_sum: Mapped[str] = mapped_column(Text)
    tpot_histogram: Mapped[str] = mapped_column(Text)
    ttft_histogram: Mapped[str] = mapped_column(Text)


class SampleRow(Table):
    """One sampled request: its decision as JSON text, and its expert counts, zlib-compressed."""

    __tablename__ = "samples"
    __table_args__ = (UniqueConstraint("fleet", "request_id"), Index(None, "fleet", "at"))

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"))
    request_id: Mapped[str] = mapped_column(String(NAME_LENGTH))
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    arm: Mapped[str] = mapped_column(String(64))
    version_hash: Mapped[str | None] = mapped_column(String(HASH_LENGTH))
    version_number: Mapped[int | None]
    decode_worker: Mapped[str] = mapped_column(String(NAME_LENGTH))
    cluster: Mapped[int | None]
    similarity: Mapped[float | None]
    label: Mapped[str | None] = mapped_column(String(NAME_LENGTH))
    decision: Mapped[str] = mapped_column(Text)
    prompt_tokens: Mapped[int]
    covered_tokens: Mapped[int]
    prefill_counts: Mapped[bytes | None] = mapped_column(LargeBinary)
    decode_steps: Mapped[int | None]
    decode_counts: Mapped[bytes | None] = mapped_column(LargeBinary)


class DriftCheckRow(Table):
    """One drift check; `measures` and the occupancies are JSON text."""

    __tablename__ = "drift_checks"
    __table_args__ = (Index(None, "fleet", "at"),)

    id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    fleet: Mapped[str] = mapped_column(ForeignKey("fleets.name"))
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    version_id: Mapped[str] = mapped_column(ForeignKey("versions.id"))
    window_seconds: Mapped[float]
    measures: Mapped[str] = mapped_column(Text)
    refit_decision: Mapped[str] = mapped_column(Text)
    occupancy: Mapped[str] = mapped_column(Text)
    reference_occupancy: Mapped[str] = mapped_column(Text)
