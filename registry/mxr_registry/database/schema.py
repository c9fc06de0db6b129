"""Which schema the database has, which one this code needs, and the way from one to the other (Alembic).

The embedded database is brought up to date by whoever starts on it first; a server's only by `mxr-registry migrate`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Table, inspect, text

from mxr.errors import MxrError, Temporary

from .session import Database, Session, take_turns

if TYPE_CHECKING:
    from alembic.config import Config

SCRIPTS = "mxr_migrations:."


def upgrade(db: Database) -> str:
    """Bring the schema up to date, in one transaction: all of it or nothing; the revision that it has then.

    Several processes may do so at once: one works and the others wait. Raises `MxrError` for a schema of a newer
    registry, `Temporary` where a registry that runs keeps the tables busy for a minute.
    """
    with db.writing(patience=60.0) as session:
        if not db.embedded:
            # A step may read every row, which takes as long as it takes.
            session.execute(text("SET LOCAL statement_timeout = 0"))
        take_turns(session, "schema")
        if known(session) == newest():
            return newest()
        # Alembic is large, and nearly every start goes without a step.
        from alembic import command

        config = _config()
        config.attributes["connection"] = session
        command.upgrade(config, "head")
    return newest()


def check(db: Database) -> None:
    """Returns when the schema is the one that this code needs. Raises `Temporary` when it is behind."""
    with db.reading() as session:
        found = known(session)
    if found != newest():
        raise Temporary(
            f"The database's schema is {found or 'empty'}, and this registry needs {newest()}.",
            hint="Run `mxr-registry migrate` with the same MXR_DATABASE_URL, then start again.",
        )


def known(session: Session) -> str | None:
    """The revision of the database, or None where it is empty. Raises `MxrError` for one of a newer registry."""
    written = inspect(session).has_table("alembic_version")
    found: str | None = session.execute(text("SELECT version_num FROM alembic_version")).scalar() if written else None
    if found is not None and found not in revisions():
        raise MxrError(
            f"The database's schema is {found}, of a newer registry than this one.",
            hint="Start the newer mxr-registry on it, or restore the backup from before.",
        )
    return found


def newest() -> str:
    """The revision that this code needs."""
    return revisions()[-1]


def revisions() -> list[str]:
    """The revisions that this code knows, in order. The file of each step begins with its revision."""
    found = find_spec(SCRIPTS.partition(":")[0])
    assert found is not None and found.submodule_search_locations
    return sorted(path.name[:4] for path in Path(found.submodule_search_locations[0], "versions").glob("[0-9]*.py"))


def tables() -> list[Table]:
    """All tables of this code, each after those that it refers to."""
    from . import job_tables

    return job_tables.JobRow.metadata.sorted_tables


def present(db: Database) -> bool:
    """Whether the database has a registry's tables at all."""
    with db.reading() as session:
        return inspect(session).has_table("artifacts")


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    config.set_main_option("path_separator", "os")
    return config
