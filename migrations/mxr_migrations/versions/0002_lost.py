"""Which bytes the store has lost, the program that used a token last, and which releases work on a schema.

Revision 0002. It only adds columns that may be absent from an INSERT: the release before it works on this schema.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

COLUMNS: tuple[tuple[str, str, Any, str | None], ...] = (
    ("blobs", "lost_at", sa.Double(), None),
    ("artifacts", "lost_at", sa.Double(), None),
    ("tokens", "used_with", sa.String(100), None),
    ("registry", "compatible", sa.String(4), "0001"),
)


def upgrade() -> None:
    """Apply the migration."""
    for table, name, kind, default in COLUMNS:
        op.add_column(table, sa.Column(name, kind, nullable=default is None, server_default=default))


def downgrade() -> None:
    """Take the migration back."""
    for table, name, *_ in COLUMNS:
        with op.batch_alter_table(table) as altered:
            altered.drop_column(name)
