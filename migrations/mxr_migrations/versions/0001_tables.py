"""The tables of a registry.

Revision 0001, the first.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NAMESPACE = sa.String(100)
HASH = sa.String(64)
WORD = sa.String(250)
MODEL = sa.String(71)
MODEL_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OPEN = sa.text("state IN ('queued', 'running')")
LATER = sa.text("next_at > 0")

TABLES = (
    "artifacts",
    "blobs",
    "counters",
    "failures",
    "locks",
    "misses",
    "models",
    "namespaces",
    "registry",
    "tokens",
    "tombstones",
    "workers",
    "artifact_blobs",
    "artifact_inputs",
    "jobs",
    "lock_artifacts",
    "model_blobs",
    "uploads",
    "uses",
    "job_askers",
    "job_events",
    "job_logs",
)
"""Each after those that it refers to."""


def upgrade() -> None:
    """Apply the migration."""
    _artifacts()
    _blobs()
    _counters()
    _failures()
    _locks()
    _misses()
    _models()
    _namespaces()
    _registry()
    _tokens()
    _tombstones()
    _workers()
    _artifact_blobs()
    _artifact_inputs()
    _jobs()
    _lock_artifacts()
    _model_blobs()
    _uploads()
    _uses()
    _job_askers()
    _job_events()
    _job_logs()
    op.execute(f"INSERT INTO registry (number, uuid) VALUES (1, '{uuid4()}')")
    op.execute("INSERT INTO counters (name, value) VALUES ('jobs', 0)")


def downgrade() -> None:
    """Revert the migration."""
    for table in reversed(TABLES):
        op.drop_table(table)


def _column(name: str, type: Any, *, nullable: bool = False, **more: Any) -> sa.Column[Any]:
    return sa.Column(name, type, nullable=nullable, **more)


def _index(table: str, *columns: str) -> None:
    op.create_index("_".join(("ix", table, *columns)), table, list(columns))


def _artifacts() -> None:
    op.create_table(
        "artifacts",
        _column("seq", SERIAL),
        _column("namespace", NAMESPACE),
        _column("id", HASH),
        _column("digest", HASH),
        _column("model", MODEL),
        _column("kind", WORD),
        _column("vendor", WORD, nullable=True),
        _column("arch", WORD, nullable=True),
        _column("migraphx", WORD),
        _column("rocm", WORD, nullable=True),
        _column("precision", WORD),
        _column("sha256", HASH),
        _column("size", sa.BigInteger()),
        _column("key_json", sa.Text()),
        _column("attributes_json", sa.Text()),
        _column("provenance_json", sa.Text()),
        _column("sources_json", sa.Text()),
        _column("origin", sa.String(20)),
        _column("created_by", WORD),
        _column("job", sa.String(32), nullable=True),
        _column("worker", sa.String(200), nullable=True),
        _column("names_json", sa.Text()),
        _column("published_at", sa.Double()),
        _column("changed_at", sa.Double(), nullable=True),
        _column("restored_at", sa.Double(), nullable=True),
        _column("restored_by", WORD, nullable=True),
        _column("used_at", sa.Double()),
        _column("promoted_at", sa.Double(), nullable=True),
        _column("promoted", sa.BigInteger()),
        _column("manifest_json", sa.Text()),
        _column("description_json", sa.Text(), nullable=True),
        _column("claim_json", sa.Text(), nullable=True),
        _column("model_name", MODEL_NAME, nullable=True),
        _column("fixed_digest", HASH),
        sa.PrimaryKeyConstraint("seq", name="pk_artifacts"),
        sa.UniqueConstraint("namespace", "id", name="uq_artifacts_namespace_id"),
        sqlite_autoincrement=True,
    )
    for columns in (
        ["namespace", "arch", "seq"],
        ["namespace", "digest"],
        ["namespace", "fixed_digest", "seq"],
        ["namespace", "model", "arch", "seq"],
        ["namespace", "model", "seq"],
        ["namespace", "model_name", "seq"],
        ["namespace", "seq"],
        ["namespace", "sha256"],
        ["namespace", "used_at"],
    ):
        _index("artifacts", *columns)


def _tombstones() -> None:
    op.create_table(
        "tombstones",
        _column("namespace", NAMESPACE),
        _column("id", HASH),
        _column("removed_at", sa.Double()),
        _column("removed_by", WORD),
        sa.PrimaryKeyConstraint("namespace", "id", name="pk_tombstones"),
    )


def _uploads() -> None:
    op.create_table(
        "uploads",
        _column("namespace", NAMESPACE),
        _column("sha256", HASH),
        _column("principal", NAMESPACE),
        _column("uploaded_at", sa.Double()),
        sa.ForeignKeyConstraint(
            ["namespace", "sha256"],
            ["blobs.namespace", "blobs.sha256"],
            name="fk_uploads_namespace_sha256_blobs",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("namespace", "sha256", "principal", name="pk_uploads"),
    )


def _blobs() -> None:
    op.create_table(
        "blobs",
        _column("namespace", NAMESPACE),
        _column("sha256", HASH),
        _column("size", sa.BigInteger()),
        _column("created_at", sa.Double()),
        _column("touched_at", sa.Double()),
        _column("xxh3", sa.String(32), nullable=True),
        sa.PrimaryKeyConstraint("namespace", "sha256", name="pk_blobs"),
    )
    _index("blobs", "sha256")


def _counters() -> None:
    op.create_table(
        "counters",
        _column("name", sa.String(40)),
        _column("value", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name="pk_counters"),
    )


def _failures() -> None:
    op.create_table(
        "failures",
        _column("namespace", NAMESPACE),
        _column("digest", HASH),
        _column("terms", HASH),
        _column("toolchain", HASH),
        _column("toolchain_json", sa.Text()),
        _column("failure_json", sa.Text()),
        _column("created_at", sa.Double()),
        _column("expires_at", sa.Double()),
        sa.PrimaryKeyConstraint("namespace", "digest", "terms", "toolchain", name="pk_failures"),
    )


def _locks() -> None:
    op.create_table(
        "locks",
        _column("seq", SERIAL),
        _column("namespace", NAMESPACE),
        _column("name", NAMESPACE),
        _column("created_at", sa.Double()),
        _column("created_by", NAMESPACE),
        _column("updated_at", sa.Double()),
        sa.PrimaryKeyConstraint("seq", name="pk_locks"),
        sa.UniqueConstraint("namespace", "name", name="uq_locks_namespace_name"),
        sqlite_autoincrement=True,
    )


def _misses() -> None:
    op.create_table(
        "misses",
        _column("namespace", NAMESPACE),
        _column("request", HASH),
        _column("digest", HASH),
        _column("request_json", sa.Text()),
        _column("nearest_json", sa.Text()),
        _column("count", sa.BigInteger()),
        _column("first_at", sa.Double()),
        _column("last_at", sa.Double()),
        sa.PrimaryKeyConstraint("namespace", "request", name="pk_misses"),
    )
    _index("misses", "namespace", "last_at")


def _models() -> None:
    op.create_table(
        "models",
        _column("seq", SERIAL),
        _column("namespace", NAMESPACE),
        _column("model", MODEL),
        _column("name", MODEL_NAME),
        _column("inputs_json", sa.Text()),
        _column("complete", sa.Boolean()),
        _column("onnx", sa.Text(), nullable=True),
        _column("manifest_json", sa.Text(), nullable=True),
        _column("graph", HASH, nullable=True),
        _column("told_json", sa.Text(), nullable=True),
        _column("created_at", sa.Double()),
        _column("created_by", NAMESPACE),
        sa.PrimaryKeyConstraint("seq", name="pk_models"),
        sa.UniqueConstraint("namespace", "model", name="uq_models_namespace_model"),
        sqlite_autoincrement=True,
    )
    _index("models", "namespace", "graph", "seq")


def _namespaces() -> None:
    op.create_table(
        "namespaces",
        _column("name", NAMESPACE),
        _column("serve", sa.String(20), nullable=True),
        _column("created_at", sa.Double()),
        _column("defaults_json", sa.String(1000), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_namespaces"),
    )


def _registry() -> None:
    op.create_table(
        "registry",
        _column("number", sa.Integer(), autoincrement=False),
        _column("uuid", sa.String(36)),
        sa.PrimaryKeyConstraint("number", name="pk_registry"),
    )


def _tokens() -> None:
    op.create_table(
        "tokens",
        _column("seq", SERIAL),
        _column("id", sa.String(12)),
        _column("namespace", NAMESPACE),
        _column("name", NAMESPACE),
        _column("scopes", WORD),
        _column("sha256", HASH),
        _column("created_at", sa.Double()),
        _column("created_by", NAMESPACE),
        _column("expires_at", sa.Double(), nullable=True),
        _column("used_at", sa.Double(), nullable=True),
        _column("revoked_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name="pk_tokens"),
        sa.UniqueConstraint("id", name="uq_tokens_id"),
        sqlite_autoincrement=True,
    )
    _index("tokens", "name", "seq")


def _workers() -> None:
    op.create_table(
        "workers",
        _column("seq", SERIAL),
        _column("namespace", NAMESPACE),
        _column("id", sa.String(32)),
        _column("name", sa.String(200)),
        _column("can_json", sa.Text()),
        _column("toolchain", HASH),
        _column("toolchain_json", sa.Text()),
        _column("created_at", sa.Double()),
        _column("created_by", NAMESPACE),
        _column("seen_at", sa.Double()),
        _column("left_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name="pk_workers"),
        sa.UniqueConstraint("namespace", "id", name="uq_workers_namespace_id"),
        sa.UniqueConstraint("namespace", "name", name="uq_workers_namespace_name"),
        sqlite_autoincrement=True,
    )
    _index("workers", "namespace", "seen_at")


def _artifact_blobs() -> None:
    op.create_table(
        "artifact_blobs",
        _column("artifact", SERIAL),
        _column("sha256", HASH),
        _column("namespace", NAMESPACE),
        sa.PrimaryKeyConstraint("artifact", "sha256", name="pk_artifact_blobs"),
        sa.ForeignKeyConstraint(
            ["artifact"], ["artifacts.seq"], name="fk_artifact_blobs_artifact_artifacts", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["namespace", "sha256"],
            ["blobs.namespace", "blobs.sha256"],
            name="fk_artifact_blobs_namespace_sha256_blobs",
        ),
    )
    _index("artifact_blobs", "namespace", "sha256")


def _artifact_inputs() -> None:
    op.create_table(
        "artifact_inputs",
        _column("artifact", SERIAL),
        _column("name", sa.Text()),
        sa.PrimaryKeyConstraint("artifact", "name", name="pk_artifact_inputs"),
        sa.ForeignKeyConstraint(
            ["artifact"], ["artifacts.seq"], name="fk_artifact_inputs_artifact_artifacts", ondelete="CASCADE"
        ),
    )
    _index("artifact_inputs", "name")


def _jobs() -> None:
    op.create_table(
        "jobs",
        _column("seq", SERIAL),
        _column("namespace", NAMESPACE),
        _column("id", sa.String(32)),
        _column("state", sa.String(20)),
        _column("digest", HASH),
        _column("terms", HASH),
        _column("model", MODEL),
        _column("arch", WORD, nullable=True),
        _column("lane", sa.String(600)),
        _column("rank", sa.BigInteger()),
        _column("key_json", sa.Text()),
        _column("constraints_json", sa.Text()),
        _column("calibration", HASH, nullable=True),
        _column("file_name", sa.Text(), nullable=True),
        _column("attempts", sa.BigInteger()),
        _column("fence", sa.BigInteger()),
        _column("lost", sa.BigInteger()),
        _column("version", sa.BigInteger()),
        _column("touched", sa.BigInteger()),
        _column("phase", sa.String(40), nullable=True),
        _column("worker", sa.String(32), nullable=True),
        _column("worker_name", sa.String(200), nullable=True),
        _column("toolchain_json", sa.Text(), nullable=True),
        _column("pinned_json", sa.Text(), nullable=True),
        _column("next_at", sa.Double()),
        _column("lease_until", sa.Double(), nullable=True),
        _column("cancelling", sa.Boolean()),
        _column("avoid", sa.String(32), nullable=True),
        _column("artifact", HASH, nullable=True),
        _column("failure_json", sa.Text(), nullable=True),
        _column("seconds", sa.Double(), nullable=True),
        _column("log_size", sa.BigInteger()),
        _column("created_at", sa.Double()),
        _column("updated_at", sa.Double()),
        _column("started_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name="pk_jobs"),
        sa.ForeignKeyConstraint(
            ["namespace", "calibration"],
            ["blobs.namespace", "blobs.sha256"],
            name="fk_jobs_namespace_calibration_blobs",
        ),
        sa.UniqueConstraint("namespace", "id", name="uq_jobs_namespace_id"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_jobs_open", "jobs", ["namespace", "digest", "terms"], unique=True, sqlite_where=OPEN, postgresql_where=OPEN
    )
    op.create_index("ix_jobs_later", "jobs", ["next_at"], sqlite_where=LATER, postgresql_where=LATER)
    for columns in (
        ["namespace", "digest", "seq"],
        ["namespace", "model", "seq"],
        ["namespace", "seq"],
        ["namespace", "state", "lane", "rank", "seq"],
        ["state", "lease_until"],
        ["state", "worker"],
        ["touched"],
    ):
        _index("jobs", *columns)


def _lock_artifacts() -> None:
    op.create_table(
        "lock_artifacts",
        _column("lock", SERIAL),
        _column("artifact", SERIAL),
        sa.PrimaryKeyConstraint("lock", "artifact", name="pk_lock_artifacts"),
        sa.ForeignKeyConstraint(["artifact"], ["artifacts.seq"], name="fk_lock_artifacts_artifact_artifacts"),
        sa.ForeignKeyConstraint(["lock"], ["locks.seq"], name="fk_lock_artifacts_lock_locks", ondelete="CASCADE"),
    )
    _index("lock_artifacts", "artifact")


def _model_blobs() -> None:
    op.create_table(
        "model_blobs",
        _column("model", SERIAL),
        _column("sha256", HASH),
        _column("namespace", NAMESPACE),
        sa.PrimaryKeyConstraint("model", "sha256", name="pk_model_blobs"),
        sa.ForeignKeyConstraint(["model"], ["models.seq"], name="fk_model_blobs_model_models", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["namespace", "sha256"], ["blobs.namespace", "blobs.sha256"], name="fk_model_blobs_namespace_sha256_blobs"
        ),
    )
    _index("model_blobs", "namespace", "sha256")


def _uses() -> None:
    op.create_table(
        "uses",
        _column("artifact", SERIAL),
        _column("day", sa.Integer()),
        _column("count", sa.BigInteger()),
        _column("used_at", sa.Double()),
        sa.PrimaryKeyConstraint("artifact", "day", name="pk_uses"),
        sa.ForeignKeyConstraint(["artifact"], ["artifacts.seq"], name="fk_uses_artifact_artifacts", ondelete="CASCADE"),
    )
    _index("uses", "day")


def _job_askers() -> None:
    op.create_table(
        "job_askers",
        _column("job", SERIAL),
        _column("principal", NAMESPACE),
        _column("withdrawn", sa.Boolean()),
        sa.ForeignKeyConstraint(["job"], ["jobs.seq"], name="fk_job_askers_job_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", "principal", name="pk_job_askers"),
    )
    _index("job_askers", "principal", "job")


def _job_events() -> None:
    op.create_table(
        "job_events",
        _column("seq", SERIAL),
        _column("job", SERIAL),
        _column("at", sa.Double()),
        _column("state", sa.String(20)),
        _column("worker", sa.String(200), nullable=True),
        _column("note", sa.Text()),
        _column("detail_json", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name="pk_job_events"),
        sa.ForeignKeyConstraint(["job"], ["jobs.seq"], name="fk_job_events_job_jobs", ondelete="CASCADE"),
        sqlite_autoincrement=True,
    )
    _index("job_events", "job", "seq")


def _job_logs() -> None:
    op.create_table(
        "job_logs",
        _column("job", SERIAL),
        _column("start", SERIAL),
        _column("size", sa.BigInteger()),
        _column("data", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("job", "start", name="pk_job_logs"),
        sa.ForeignKeyConstraint(["job"], ["jobs.seq"], name="fk_job_logs_job_jobs", ondelete="CASCADE"),
    )
