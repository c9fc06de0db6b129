"""What a model's ONNX file says of itself, with the digest of its graph; when a worker left.

Revision 0003, after 0002.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

GRAPH = "ix_models_namespace_graph_seq"


def upgrade() -> None:
    """One step forward."""
    op.add_column("models", sa.Column("graph", sa.String(64), nullable=True))
    op.add_column("models", sa.Column("told_json", sa.Text(), nullable=True))
    op.create_index(GRAPH, "models", ["namespace", "graph", "seq"])
    op.add_column("workers", sa.Column("left_at", sa.Double(), nullable=True))


def downgrade() -> None:
    """One step back."""
    op.drop_column("workers", "left_at")
    op.drop_index(GRAPH, "models")
    op.drop_column("models", "told_json")
    op.drop_column("models", "graph")
