"""Statements that somebody brought.

Revision 0010. It only adds: the release before it works on this schema, and shows them like its own.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Apply the migration."""
    op.add_column("statements", sa.Column("imported", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("statements", sa.Column("bundle_json", sa.Text(), nullable=True))


def downgrade() -> None:
    """Take the migration back."""
    op.execute("DELETE FROM statements WHERE imported")
    op.drop_column("statements", "bundle_json")
    op.drop_column("statements", "imported")
