"""Give models the sha256 identity, and their artifacts keys of version 2.

Revision 0010, follows 0009.

A complete model gets its identity from its manifest. Its artifacts get a new key, digest and id; registered locks keep
them. They count as pushed: nobody knows whether a worker had this model, or another one with its XXH3 hash. A model or
an artifact whose bytes the registry does not have cannot get a new key and is removed: the table
`replaced_artifacts` says so when somebody asks for the old id. Jobs and misses of old keys are removed.

The rules are written out here, so that later versions of the code do not change what this step does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

PIECE = 64 << 20
OLD = "xxh3:%"
PAGE = 500


def upgrade() -> None:
    """Apply the migration."""
    op.drop_column("models", "sha256")
    op.add_column("artifacts", sa.Column("claim_json", sa.Text(), nullable=True))
    op.add_column("blobs", sa.Column("xxh3", sa.String(32), nullable=True))
    op.create_table(
        "replaced_artifacts",
        sa.Column("namespace", sa.String(100), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("replacement", sa.String(64), nullable=True),
        sa.PrimaryKeyConstraint("namespace", "id", name="pk_replaced_artifacts"),
    )
    _rekey(op.get_bind())


def downgrade() -> None:
    """Revert the migration. The new keys stay."""
    op.drop_table("replaced_artifacts")
    op.drop_column("blobs", "xxh3")
    op.drop_column("artifacts", "claim_json")
    op.add_column("models", sa.Column("sha256", sa.String(64), server_default="", nullable=False))


def _rekey(bind: sa.Connection) -> None:
    models = _models(bind)
    for row in _old(bind, "artifacts", "namespace, id, model, key_json, manifest_json, sources_json"):
        found = _new_artifact(row, models.get((row.namespace, row.model)))
        taken = found and _one(bind, "SELECT 1 FROM artifacts WHERE namespace = :n AND id = :i", row, found["id"])
        if found is None or taken:
            for table in ("artifact_blobs", "artifact_inputs", "uses", "lock_artifacts"):
                bind.execute(sa.text(f"DELETE FROM {table} WHERE artifact = :seq"), {"seq": row.seq})
            bind.execute(sa.text("DELETE FROM artifacts WHERE seq = :seq"), {"seq": row.seq})
        else:
            columns = "model = :model, key_json = :key_json, digest = :digest, id = :id, sources_json = :sources_json"
            columns += ", origin = 'pushed', job = NULL, worker = NULL"
            bind.execute(sa.text(f"UPDATE artifacts SET {columns} WHERE seq = :seq"), found | {"seq": row.seq})
        bind.execute(
            sa.text("INSERT INTO replaced_artifacts (namespace, id, replacement) VALUES (:namespace, :id, :new)"),
            {"namespace": row.namespace, "id": row.id, "new": found["id"] if found else None},
        )
    for row in _old(bind, "jobs", "namespace"):
        for table in ("job_events", "job_logs"):
            bind.execute(sa.text(f"DELETE FROM {table} WHERE job = :seq"), {"seq": row.seq})
        bind.execute(sa.text("DELETE FROM jobs WHERE seq = :seq"), {"seq": row.seq})
    bind.execute(sa.text("DELETE FROM misses WHERE request_json LIKE :old"), {"old": f'%"model":"{OLD}'})


def _models(bind: sa.Connection) -> dict[tuple[str, str], str]:
    """Give complete models their identity and remove the others. Returns the identity by namespace and old hash."""
    found = {}
    for row in _old(bind, "models", "namespace, model, complete, onnx, manifest_json"):
        identity = _identity(row)
        if identity is None or _one(bind, "SELECT 1 FROM models WHERE namespace = :n AND model = :i", row, identity):
            bind.execute(sa.text("DELETE FROM model_blobs WHERE model = :seq"), {"seq": row.seq})
            bind.execute(sa.text("DELETE FROM models WHERE seq = :seq"), {"seq": row.seq})
        else:
            bind.execute(
                sa.text("UPDATE models SET model = :model WHERE seq = :seq"), {"model": identity, "seq": row.seq}
            )
        if identity is not None:
            found[row.namespace, row.model] = identity
    return found


def _old(bind: sa.Connection, table: str, columns: str) -> Iterator[Any]:
    """Yield the rows with an old model hash, with their `seq`, in pages: the caller changes or removes each."""
    query = f"SELECT seq, {columns} FROM {table} WHERE model LIKE :old AND seq > :last ORDER BY seq LIMIT {PAGE}"
    last = -1
    while rows := bind.execute(sa.text(query), {"old": OLD, "last": last}).all():
        yield from rows
        last = rows[-1].seq


def _one(bind: sa.Connection, query: str, row: Any, identity: str) -> bool:
    return bind.execute(sa.text(query), {"n": row.namespace, "i": identity}).first() is not None


def _identity(row: Any) -> str | None:
    """The identity of a model, or None if its manifest is missing or not in pieces of 64 MiB."""
    if not row.complete or row.manifest_json is None:
        return None
    files = {file["name"]: file for file in json.loads(row.manifest_json)["files"]}
    for file in files.values():
        sizes = [min(PIECE, file["size"] - at) for at in range(0, file["size"], PIECE)]
        if [blob["size"] for blob in file["blobs"]] != sizes:
            return None
    onnx = files.pop(row.onnx)
    ordered = sorted(files.items(), key=lambda each: each[0].encode())
    document = {
        "external": [[name, file["size"], _pieces(file)] for name, file in ordered],
        "onnx": [onnx["size"], _pieces(onnx)],
    }
    return "sha256:" + sha256(b"mxr-model-v2\n" + _canonical(document).encode()).hexdigest()


def _pieces(file: dict[str, Any]) -> list[str]:
    return [blob["sha256"] for blob in file["blobs"]]


def _new_artifact(row: Any, model: str | None) -> dict[str, str] | None:
    """The new columns of an artifact of this model; None without a model."""
    if model is None:
        return None
    key = _canonical(json.loads(row.key_json) | {"v": 2, "model": model, "options": {}})
    digest = sha256(key.encode()).hexdigest()
    files = sorted([file["name"], file["sha256"]] for file in json.loads(row.manifest_json)["files"])
    identity = sha256(_canonical({"v": 1, "digest": digest, "files": files}).encode()).hexdigest()
    sources = row.sources_json.replace('"worker"', '"publisher"')
    return {"model": model, "key_json": key, "digest": digest, "id": identity, "sources_json": sources}


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
