"""Make room for the identity of a model: `sha256:` and 64 hex digits.

Revision 0009, follows 0008.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

TABLES = ("models", "artifacts", "jobs")


def upgrade() -> None:
    """Apply the migration."""
    _resize(37, 71)


def downgrade() -> None:
    """Revert the migration."""
    _resize(71, 37)


def _resize(old: int, new: int) -> None:
    # SQLite does not enforce the length of a VARCHAR.
    if op.get_bind().dialect.name != "sqlite":
        for table in TABLES:
            op.alter_column(table, "model", existing_type=sa.String(old), type_=sa.String(new), nullable=False)
