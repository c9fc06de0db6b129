"""Which schema the database has, which one this code needs, and the way from one to the other (Alembic).

The embedded database is brought up to date by whoever starts on it first; a server's only by `mxr-registry migrate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import inspect

from mxr.errors import MxrError, Temporary

from .db import Database, Session

if TYPE_CHECKING:
    from alembic.config import Config

SCRIPTS = "mxr_migrations:."


def upgrade(db: Database) -> str:
    """Bring the schema up to date, in one transaction: all of it or nothing; the revision that it has then.

    Several processes may do so at once on SQLite: one works and the others wait. Raises `MxrError` for a schema of a
    newer registry.
    """
    from alembic import command

    with db.writing(patience=60.0) as session:
        known(session)
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
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    found = MigrationContext.configure(session).get_current_revision()
    scripts = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if found is not None and found not in scripts:
        raise MxrError(
            f"The database's schema is {found}, of a newer registry than this one.",
            hint="Start the newer mxr-registry on it, or restore the backup from before.",
        )
    return found


def newest() -> str:
    """The revision that this code needs."""
    from alembic.script import ScriptDirectory

    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


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
