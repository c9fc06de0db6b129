"""What the clients that missed call the model.

Revision 0004. It only adds: the release before it, whose INSERT leaves the new column out, works on this schema.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Apply the migration."""
    op.add_column(
        "misses", sa.Column("called", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=True)
    )


def downgrade() -> None:
    """Take the migration back."""
    with op.batch_alter_table("misses") as altered:
        altered.drop_column("called")
