"""Add the origin of artifacts, who states their facts, and namespaces with their rule `serve`.

An artifact is built if the registry still has the job that made it. Otherwise nobody knows, and it is pushed.

Revision 0008, follows 0007.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

READ = ("kind", "migraphx", "inputs", "arch", "offload_copy", "sramecc", "xnack")
"""Facts that a file can show. Those that it did not show are in `stated_json`."""

ADDED = ("sources_json", "origin", "created_by", "job", "worker", "changed_at")


def upgrade() -> None:
    """Apply the migration."""
    op.create_table(
        "namespaces",
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("serve", sa.String(20), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_namespaces"),
    )
    op.add_column("artifacts", sa.Column("sources_json", sa.Text(), nullable=False, server_default="{}"))
    op.add_column("artifacts", sa.Column("origin", sa.String(20), nullable=False, server_default="pushed"))
    op.add_column("artifacts", sa.Column("created_by", sa.String(250), nullable=False, server_default="local"))
    op.add_column("artifacts", sa.Column("job", sa.String(32), nullable=True))
    op.add_column("artifacts", sa.Column("worker", sa.String(200), nullable=True))
    op.add_column("artifacts", sa.Column("changed_at", sa.Double(), nullable=True))
    _fill()
    op.drop_column("artifacts", "stated_json")


def _fill() -> None:
    names = ("seq", "namespace", "id", "stated_json", "sources_json", "origin", "job", "worker")
    artifacts = sa.table("artifacts", *map(sa.column, names))
    jobs = sa.table("jobs", *map(sa.column, ("seq", "namespace", "id", "artifact", "state", "worker_name")))
    session = op.get_bind()
    made = {
        (row.namespace, row.artifact): row
        for row in session.execute(sa.select(jobs).where(jobs.c.state == "done").order_by(jobs.c.seq.desc()))
    }
    for row in session.execute(sa.select(artifacts)).all():
        job = made.get((row.namespace, row.id))
        stated = json.loads(row.stated_json)
        sources = {name: "reader" for name in READ} | {name: "worker" if job else "publisher" for name in stated}
        values = {"sources_json": json.dumps(sources, sort_keys=True, separators=(",", ":"))}
        if job is not None:
            values |= {"origin": "built", "job": job.id, "worker": job.worker_name}
        session.execute(sa.update(artifacts).where(artifacts.c.seq == row.seq).values(values))


def downgrade() -> None:
    """Revert the migration."""
    op.add_column("artifacts", sa.Column("stated_json", sa.Text(), nullable=False, server_default="[]"))
    for name in ADDED:
        op.drop_column("artifacts", name)
    op.drop_table("namespaces")
