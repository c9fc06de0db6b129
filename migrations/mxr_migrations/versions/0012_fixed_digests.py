"""Add the digest of the facts that a request never leaves open to artifacts: an index for partial requests.

The form of the digest is written out here, so that later versions of the code do not change what this step does.

Revision 0012, follows 0011.
"""

from __future__ import annotations

import json
from hashlib import sha256

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

PAGE = 500


def upgrade() -> None:
    """Apply the migration."""
    op.add_column("artifacts", sa.Column("fixed_digest", sa.String(64), nullable=True))
    bind = op.get_bind()
    query = sa.text(f"SELECT seq, key_json FROM artifacts WHERE seq > :last ORDER BY seq LIMIT {PAGE}")
    change = sa.text("UPDATE artifacts SET fixed_digest = :digest WHERE seq = :seq")
    last = -1
    while rows := bind.execute(query, {"last": last}).all():
        bind.execute(change, [{"seq": row.seq, "digest": _digest(row.key_json)} for row in rows])
        last = rows[-1].seq
    op.create_index("ix_artifacts_namespace_fixed_digest_seq", "artifacts", ["namespace", "fixed_digest", "seq"])


def downgrade() -> None:
    """Revert the migration."""
    op.drop_index("ix_artifacts_namespace_fixed_digest_seq", "artifacts")
    op.drop_column("artifacts", "fixed_digest")


def _digest(key_json: str) -> str | None:
    key = json.loads(key_json)
    if "model" not in key:
        return None
    precision = key.get("precision", "fp32")
    document = {name: key.get(name) for name in ("model", "form", "calibration", "kind", "vendor", "arch")}
    document["precision"] = [] if precision == "fp32" else precision.split("+")
    document |= {name: sorted(map(list, key.get(name, {}).items())) for name in ("env", "options")}
    return sha256(json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()
