"""Add daily use counts of artifacts and the time of the last use, for precompile plans and for sweeps.

Revision 0005, follows 0004.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the migration."""
    op.create_table(
        "uses",
        sa.Column("artifact", SERIAL, nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("artifact", "day", name="pk_uses"),
        sa.ForeignKeyConstraint(["artifact"], ["artifacts.seq"], name="fk_uses_artifact_artifacts", ondelete="CASCADE"),
    )
    op.create_index("ix_uses_day", "uses", ["day"])
    op.add_column("artifacts", sa.Column("used_at", sa.Double(), nullable=False, server_default="0"))
    op.execute("UPDATE artifacts SET used_at = published_at")
    op.create_index("ix_artifacts_namespace_used_at", "artifacts", ["namespace", "used_at"])


def downgrade() -> None:
    """Revert the migration."""
    op.drop_index("ix_artifacts_namespace_used_at", "artifacts")
    op.drop_column("artifacts", "used_at")
    op.drop_table("uses")
