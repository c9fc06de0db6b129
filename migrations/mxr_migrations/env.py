"""Alembic environment: runs the migrations on the connection, and in the transaction, that the registry provides."""

from __future__ import annotations

from alembic import context

from mxr_registry.database import job_tables

connection = context.config.attributes["connection"]

context.configure(
    connection=connection,
    target_metadata=job_tables.JobRow.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    transactional_ddl=True,
    compare_type=True,
)
context.run_migrations()
