"""Check the revision of the database schema, and migrate it with Alembic.

`serve` migrates the embedded database when it starts. Only `mxr-registry migrate` migrates a database on a server.

A migration first adds: the release before it works on its schema, with columns and tables that it does not know. What
is not used any more is taken away one release later. So each release works on its own schema and the next one, and the
database says for how long (`registry.compatible`).
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Table, inspect, text

from mxr.errors import TemporaryError, UsageError

from .session import Database, Session, advisory_lock

if TYPE_CHECKING:
    from alembic.config import Config

log = logging.getLogger("mxr_registry")

SCRIPTS = "mxr_migrations:."


def upgrade(db: Database) -> str:
    """Migrate the schema to the newest revision in one transaction, and return the revision that it has then.

    Several processes may call this at once: one migrates and the others wait. Leaves the schema of a newer release as
    it is. Raises `UsageError` for one that this release cannot work on, and `TemporaryError` if a running registry
    keeps the tables locked for a minute.
    """
    with db.writing(lock_timeout=60.0) as session:
        if not db.embedded:
            # A migration may read every row, which has no time limit.
            session.execute(text("SET LOCAL statement_timeout = 0"))
        advisory_lock(session, "schema")
        found = current(session)
        if found is not None and found >= newest():
            return found
        # Alembic is large, and nearly every start needs no migration.
        from alembic import command

        config = _config()
        config.attributes["connection"] = session
        command.upgrade(config, "head")
    return newest()


def check_schema(db: Database, *, copies: bool = False) -> None:
    """Check that this release works on the schema. `copies`: and knows each column, to copy the rows.

    Raises `TemporaryError` for an older schema, and `UsageError`.
    """
    with db.reading() as session:
        found = current(session)
    if found is None or found < newest():
        raise TemporaryError(
            f"The database schema is {found or 'empty'}, and this registry needs revision {newest()}.",
            hint="Run `mxr-registry migrate` with the same MXR_DATABASE_URL, then start again.",
        )
    if copies and found != newest():
        raise _newer(found, "knows only a part of")


def current(session: Session) -> str | None:
    """Return the schema revision of the database, or None if it is empty.

    Raises `UsageError` for one that this release cannot work on.
    """
    known = inspect(session)
    if not known.has_table("alembic_version"):
        return None
    found: str | None = session.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if found is None or found in revisions():
        return found
    marked = found > newest() and any(each["name"] == "compatible" for each in known.get_columns("registry"))
    oldest = session.execute(text("SELECT compatible FROM registry")).scalar() if marked else None
    if oldest is None or oldest > newest():
        raise _newer(found, "does not know")
    log.warning("the database schema is that of a newer release (%s); this one works on it", found)
    return found


def _newer(found: str, words: str) -> UsageError:
    return UsageError(
        f"The database schema has revision {found}, which this registry {words}.",
        hint="Run the mxr-registry that migrated it, or restore a backup from before that.",
    )


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
