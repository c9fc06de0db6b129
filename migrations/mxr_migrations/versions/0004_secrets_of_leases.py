"""Workers and leases are known by secrets, of which the database has the sha256; and what hosts call what they missed.

Revision 0004. It only adds: the release before it, whose INSERT leaves the new columns out, works on this schema.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

COLUMNS: tuple[tuple[str, str, Any], ...] = (
    ("misses", "called", sa.Text().with_variant(sa.Text(collation="C"), "postgresql")),
    ("workers", "credential", sa.String(64)),
    ("jobs", "lease", sa.String(64)),
    ("jobs", "refused_by", sa.String(32)),
)


def upgrade() -> None:
    """Apply the migration."""
    for table, name, kind in COLUMNS:
        op.add_column(table, sa.Column(name, kind, nullable=True))
    op.create_index("ix_workers_namespace_credential", "workers", ["namespace", "credential"])


def downgrade() -> None:
    """Take the migration back."""
    op.drop_index("ix_workers_namespace_credential", "workers")
    for table, name, _ in COLUMNS:
        with op.batch_alter_table(table) as altered:
            altered.drop_column(name)
