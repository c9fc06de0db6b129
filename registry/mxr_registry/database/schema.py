"""Check the revision of the database schema, and migrate it with Alembic.

`serve` migrates the embedded database when it starts. Only `mxr-registry migrate` migrates a database on a server.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Table, inspect, text

from mxr.errors import MxrError, TemporaryError

from .session import Database, Session, advisory_lock

if TYPE_CHECKING:
    from alembic.config import Config

SCRIPTS = "mxr_migrations:."


def upgrade(db: Database) -> str:
    """Migrate the schema to the newest revision in one transaction, and return that revision.

    Several processes may call this at once: one migrates and the others wait. Raises `MxrError` for an unknown
    revision, and `TemporaryError` if a running registry keeps the tables locked for a minute.
    """
    with db.writing(lock_timeout=60.0) as session:
        if not db.embedded:
            # A migration may read every row, which has no time limit.
            session.execute(text("SET LOCAL statement_timeout = 0"))
        advisory_lock(session, "schema")
        if current(session) == newest():
            return newest()
        # Alembic is large, and nearly every start needs no migration.
        from alembic import command

        config = _config()
        config.attributes["connection"] = session
        command.upgrade(config, "head")
    return newest()


def check_schema(db: Database) -> None:
    """Check that the schema has the revision that this code needs. Raises `TemporaryError` if it is older."""
    with db.reading() as session:
        found = current(session)
    if found != newest():
        raise TemporaryError(
            f"The database schema is {found or 'empty'}, and this registry needs revision {newest()}.",
            hint="Run `mxr-registry migrate` with the same MXR_DATABASE_URL, then start again.",
        )


def current(session: Session) -> str | None:
    """Return the schema revision of the database, or None if it is empty.

    Raises `MxrError` for a revision that this code does not know.
    """
    written = inspect(session).has_table("alembic_version")
    found: str | None = session.execute(text("SELECT version_num FROM alembic_version")).scalar() if written else None
    if found is not None and found not in revisions():
        raise MxrError(
            f"The database schema has revision {found}, which this registry does not know.",
            hint="Run the mxr-registry that migrated it, or restore a backup from before that.",
        )
    return found


def newest() -> str:
    """Return the revision that this code needs."""
    return revisions()[-1]


def revisions() -> list[str]:
    """Return the revisions that this code knows, in order. The file name of each migration starts with its revision."""
    found = find_spec(SCRIPTS.partition(":")[0])
    assert found is not None and found.submodule_search_locations
    return sorted(path.name[:4] for path in Path(found.submodule_search_locations[0], "versions").glob("[0-9]*.py"))


def tables() -> list[Table]:
    """Return all tables, each after the tables that it refers to."""
    from . import job_tables

    return job_tables.JobRow.metadata.sorted_tables


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    config.set_main_option("path_separator", "os")
    return config
