"""Add the description and graph digest of a model's ONNX file, and the time when a worker signed off.

Revision 0003, follows 0002.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

GRAPH = "ix_models_namespace_graph_seq"


def upgrade() -> None:
    """Apply the migration."""
    op.add_column("models", sa.Column("graph", sa.String(64), nullable=True))
    op.add_column("models", sa.Column("told_json", sa.Text(), nullable=True))
    op.create_index(GRAPH, "models", ["namespace", "graph", "seq"])
    op.add_column("workers", sa.Column("left_at", sa.Double(), nullable=True))


def downgrade() -> None:
    """Revert the migration."""
    op.drop_column("workers", "left_at")
    op.drop_index(GRAPH, "models")
    op.drop_column("models", "told_json")
    op.drop_column("models", "graph")
