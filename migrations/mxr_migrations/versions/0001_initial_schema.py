"""Initial schema: tables for blobs, models, artifacts and misses.

Revision 0001, the first.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NAMESPACE = sa.String(100)
HASH = sa.String(64)
WORD = sa.String(250)
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the migration."""
    _blobs()
    _models()
    _artifacts()
    _blob_references("model_blobs", "model", "models")
    _blob_references("artifact_blobs", "artifact", "artifacts")
    _inputs()
    _misses()


def downgrade() -> None:
    """Revert the migration."""
    for table in ("misses", "artifact_inputs", "artifact_blobs", "model_blobs", "artifacts", "models", "blobs"):
        op.drop_table(table)


def _column(name: str, type: Any, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, type, nullable=nullable)


def _blobs() -> None:
    op.create_table(
        "blobs",
        _column("namespace", NAMESPACE),
        _column("sha256", HASH),
        _column("size", sa.BigInteger()),
        _column("created_at", sa.Double()),
        _column("touched_at", sa.Double()),
        sa.PrimaryKeyConstraint("namespace", "sha256", name="pk_blobs"),
    )
    op.create_index("ix_blobs_sha256", "blobs", ["sha256"])


def _models() -> None:
    op.create_table(
        "models",
        _column("seq", SERIAL),
        _column("namespace", NAMESPACE),
        _column("model", sa.String(37)),
        _column("sha256", HASH),
        _column("name", sa.Text()),
        _column("inputs_json", sa.Text()),
        _column("complete", sa.Boolean()),
        _column("onnx", sa.Text(), nullable=True),
        _column("manifest_json", sa.Text(), nullable=True),
        _column("created_at", sa.Double()),
        sa.PrimaryKeyConstraint("seq", name="pk_models"),
        sa.UniqueConstraint("namespace", "model", name="uq_models_namespace_model"),
        sqlite_autoincrement=True,
    )


def _artifacts() -> None:
    op.create_table(
        "artifacts",
        _column("seq", SERIAL),
        _column("namespace", NAMESPACE),
        _column("id", HASH),
        _column("digest", HASH),
        _column("model", sa.String(37)),
        _column("kind", WORD),
        _column("vendor", WORD, nullable=True),
        _column("arch", WORD, nullable=True),
        _column("migraphx", WORD),
        _column("rocm", WORD, nullable=True),
        _column("precision", WORD),
        _column("sha256", HASH),
        _column("size", sa.BigInteger()),
        _column("key_json", sa.Text()),
        _column("qualities_json", sa.Text()),
        _column("provenance_json", sa.Text()),
        _column("stated_json", sa.Text()),
        _column("names_json", sa.Text()),
        _column("published_at", sa.Double()),
        _column("promoted_at", sa.Double(), nullable=True),
        _column("promoted", sa.BigInteger()),
        _column("manifest_json", sa.Text()),
        _column("description_json", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name="pk_artifacts"),
        sa.UniqueConstraint("namespace", "id", name="uq_artifacts_namespace_id"),
        sqlite_autoincrement=True,
    )
    for columns in (["digest"], ["seq"], ["model", "seq"], ["model", "arch", "seq"], ["arch", "seq"]):
        op.create_index("_".join(("ix_artifacts_namespace", *columns)), "artifacts", ["namespace", *columns])


def _blob_references(table: str, owner: str, owners: str) -> None:
    op.create_table(
        table,
        _column(owner, SERIAL),
        _column("sha256", HASH),
        _column("namespace", NAMESPACE),
        sa.PrimaryKeyConstraint(owner, "sha256", name=f"pk_{table}"),
        sa.ForeignKeyConstraint([owner], [f"{owners}.seq"], name=f"fk_{table}_{owner}_{owners}", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["namespace", "sha256"], ["blobs.namespace", "blobs.sha256"], name=f"fk_{table}_namespace_sha256_blobs"
        ),
    )
    op.create_index(f"ix_{table}_namespace_sha256", table, ["namespace", "sha256"])


def _inputs() -> None:
    op.create_table(
        "artifact_inputs",
        _column("artifact", SERIAL),
        _column("name", sa.Text()),
        sa.PrimaryKeyConstraint("artifact", "name", name="pk_artifact_inputs"),
        sa.ForeignKeyConstraint(
            ["artifact"], ["artifacts.seq"], name="fk_artifact_inputs_artifact_artifacts", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_artifact_inputs_name", "artifact_inputs", ["name"])


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
    op.create_index("ix_misses_namespace_last_at", "misses", ["namespace", "last_at"])
