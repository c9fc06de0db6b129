"""What was yanked or quarantined, and the number of the last change of that list in each namespace.

Revision 0006. It only adds: the release before it, whose INSERT leaves the new columns out, works on this schema.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Apply the migration."""
    op.create_table(
        "recalls",
        sa.Column("namespace", sa.String(100), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("recall_json", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "id", name="pk_recalls"),
    )
    op.add_column("artifacts", sa.Column("recall_json", sa.Text(), nullable=True))
    op.add_column("namespaces", sa.Column("recall_sequence", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Take the migration back."""
    for table, name in (("namespaces", "recall_sequence"), ("artifacts", "recall_json")):
        with op.batch_alter_table(table) as altered:
            altered.drop_column(name)
    op.drop_table("recalls")
