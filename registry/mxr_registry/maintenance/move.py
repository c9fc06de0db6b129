"""Moving a registry to another database, and to another store if wanted: all rows and all bytes, or nothing.

    look at both ends -> copy the bytes, each checked -> one transaction: rows by table, numbers to go on from, counts

The source is only read, and kept from changing meanwhile. Bytes come first, so that no row ever points to nothing;
those that are there already are left, so that a move which was interrupted goes on where it was. Tables are taken from
the metadata, each after those that it refers to: those of later schemas come along.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Column, Table, delete, func, insert, select, text
from sqlalchemy.exc import DataError

from mxr.errors import Conflict, Damaged, MxrError, NoSuchBlob, Temporary, Usage
from mxr_registry.database import schema
from mxr_registry.database.session import Database, Session, take_turns, translated
from mxr_registry.database.tables import BlobRow
from mxr_registry.storage.store import Store

PAGE = 1_000
SEEDED = frozenset({"counters"})
"""Tables in which the steps of the schema themselves write rows: those of the source take their place."""


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What a move did: rows in all, blobs that it copied, blobs that were there already, bytes that it copied."""

    rows: int
    copied: int
    present: int
    bytes: int

    def to_json(self) -> dict[str, int]:
        """`{"rows","copied","present","bytes"}`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Move:
    """One move. `stores`: source and target of the bytes, or None where they stay. `say` hears how far it is."""

    source: Database
    target: Database
    stores: tuple[Store, Store] | None
    say: Callable[[str], None]

    def run(self) -> MoveResult:
        """Move everything. Raises `Conflict` for a target that is not empty, `Temporary` for a source in use."""
        schema.check(self.source)
        try:
            schema.check(self.target)
        except Temporary as problem:
            raise Temporary(
                f"The database to move to is not prepared. {problem.message}",
                hint="Run `mxr-registry migrate` with MXR_DATABASE_URL set to the URL of --to-database, then move.",
            ) from problem
        with self.target.reading() as session:
            _demand_empty(session)
        with still(self.source) as source:
            copied, present, size = self._bytes(source)
            with self.target.writing(patience=60.0) as target:
                _reserve(target)
                _demand_empty(target)
                rows = sum(self._table(source, target, table) for table in schema.tables())
        return MoveResult(rows, copied, present, size)

    def _bytes(self, source: Session) -> tuple[int, int, int]:
        if self.stores is None:
            return 0, 0, 0
        blobs = session_blobs(source)
        copied = present = size = 0
        for number, (sha256, expected) in enumerate(blobs, 1):
            if _is_there(self.stores[1], sha256, expected):
                present += 1
            else:
                copy_blob(*self.stores, sha256, expected)
                copied, size = copied + 1, size + expected
            if number % PAGE == 0:
                self.say(f"{number} of {len(blobs)} blobs")
        self.say(f"{copied} blobs copied, {present} were there already")
        return copied, present, size

    def _table(self, source: Session, target: Session, table: Table) -> int:
        if table.name in SEEDED:
            target.execute(delete(table))
        count = 0
        asked = select(table).order_by(*table.primary_key.columns)
        for page in source.execute(asked, execution_options={"yield_per": PAGE}).mappings().partitions():
            try:
                target.execute(insert(table), [dict(row) for row in page])
            except DataError as problem:
                raise Usage(
                    f"A row of {table.name} cannot be kept there: {problem.orig}"[:300],
                    hint="Nothing was changed. Correct or remove it in the source.",
                ) from problem
            count += len(page)
        _go_on(source, target, table)
        there = target.execute(select(func.count()).select_from(table)).scalar_one()
        if there != count:
            raise MxrError(f"{table.name}: {count} rows were read and {there} arrived; nothing was changed.")
        if count:
            self.say(f"{table.name}: {count} rows")
        return count


def session_blobs(session: Session) -> list[tuple[str, int]]:
    """All blobs with their sizes, each once."""
    asked = select(BlobRow.sha256, BlobRow.size).distinct().order_by(BlobRow.sha256)
    return [(sha256, size) for sha256, size in session.execute(asked)]


def copy_blob(source: Store, target: Store, sha256: str, size: int) -> None:
    """Copy one blob; its sha256 is checked while it arrives. Raises `Damaged` where the source no longer has it."""
    upload = target.begin(sha256, size)
    try:
        for data in source.read(sha256):
            upload.write(data)
        upload.commit()
    except (NoSuchBlob, Damaged) as problem:
        raise Damaged(
            f"Blob {sha256} is lost or damaged in the store that it should come from.",
            hint="`mxr-registry fsck` says what needs it: push that again, or remove it, and move then.",
            detail={"sha256": sha256},
        ) from problem
    finally:
        upload.discard()


def _is_there(store: Store, sha256: str, size: int) -> bool:
    with contextlib.suppress(NoSuchBlob, Damaged):
        return store.stat(sha256) == size and store.check(sha256) == size
    return False


@contextlib.contextmanager
def still(db: Database) -> Iterator[Session]:
    """A transaction that reads, while nothing else writes. Raises `Temporary` where a registry has the database open.

    SQLite is taken for this process alone; PostgreSQL goes on answering those who read.
    """
    if db.embedded:
        # Our own connections would stand in the way.
        db.close()
    with translated(), db.engine.execution_options(mxr_writes=db.embedded).connect() as session:
        if db.embedded:
            _take_alone(session)
        session.execute(text("SELECT 1"))
        if not db.embedded:
            unhurried(session)
            names = ", ".join(table.name for table in schema.tables())
            session.execute(text(f"LOCK TABLE {names} IN SHARE MODE"))
        try:
            yield session
        finally:
            session.rollback()
            if db.embedded:
                # The lock goes with the connection.
                session.invalidate()


def _take_alone(session: Session) -> None:
    raw: Any = session.connection.driver_connection
    try:
        raw.execute("PRAGMA busy_timeout=1000")
        # A registry that is served holds a shared lock for each of its connections, whether it writes or not.
        raw.execute("PRAGMA locking_mode=EXCLUSIVE")
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("ROLLBACK")
    except Exception as problem:
        session.invalidate()
        if "locked" not in str(problem):
            raise
        raise Temporary(
            "The registry that is to be moved is in use.", hint="Stop every mxr-registry on it, then move."
        ) from None


def unhurried(session: Session) -> None:
    """Lift the timeouts for this transaction on PostgreSQL: it takes as long as it takes."""
    for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
        session.execute(text(f"SET LOCAL {name} = 0"))


def _reserve(session: Session) -> None:
    """Keep others from writing into the target meanwhile."""
    if session.dialect.name != "sqlite":
        unhurried(session)
        take_turns(session, "schema")
        names = ", ".join(table.name for table in schema.tables())
        session.execute(text(f"LOCK TABLE {names} IN EXCLUSIVE MODE"))


def _demand_empty(session: Session) -> None:
    for table in schema.tables():
        if table.name not in SEEDED and session.execute(select(table).limit(1)).first() is not None:
            raise Conflict(
                f"The database to move to is not empty: there are rows in {table.name}.",
                hint="Move into a new database that `mxr-registry migrate` prepared and no registry served yet.",
            )


def _go_on(source: Session, target: Session, table: Table) -> None:
    """Have the target number new rows after the last that the source ever gave: no number comes twice."""
    column = table.autoincrement_column
    if column is None:
        return
    last = max(_last(source, table, column), target.execute(select(func.max(column))).scalar() or 0)
    if not last:
        return
    if target.dialect.name == "sqlite":
        target.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": table.name})
        words = "INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :last)"
    else:
        words = "SELECT setval(pg_get_serial_sequence(:name, :column), :last)"
    given = {"name": table.name, "column": column.name, "last": last}
    target.execute(text(words), {name: value for name, value in given.items() if f":{name}" in words})


def _last(session: Session, table: Table, column: Column[Any]) -> int:
    if session.dialect.name == "sqlite":
        asked = text("SELECT seq FROM sqlite_sequence WHERE name = :name")
        return int(session.execute(asked, {"name": table.name}).scalar() or 0)
    sequence = session.execute(select(func.pg_get_serial_sequence(table.name, column.name))).scalar_one()
    return int(
        session.execute(text(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}")).scalar_one()
    )
