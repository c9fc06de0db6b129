"""The trail, which bytes the store lost, the program that used a token last, and which releases work on a schema.

Revision 0002. It only adds: the release before it, whose INSERT leaves the new columns out, works on this schema.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

COLUMNS: tuple[tuple[str, str, Any, str | None], ...] = (
    ("blobs", "lost_at", sa.Double(), None),
    ("artifacts", "lost_at", sa.Double(), None),
    ("tokens", "used_with", sa.String(100), None),
    ("registry", "compatible", sa.String(4), "0001"),
)


LOST = sa.text("lost_at IS NOT NULL")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the migration."""
    op.create_table(
        "events",
        sa.Column("seq", SERIAL, nullable=False),
        sa.Column("namespace", sa.String(100), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("principal", sa.String(100), nullable=False),
        sa.Column("address", sa.String(100), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("model", sa.String(71), nullable=True),
        sa.Column("detail_json", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
        sqlite_autoincrement=True,
    )
    for names in (("namespace", "seq"), ("namespace", "subject"), ("namespace", "model", "seq"), ("kind", "at")):
        op.create_index(f"ix_events_{'_'.join(names)}", "events", names)
    for table, name, kind, default in COLUMNS:
        op.add_column(table, sa.Column(name, kind, nullable=default is None, server_default=default))
    op.create_index("ix_artifacts_lost_at", "artifacts", ["lost_at"], sqlite_where=LOST, postgresql_where=LOST)


def downgrade() -> None:
    """Take the migration back."""
    op.drop_index("ix_artifacts_lost_at", "artifacts")
    op.drop_table("events")
    for table, name, *_ in COLUMNS:
        with op.batch_alter_table(table) as altered:
            altered.drop_column(name)
