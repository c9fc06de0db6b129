"""Who missed what and why, attempts at jobs, counts by the hour, and sessions of browsers.

Revision 0003. It only adds: the release before it, whose INSERT leaves the new columns out, works on this schema.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

COLUMNS: tuple[tuple[str, Any, str | None], ...] = (
    ("model", sa.String(71), None),
    ("arch", sa.String(250), None),
    ("reason", sa.String(20), None),
    ("accept_json", sa.Text(), None),
    ("open_json", sa.Text(), None),
    ("hosts", sa.Integer(), "0"),
)
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _column(name: str, kind: Any, *more: Any, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, *more, nullable=null)


def upgrade() -> None:
    """Apply the migration."""
    for name, kind, default in COLUMNS:
        op.add_column("misses", sa.Column(name, kind, nullable=default is None, server_default=default))
    op.create_index("ix_models_namespace_name", "models", ["namespace", "name"])
    op.create_table(
        "miss_askers",
        _column("namespace", sa.String(100)),
        _column("request", sa.String(64)),
        _column("principal", sa.String(100)),
        _column("host", sa.String(250)),
        _column("count", sa.BigInteger()),
        _column("first_at", sa.Double()),
        _column("last_at", sa.Double()),
        sa.PrimaryKeyConstraint("namespace", "request", "principal", "host", name="pk_miss_askers"),
        sa.ForeignKeyConstraint(
            ["namespace", "request"],
            ["misses.namespace", "misses.request"],
            name="fk_miss_askers_namespace_request_misses",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_miss_askers_namespace_last_at", "miss_askers", ["namespace", "last_at"])
    op.create_table(
        "tallies",
        _column("namespace", sa.String(100)),
        _column("name", sa.String(40)),
        _column("hour", sa.Integer()),
        _column("value", sa.BigInteger()),
        sa.PrimaryKeyConstraint("namespace", "name", "hour", name="pk_tallies"),
    )
    op.create_index("ix_tallies_hour", "tallies", ["hour"])
    op.execute(
        "INSERT INTO tallies (namespace, name, hour, value) "
        "SELECT namespace, 'stored_bytes', 0, SUM(size) FROM blobs GROUP BY namespace"
    )
    op.create_table(
        "sessions",
        _column("sha256", sa.String(64)),
        _column("token", sa.String(12)),
        _column("link", sa.Boolean()),
        _column("created_at", sa.Double()),
        _column("expires_at", sa.Double()),
        sa.PrimaryKeyConstraint("sha256", name="pk_sessions"),
    )
    op.create_index("ix_sessions_token_created_at", "sessions", ["token", "created_at"])
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"])
    op.create_table(
        "attempts",
        _column("seq", SERIAL),
        _column("job", SERIAL),
        _column("namespace", sa.String(100)),
        _column("worker", sa.String(200)),
        _column("started_at", sa.Double()),
        _column("ended_at", sa.Double(), null=True),
        _column("state", sa.String(20), null=True),
        _column("note", sa.Text(), null=True),
        _column("phases_json", sa.Text()),
        sa.PrimaryKeyConstraint("seq", name="pk_attempts"),
        sa.ForeignKeyConstraint(["job"], ["jobs.seq"], name="fk_attempts_job_jobs", ondelete="CASCADE"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_attempts_job_seq", "attempts", ["job", "seq"])
    op.create_index("ix_attempts_namespace_ended_at", "attempts", ["namespace", "ended_at"])


def downgrade() -> None:
    """Take the migration back."""
    op.drop_index("ix_models_namespace_name", "models")
    for table in ("attempts", "sessions", "tallies", "miss_askers"):
        op.drop_table(table)
    with op.batch_alter_table("misses") as altered:
        for name, *_ in COLUMNS:
            altered.drop_column(name)
