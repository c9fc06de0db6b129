"""What a model is called where ONNX Runtime opens it, for jobs that record its files.

Revision 0006, after 0005.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """One step forward."""
    op.add_column("jobs", sa.Column("file_name", sa.Text(), nullable=True))


def downgrade() -> None:
    """One step back."""
    op.drop_column("jobs", "file_name")
