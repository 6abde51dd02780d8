"""Trace packs, calibration runs, centroid versions, activations, routing settings."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_trace_packs()
    _create_trace_pack_blobs()
    _create_calibration_runs()
    _create_calibration_reports()
    _create_artifacts()
    _create_versions()
    _create_activations()
    _create_settings_revisions()


def downgrade() -> None:
    op.drop_table("settings_revisions")
    op.drop_table("activations")
    op.drop_table("versions")
    op.drop_table("artifacts")
    op.drop_table("calibration_reports")
    op.drop_table("calibration_runs")
    op.drop_table("trace_pack_blobs")
    op.drop_table("trace_packs")


def _create_trace_packs() -> None:
    op.create_table(
        "trace_packs",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("origin", sa.String(32), nullable=False),
        sa.Column("n_requests", sa.Integer(), nullable=False),
        sa.Column("has_decode", sa.Boolean(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_trace_packs"),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_trace_packs_fleet_fleets"),
        sa.UniqueConstraint("fleet", "content_hash", name="uq_trace_packs_fleet_content_hash"),
    )


def _create_trace_pack_blobs() -> None:
    op.create_table(
        "trace_pack_blobs",
        sa.Column("trace_pack_id", sa.String(32), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("trace_pack_id", name="pk_trace_pack_blobs"),
        sa.ForeignKeyConstraint(
            ["trace_pack_id"], ["trace_packs.id"], name="fk_trace_pack_blobs_trace_pack_id_trace_packs"
        ),
    )


def _create_calibration_runs() -> None:
    op.create_table(
        "calibration_runs",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("stage", sa.String(32), nullable=True),
        sa.Column("progress_share", sa.Double(), nullable=False),
        sa.Column("origin", sa.String(32), nullable=False),
        sa.Column("trace_pack_id", sa.String(32), nullable=True),
        sa.Column("n_live_requests", sa.Integer(), nullable=True),
        sa.Column("live_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("n_clusters", sa.Integer(), nullable=False),
        sa.Column("transform", sa.String(32), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("version_id", sa.String(32), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("n_attempts", sa.Integer(), nullable=False),
        sa.Column("is_cancel_requested", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_calibration_runs"),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_calibration_runs_fleet_fleets"),
        sa.ForeignKeyConstraint(
            ["trace_pack_id"], ["trace_packs.id"], name="fk_calibration_runs_trace_pack_id_trace_packs"
        ),
    )
    op.create_index(
        "ix_calibration_runs_fleet_created_at", "calibration_runs", ["fleet", "created_at"], unique=False
    )
    op.create_index("ix_calibration_runs_state", "calibration_runs", ["state"], unique=False)


def _create_calibration_reports() -> None:
    op.create_table(
        "calibration_reports",
        sa.Column("calibration_run_id", sa.String(32), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("calibration_run_id", name="pk_calibration_reports"),
        sa.ForeignKeyConstraint(
            ["calibration_run_id"],
            ["calibration_runs.id"],
            name="fk_calibration_reports_calibration_run_id_calibration_runs",
        ),
    )


def _create_artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("content_hash", name="pk_artifacts"),
    )


def _create_versions() -> None:
    op.create_table(
        "versions",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("parent_hash", sa.String(64), nullable=True),
        sa.Column("origin", sa.String(32), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("transform", sa.String(32), nullable=False),
        sa.Column("n_centroids", sa.Integer(), nullable=False),
        sa.Column("n_layers_kept", sa.Integer(), nullable=False),
        sa.Column("n_requests", sa.Integer(), nullable=False),
        sa.Column("held_out_percent", sa.Double(), nullable=True),
        sa.Column("rho", sa.Double(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("calibration_run_id", sa.String(32), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_versions"),
        sa.ForeignKeyConstraint(
            ["calibration_run_id"],
            ["calibration_runs.id"],
            name="fk_versions_calibration_run_id_calibration_runs",
        ),
        sa.ForeignKeyConstraint(
            ["content_hash"], ["artifacts.content_hash"], name="fk_versions_content_hash_artifacts"
        ),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_versions_fleet_fleets"),
        sa.UniqueConstraint("fleet", "number", name="uq_versions_fleet_number"),
        sa.UniqueConstraint("fleet", "content_hash", name="uq_versions_fleet_content_hash"),
    )
    op.create_index(
        "uq_versions_active",
        "versions",
        ["fleet"],
        unique=True,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )


def _create_activations() -> None:
    op.create_table(
        "activations",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("version_id", sa.String(32), nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("is_override", sa.Boolean(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_activations"),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_activations_fleet_fleets"),
        sa.ForeignKeyConstraint(["version_id"], ["versions.id"], name="fk_activations_version_id_versions"),
    )
    op.create_index("ix_activations_fleet_at", "activations", ["fleet", "at"], unique=False)
    op.create_index(
        "uq_activations_open",
        "activations",
        ["fleet"],
        unique=True,
        sqlite_where=sa.text("until IS NULL"),
        postgresql_where=sa.text("until IS NULL"),
    )


def _create_settings_revisions() -> None:
    op.create_table(
        "settings_revisions",
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("policy", sa.String(64), nullable=False),
        sa.Column("tau", sa.Double(), nullable=False),
        sa.Column("load_cap", sa.Double(), nullable=True),
        sa.Column("control_share", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_by", sa.String(128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("revert_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revert_to", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("fleet", "revision", name="pk_settings_revisions"),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_settings_revisions_fleet_fleets"),
    )
    op.create_index("ix_settings_revisions_revert_at", "settings_revisions", ["revert_at"], unique=False)
