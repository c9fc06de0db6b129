"""Add tables for registered locks and the artifacts that they pin.

Revision 0004, follows 0003.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the migration."""
    op.create_table(
        "locks",
        sa.Column("seq", SERIAL, nullable=False),
        sa.Column("namespace", sa.String(100), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_locks"),
        sa.UniqueConstraint("namespace", "name", name="uq_locks_namespace_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "lock_artifacts",
        sa.Column("lock", SERIAL, nullable=False),
        sa.Column("artifact", SERIAL, nullable=False),
        sa.PrimaryKeyConstraint("lock", "artifact", name="pk_lock_artifacts"),
        sa.ForeignKeyConstraint(["lock"], ["locks.seq"], name="fk_lock_artifacts_lock_locks", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["artifact"], ["artifacts.seq"], name="fk_lock_artifacts_artifact_artifacts"),
    )
    op.create_index("ix_lock_artifacts_artifact", "lock_artifacts", ["artifact"])


def downgrade() -> None:
    """Revert the migration."""
    op.drop_table("lock_artifacts")
    op.drop_table("locks")
