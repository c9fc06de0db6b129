"""The keys with which a registry signs, and what it signed of artifacts.

Revision 0007. It only adds: the release before it works on this schema. What that release publishes is not signed until
`mxr-registry key resign`.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the migration."""
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("public_key", sa.String(500), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("endorsement_json", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_signing_keys"),
    )
    op.create_table(
        "statements",
        sa.Column("seq", Serial, nullable=False),
        sa.Column("artifact", Serial, nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(100), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("envelope_json", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["artifact"], ["artifacts.seq"], name="fk_statements_artifact_artifacts", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("seq", name="pk_statements"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_statements_artifact_seq", "statements", ["artifact", "seq"])


def downgrade() -> None:
    """Take the migration back."""
    op.drop_table("statements")
    op.drop_table("signing_keys")
