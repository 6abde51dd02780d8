"""Experiments, metrics, samples, drift checks, alerts."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_experiments()
    _create_metric_blobs()
    _create_metric_rows()
    _create_samples()
    _create_drift_checks()
    _create_alerts()


def downgrade() -> None:
    op.drop_table("alerts")
    op.drop_table("drift_checks")
    op.drop_table("samples")
    op.drop_table("metric_rows")
    op.drop_table("metric_blobs")
    op.drop_table("experiments")


def _create_experiments() -> None:
    op.create_table(
        "experiments",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("treatment_policy", sa.String(64), nullable=False),
        sa.Column("treatment_tau", sa.Double(), nullable=False),
        sa.Column("treatment_load_cap", sa.Double(), nullable=True),
        sa.Column("treatment_version_id", sa.String(32), nullable=True),
        sa.Column("control_policy", sa.String(64), nullable=False),
        sa.Column("n_pairs", sa.Integer(), nullable=False),
        sa.Column("window_seconds", sa.Integer(), nullable=False),
        sa.Column("washout_seconds", sa.Integer(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("effects", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_experiments"),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_experiments_fleet_fleets"),
        sa.ForeignKeyConstraint(
            ["treatment_version_id"], ["versions.id"], name="fk_experiments_treatment_version_id_versions"
        ),
    )
    op.create_index("ix_experiments_fleet_state", "experiments", ["fleet", "state"], unique=False)


def _create_metric_blobs() -> None:
    op.create_table(
        "metric_blobs",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("router_id", sa.String(128), nullable=False),
        sa.Column("window_start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("experiment_window", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("is_rolled_up", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_metric_blobs"),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_metric_blobs_fleet_fleets"),
        sa.UniqueConstraint(
            "fleet",
            "router_id",
            "window_start",
            "experiment_window",
            "sequence",
            name="uq_metric_blobs_source",
        ),
    )
    op.create_index(
        "ix_metric_blobs_fleet_is_rolled_up_window_start",
        "metric_blobs",
        ["fleet", "is_rolled_up", "window_start"],
        unique=False,
    )


def _create_metric_rows() -> None:
    op.create_table(
        "metric_rows",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("window_seconds", sa.Integer(), nullable=False),
        sa.Column("window_start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("subject_kind", sa.String(16), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("arm", sa.String(64), nullable=False),
        sa.Column("version_number", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.String(32), nullable=False),
        sa.Column("experiment_window", sa.Integer(), nullable=False),
        sa.Column("is_washout", sa.Boolean(), nullable=False),
        sa.Column("n_requests", sa.Integer(), nullable=False),
        sa.Column("n_errors", sa.Integer(), nullable=False),
        sa.Column("n_without_signature", sa.Integer(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("band_size_sum", sa.Double(), nullable=False),
        sa.Column("n_bands", sa.Integer(), nullable=False),
        sa.Column("n_steps", sa.Integer(), nullable=False),
        sa.Column("batch_sum", sa.Double(), nullable=False),
        sa.Column("active_experts_sum", sa.Text(), nullable=False),
        sa.Column("tpot_histogram", sa.Text(), nullable=False),
        sa.Column("ttft_histogram", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_metric_rows"),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_metric_rows_fleet_fleets"),
        sa.UniqueConstraint(
            "fleet",
            "window_seconds",
            "window_start",
            "subject_kind",
            "subject",
            "arm",
            "version_number",
            "experiment_id",
            "experiment_window",
            "is_washout",
            name="uq_metric_rows_series",
        ),
    )
    op.create_index(
        "ix_metric_rows_fleet_experiment_id", "metric_rows", ["fleet", "experiment_id"], unique=False
    )


def _create_samples() -> None:
    op.create_table(
        "samples",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("arm", sa.String(64), nullable=False),
        sa.Column("version_hash", sa.String(64), nullable=True),
        sa.Column("version_number", sa.Integer(), nullable=True),
        sa.Column("decode_worker", sa.String(128), nullable=False),
        sa.Column("cluster", sa.Integer(), nullable=True),
        sa.Column("similarity", sa.Double(), nullable=True),
        sa.Column("label", sa.String(128), nullable=True),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("covered_tokens", sa.Integer(), nullable=False),
        sa.Column("prefill_counts", sa.LargeBinary(), nullable=True),
        sa.Column("decode_steps", sa.Integer(), nullable=True),
        sa.Column("decode_counts", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_samples"),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_samples_fleet_fleets"),
        sa.UniqueConstraint("fleet", "request_id", name="uq_samples_fleet_request_id"),
    )
    op.create_index("ix_samples_fleet_at", "samples", ["fleet", "at"], unique=False)


def _create_drift_checks() -> None:
    op.create_table(
        "drift_checks",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version_id", sa.String(32), nullable=False),
        sa.Column("window_seconds", sa.Double(), nullable=False),
        sa.Column("measures", sa.Text(), nullable=False),
        sa.Column("refit_decision", sa.Text(), nullable=False),
        sa.Column("occupancy", sa.Text(), nullable=False),
        sa.Column("reference_occupancy", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_drift_checks"),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_drift_checks_fleet_fleets"),
        sa.ForeignKeyConstraint(["version_id"], ["versions.id"], name="fk_drift_checks_version_id_versions"),
    )
    op.create_index("ix_drift_checks_fleet_at", "drift_checks", ["fleet", "at"], unique=False)


def _create_alerts() -> None:
    op.create_table(
        "alerts",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("rule", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("resolution", sa.Integer(), nullable=False),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("threshold", sa.Double(), nullable=True),
        sa.Column("n", sa.Integer(), nullable=True),
        sa.Column("n_breaches", sa.Integer(), nullable=False),
        sa.Column("n_clear", sa.Integer(), nullable=False),
        sa.Column("runbook", sa.String(256), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("fired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("acknowledged_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("acknowledged_by", sa.String(128), nullable=True),
        sa.Column("silenced_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("silenced_by", sa.String(128), nullable=True),
        sa.Column("notified_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_alerts"),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_alerts_fleet_fleets"),
        sa.UniqueConstraint(
            "fleet", "fingerprint", "resolution", name="uq_alerts_fleet_fingerprint_resolution"
        ),
    )
    op.create_index("ix_alerts_fleet_state", "alerts", ["fleet", "state"], unique=False)
