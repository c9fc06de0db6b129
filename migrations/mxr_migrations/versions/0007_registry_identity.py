"""Add the table with the identity of the registry, a random UUID.

Revision 0007, follows 0006.
"""

from __future__ import annotations

from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Apply the migration."""
    op.create_table(
        "registry",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_registry"),
    )
    op.execute(f"INSERT INTO registry (number, uuid) VALUES (1, '{uuid4()}')")


def downgrade() -> None:
    """Revert the migration."""
    op.drop_table("registry")
