"""The locks that tags name, and named.

Revision 0008. It only adds: the release before it works on this schema, and does not know tags.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the migration."""
    op.create_table(
        "lock_revisions",
        sa.Column("lock", Serial, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("artifacts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(100), nullable=False),
        sa.Column("repeats", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["lock"], ["locks.seq"], name="fk_lock_revisions_lock_locks", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("lock", "number", name="pk_lock_revisions"),
    )


def downgrade() -> None:
    """Take the migration back."""
    op.drop_table("lock_revisions")
    op.execute("DELETE FROM locks WHERE name LIKE 'tag:%'")
