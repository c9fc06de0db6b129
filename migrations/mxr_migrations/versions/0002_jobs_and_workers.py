"""Add tables for compile jobs with events and logs, workers, remembered failures, and the change counter.

Revision 0002, follows 0001.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

NAMESPACE = sa.String(100)
HASH = sa.String(64)
ID = sa.String(32)
NAME = sa.String(200)
WORD = sa.String(250)
STATE = sa.String(20)
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OPEN = sa.text("state IN ('queued', 'running')")
LATER = sa.text("next_at > 0")


def upgrade() -> None:
    """Apply the migration."""
    _jobs()
    _events()
    _logs()
    _workers()
    _failures()
    op.create_table(
        "counters",
        _column("name", sa.String(40)),
        _column("value", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name="pk_counters"),
    )
    op.execute("INSERT INTO counters (name, value) VALUES ('jobs', 0)")


def downgrade() -> None:
    """Revert the migration."""
    for table in ("counters", "failures", "workers", "job_logs", "job_events", "jobs"):
        op.drop_table(table)


def _column(name: str, type: Any, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, type, nullable=nullable)


def _jobs() -> None:
    op.create_table(
        "jobs",
        _column("seq", SERIAL),
        _column("namespace", NAMESPACE),
        _column("id", ID),
        _column("state", STATE),
        _column("digest", HASH),
        _column("terms", HASH),
        _column("model", sa.String(37)),
        _column("arch", WORD, nullable=True),
        _column("lane", sa.String(600)),
        _column("rank", sa.BigInteger()),
        _column("key_json", sa.Text()),
        _column("demands_json", sa.Text()),
        _column("calibration", HASH, nullable=True),
        *(_column(name, sa.BigInteger()) for name in ("attempts", "fence", "lost", "version", "touched")),
        _column("phase", sa.String(40), nullable=True),
        _column("worker", ID, nullable=True),
        _column("worker_name", NAME, nullable=True),
        _column("toolchain_json", sa.Text(), nullable=True),
        _column("pinned_json", sa.Text(), nullable=True),
        _column("next_at", sa.Double()),
        _column("lease_until", sa.Double(), nullable=True),
        _column("cancelling", sa.Boolean()),
        _column("avoid", ID, nullable=True),
        _column("artifact", HASH, nullable=True),
        _column("failure_json", sa.Text(), nullable=True),
        _column("seconds", sa.Double(), nullable=True),
        _column("log_size", sa.BigInteger()),
        _column("created_at", sa.Double()),
        _column("updated_at", sa.Double()),
        _column("started_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name="pk_jobs"),
        sa.UniqueConstraint("namespace", "id", name="uq_jobs_namespace_id"),
        sa.ForeignKeyConstraint(
            ["namespace", "calibration"],
            ["blobs.namespace", "blobs.sha256"],
            name="fk_jobs_namespace_calibration_blobs",
        ),
        sqlite_autoincrement=True,
    )
    only = ["namespace", "digest", "terms"]
    op.create_index("uq_jobs_open", "jobs", only, unique=True, sqlite_where=OPEN, postgresql_where=OPEN)
    op.create_index("ix_jobs_later", "jobs", ["next_at"], sqlite_where=LATER, postgresql_where=LATER)
    for columns in (
        ["namespace", "digest", "seq"],
        ["namespace", "state", "lane", "rank", "seq"],
        ["namespace", "model", "seq"],
        ["namespace", "seq"],
        ["state", "lease_until"],
        ["state", "worker"],
        ["touched"],
    ):
        op.create_index("_".join(("ix_jobs", *columns)), "jobs", columns)


def _job_foreign_key(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["job"], ["jobs.seq"], name=f"fk_{table}_job_jobs", ondelete="CASCADE")


def _events() -> None:
    op.create_table(
        "job_events",
        _column("seq", SERIAL),
        _column("job", SERIAL),
        _column("at", sa.Double()),
        _column("state", STATE),
        _column("worker", NAME, nullable=True),
        _column("note", sa.Text()),
        _column("detail_json", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name="pk_job_events"),
        _job_foreign_key("job_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_job_events_job_seq", "job_events", ["job", "seq"])


def _logs() -> None:
    op.create_table(
        "job_logs",
        _column("job", SERIAL),
        _column("start", SERIAL),
        _column("size", sa.BigInteger()),
        _column("data", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("job", "start", name="pk_job_logs"),
        _job_foreign_key("job_logs"),
    )


def _workers() -> None:
    op.create_table(
        "workers",
        _column("seq", SERIAL),
        _column("namespace", NAMESPACE),
        _column("id", ID),
        _column("name", NAME),
        _column("can_json", sa.Text()),
        _column("toolchain", HASH),
        _column("toolchain_json", sa.Text()),
        _column("created_at", sa.Double()),
        _column("seen_at", sa.Double()),
        sa.PrimaryKeyConstraint("seq", name="pk_workers"),
        sa.UniqueConstraint("namespace", "id", name="uq_workers_namespace_id"),
        sa.UniqueConstraint("namespace", "name", name="uq_workers_namespace_name"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_workers_namespace_seen_at", "workers", ["namespace", "seen_at"])


def _failures() -> None:
    op.create_table(
        "failures",
        _column("namespace", NAMESPACE),
        *(_column(name, HASH) for name in ("digest", "terms", "toolchain")),
        _column("toolchain_json", sa.Text()),
        _column("failure_json", sa.Text()),
        _column("created_at", sa.Double()),
        _column("expires_at", sa.Double()),
        sa.PrimaryKeyConstraint("namespace", "digest", "terms", "toolchain", name="pk_failures"),
    )
