"""The keys of workers.

Revision 0009. It only adds. The release before it takes a key of a worker for one of the registry: enroll none before
all registries of the database run this one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Apply the migration."""
    op.add_column("signing_keys", sa.Column("role", sa.String(10), server_default="registry", nullable=False))
    op.add_column("signing_keys", sa.Column("name", sa.String(100), nullable=True))


def downgrade() -> None:
    """Take the migration back."""
    op.execute("DELETE FROM signing_keys WHERE role <> 'registry'")
    op.drop_column("signing_keys", "name")
    op.drop_column("signing_keys", "role")
