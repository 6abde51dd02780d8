"""The latency model that a fleet's step times are predicted by."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("fleets") as batch:
        batch.add_column(sa.Column("latency_preset", sa.String(128), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("fleets") as batch:
        batch.drop_column("latency_preset")
