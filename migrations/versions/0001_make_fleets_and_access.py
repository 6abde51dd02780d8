"""Fleets with their workers and routers; API keys, audit, idempotency keys, leases."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_fleets()
    _create_routing_generations()
    _create_workers()
    _create_routers()
    _create_api_keys()
    _create_audit_events()
    _create_idempotency_keys()
    _create_leases()
    _make_audit_append_only()


def downgrade() -> None:
    _let_audit_be_changed()
    op.drop_table("leases")
    op.drop_table("idempotency_keys")
    op.drop_table("audit_events")
    op.drop_table("api_keys")
    op.drop_table("routers")
    op.drop_table("workers")
    op.drop_table("routing_generations")
    op.drop_table("fleets")


def _create_fleets() -> None:
    op.create_table(
        "fleets",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("model", sa.String(256), nullable=False),
        sa.Column("n_layers", sa.Integer(), nullable=False),
        sa.Column("n_experts", sa.Integer(), nullable=False),
        sa.Column("top_k", sa.Integer(), nullable=False),
        sa.Column("gpu", sa.String(128), nullable=False),
        sa.Column("kv_block_size_tokens", sa.Integer(), nullable=False),
        sa.Column("decode_profile_share", sa.Double(), nullable=False),
        sa.Column("signature_sample_share", sa.Double(), nullable=False),
        sa.Column("metrics_window_seconds", sa.Double(), nullable=False),
        sa.Column("retention_days", sa.Integer(), nullable=False),
        sa.Column("is_simulated", sa.Boolean(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_fleets"),
    )


def _create_routing_generations() -> None:
    op.create_table(
        "routing_generations",
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cause", sa.String(256), nullable=False),
        sa.PrimaryKeyConstraint("fleet", "generation", name="pk_routing_generations"),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_routing_generations_fleet_fleets"),
    )


def _create_workers() -> None:
    op.create_table(
        "workers",
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("worker_id", sa.String(128), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("url", sa.String(512), nullable=False),
        sa.Column("engine", sa.String(64), nullable=False),
        sa.Column("engine_version", sa.String(64), nullable=False),
        sa.Column("plugin_version", sa.String(64), nullable=True),
        sa.Column("model", sa.String(256), nullable=False),
        sa.Column("kv_connector", sa.String(64), nullable=True),
        sa.Column("transfer_mode", sa.String(16), nullable=True),
        sa.Column("self_test", sa.String(16), nullable=False),
        sa.Column("reported_state", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("is_drained", sa.Boolean(), nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("fleet", "worker_id", name="pk_workers"),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_workers_fleet_fleets"),
    )
    op.create_index("ix_workers_lease_expires_at", "workers", ["lease_expires_at"], unique=False)


def _create_routers() -> None:
    op.create_table(
        "routers",
        sa.Column("fleet", sa.String(128), nullable=False),
        sa.Column("router_id", sa.String(128), nullable=False),
        sa.Column("url", sa.String(512), nullable=True),
        sa.Column("generation_applied", sa.Integer(), nullable=True),
        sa.Column("config_source", sa.String(32), nullable=False),
        sa.Column("in_flight", sa.JSON(), nullable=False),
        sa.Column("dropped_events", sa.Integer(), nullable=False),
        sa.Column("versions", sa.JSON(), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("fleet", "router_id", name="pk_routers"),
        sa.ForeignKeyConstraint(["fleet"], ["fleets.name"], name="fk_routers_fleet_fleets"),
    )


def _create_api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
    )


def _create_audit_events() -> None:
    op.create_table(
        "audit_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("fleet", sa.String(128), nullable=True),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("resource", sa.String(64), nullable=False),
        sa.Column("resource_id", sa.String(256), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_audit_events"),
    )
    op.create_index("ix_audit_events_fleet_at", "audit_events", ["fleet", "at"], unique=False)


def _create_idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("api_key_id", sa.String(32), nullable=False),
        sa.Column("key", sa.String(256), nullable=False),
        sa.Column("request_hash", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("headers", sa.JSON(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("api_key_id", "key", name="pk_idempotency_keys"),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"], unique=False)


def _create_leases() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("holder", sa.String(128), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )


def _make_audit_append_only() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_events_no_{verb.lower()} BEFORE {verb} ON audit_events "
                "BEGIN SELECT RAISE(ABORT, 'audit events are append-only'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'audit events are append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_events "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()"
    )


def _let_audit_be_changed() -> None:
    if op.get_bind().dialect.name == "sqlite":
        return  # dropping the table drops its triggers
    op.execute("DROP TRIGGER audit_events_append_only ON audit_events")
    op.execute("DROP FUNCTION refuse_audit_change()")
