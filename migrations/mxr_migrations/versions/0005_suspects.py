"""A job whose compile crashed knows the host on which it did.

Revision 0005. It only adds: the release before it, whose INSERT leaves the new column out, works on this schema.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Apply the migration."""
    op.add_column("jobs", sa.Column("suspect", sa.String(200), nullable=True))


def downgrade() -> None:
    """Take the migration back."""
    with op.batch_alter_table("jobs") as altered:
        altered.drop_column("suspect")
