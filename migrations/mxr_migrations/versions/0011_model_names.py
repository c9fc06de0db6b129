"""Add the name of the model to artifacts: what the publisher calls it, or the name with which it was registered.

PostgreSQL compares these names by code points from now on, as SQLite does, so that an index finds a prefix.

Revision 0011, follows 0010.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
REGISTERED = "SELECT m.name FROM models m WHERE m.namespace = artifacts.namespace AND m.model = artifacts.model"


def upgrade() -> None:
    """Apply the migration."""
    postgresql = op.get_bind().dialect.name == "postgresql"
    if postgresql:
        op.alter_column("models", "name", type_=NAME, existing_type=sa.Text(), existing_nullable=False)
    op.add_column("artifacts", sa.Column("model_name", NAME, nullable=True))
    claimed = "claim_json::json ->> 'name'" if postgresql else "json_extract(claim_json, '$.name')"
    op.execute(f"UPDATE artifacts SET model_name = {claimed} WHERE claim_json IS NOT NULL AND origin = 'pushed'")
    op.execute(f"UPDATE artifacts SET model_name = ({REGISTERED}) WHERE model_name IS NULL")
    op.create_index("ix_artifacts_namespace_model_name_seq", "artifacts", ["namespace", "model_name", "seq"])


def downgrade() -> None:
    """Revert the migration."""
    op.drop_index("ix_artifacts_namespace_model_name_seq", "artifacts")
    op.drop_column("artifacts", "model_name")
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("models", "name", type_=sa.Text(collation="default"), existing_nullable=False)
