"""Going through the steps of the schema, whatever they are: each revision there ever was, with rows in every table."""

from __future__ import annotations

import contextlib
from typing import Any

from alembic import command
from alembic.script import ScriptDirectory
from harness.programs import run as run_program
from sqlalchemy import BigInteger, Boolean, Float, Integer, LargeBinary, MetaData, Table, event, insert, inspect, select

from mxr_registry.database import schema
from mxr_registry.database.session import Database, Session

STATED: dict[tuple[str, str], Any] = {("jobs", "state"): "done", ("registry", "compatible"): "0001"}
"""Values of columns that the usual ones would not fit."""

DEATH = """
import os, signal, sys
from sqlalchemy import event
from mxr_registry.database import schema
from mxr_registry.database.session import Database

db, left = Database(sys.argv[1]), int(sys.argv[2])

@event.listens_for(db.engine, "after_cursor_execute")
def count(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

schema.upgrade(db)
"""


def revisions() -> list[str]:
    """All revisions, the first step first."""
    scripts = ScriptDirectory.from_config(schema._config()).walk_revisions()
    return [script.revision for script in scripts][::-1]


def go_to(db: Database, revision: str) -> None:
    """Bring an older or empty database to a revision; `base` is none at all."""
    with db.writing() as session:
        config = schema._config()
        config.attributes["connection"] = session
        if revision == "base":
            command.downgrade(config, revision)
        else:
            command.upgrade(config, revision)


def fill(db: Database) -> dict[str, list[dict[str, Any]]]:
    """Put two rows into every table that there is; what is in all tables then."""
    with db.writing() as session:
        tables = reflected(session)
        for table in tables:
            known: list[dict[str, Any]] = [dict(row) for row in session.execute(select(table)).mappings()]
            for number in (1, 2):
                if len(known) < number:
                    session.execute(insert(table), _row(table, number))
        return contents(session, tables)


def reflected(session: Session) -> list[Table]:
    """The tables as the database has them, each after those that it refers to."""
    found = MetaData()
    found.reflect(session, only=lambda name, _: name not in ("alembic_version", "sqlite_sequence"))
    return found.sorted_tables


def contents(session: Session, tables: list[Table]) -> dict[str, list[dict[str, Any]]]:
    """All rows by table, in the order of their keys."""
    asked = {table.name: select(table).order_by(*table.primary_key.columns) for table in tables}
    return {name: [dict(row) for row in session.execute(each).mappings()] for name, each in asked.items()}


def _row(table: Table, number: int) -> dict[str, Any]:
    return {column.name: _value(table, column, number) for column in table.columns}


def _value(table: Table, column: Any, number: int) -> Any:
    if (table.name, column.name) in STATED:
        return STATED[table.name, column.name]
    if column.name.endswith("_json"):
        return f'{{"n":{number}}}'
    for kind, value in (
        (Boolean, number == 1),
        (LargeBinary, f"bytes {number}".encode()),
        ((Integer, BigInteger), number),
        (Float, number + 0.25),
    ):
        if isinstance(column.type, kind):
            return value
    # The same in every table, so that what refers to another row finds it.
    return f"{column.name if column.name != 'calibration' else 'sha256'} {number}"


def tables_of(db: Database) -> list[str]:
    """The names of the tables."""
    with db.reading() as session:
        return sorted(inspect(session).get_table_names())


def revision_of(db: Database) -> str | None:
    """The revision that the database is at."""
    with db.reading() as session:
        return schema.current(session)


class Enough(Exception):
    """Ends a transaction that was to be looked at only."""


def statements(db: Database) -> int:
    """How many statements an upgrade takes from here; it is taken back."""
    counted = 0

    def count(*_: Any) -> None:
        nonlocal counted
        counted += 1

    def stop(*_: Any) -> None:
        raise Enough

    event.listen(db.engine, "after_cursor_execute", count)
    event.listen(db.engine, "commit", stop)
    try:
        with contextlib.suppress(Enough):
            schema.upgrade(db)
    finally:
        event.remove(db.engine, "after_cursor_execute", count)
        event.remove(db.engine, "commit", stop)
    return counted


def upgrade_and_die(url: str, statement: int) -> None:
    """Upgrade in a process that is killed after so many statements."""
    words = ["python", "-c", DEATH, url, str(statement)]
    done = run_program(words)
    assert done.returncode == -9, done
