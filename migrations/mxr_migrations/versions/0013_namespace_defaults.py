"""Add the request defaults of a namespace.

Revision 0013, follows 0012.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Apply the migration."""
    op.add_column("namespaces", sa.Column("defaults_json", sa.String(1000), nullable=True))


def downgrade() -> None:
    """Revert the migration."""
    op.drop_column("namespaces", "defaults_json")
