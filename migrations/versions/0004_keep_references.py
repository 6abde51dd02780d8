"""References that live traffic is compared with, and the signs of life of running calibrations."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "version_references",
        sa.Column("version_id", sa.String(32), nullable=False),
        sa.Column("projection", sa.LargeBinary(), nullable=True),
        sa.Column("drift", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("version_id", name="pk_version_references"),
        sa.ForeignKeyConstraint(
            ["version_id"], ["versions.id"], name="fk_version_references_version_id_versions"
        ),
    )
    with op.batch_alter_table("calibration_runs") as batch:
        batch.add_column(sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("calibration_runs") as batch:
        batch.drop_column("heartbeat_at")
    op.drop_table("version_references")
