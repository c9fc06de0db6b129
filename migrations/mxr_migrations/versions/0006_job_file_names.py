"""Add the file name of the model to jobs that record ONNX Runtime's cache files.

Revision 0006, follows 0005.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Apply the migration."""
    op.add_column("jobs", sa.Column("file_name", sa.Text(), nullable=True))


def downgrade() -> None:
    """Revert the migration."""
    op.drop_column("jobs", "file_name")
