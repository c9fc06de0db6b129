"""Move a registry to another database, and optionally to another store: all rows and all blobs, or nothing.

    check both databases -> copy and verify the blobs -> one transaction: rows of each table, sequences, row counts

The source is only read, and locked against changes. Blobs come first, so that no row ever refers to a missing blob.
Blobs that the target already has are skipped, so that an interrupted move can resume. The tables come from the schema
metadata, each after the tables that it refers to; tables that later schemas add are included automatically.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Table, delete, func, insert, select, text
from sqlalchemy.exc import DataError

from mxr.display.text import counted
from mxr.errors import ConflictError, DamagedError, MxrError, NoSuchBlobError, TemporaryError, UsageError
from mxr_registry.database import schema
from mxr_registry.database.session import Database, Session, advisory_lock, translate_errors
from mxr_registry.database.tables import BlobRow
from mxr_registry.storage.store import Store

PAGE = 1_000
SEEDED = frozenset({"counters", "registry"})
"""Tables in which migrations insert rows. The rows of the source replace them."""


@dataclass(frozen=True, slots=True)
class MoveResult:
    """The result of a move: total rows, copied blobs, blobs that the target already had, and copied bytes."""

    rows: int
    copied: int
    present: int
    bytes: int

    def to_json(self) -> dict[str, int]:
        """`{"rows","copied","present","bytes"}`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Move:
    """One move. `stores`: source and target store, or None to keep the blobs. `on_progress` gets progress messages."""

    source: Database
    target: Database
    stores: tuple[Store, Store] | None
    on_progress: Callable[[str], None]

    def run(self) -> MoveResult:
        """Run the move.

        Raises `ConflictError` if the target is not empty, and `TemporaryError` if the source is in use.
        """
        schema.check_schema(self.source, copies=True)
        try:
            schema.check_schema(self.target, copies=True)
        except TemporaryError as problem:
            raise TemporaryError(
                f"The target database is not prepared. {problem.message}",
                hint="Run `mxr-registry migrate` with MXR_DATABASE_URL set to the URL of --to-database, then move.",
            ) from problem
        with self.target.reading() as session:
            _require_empty(session)
        with read_only_source(self.source) as source:
            copied, present, size = self._copy_blobs(source)
            with self.target.writing(lock_timeout=60.0) as target:
                _lock_tables(target)
                _require_empty(target)
                rows = sum(self._copy_table(source, target, table) for table in schema.tables())
        return MoveResult(rows, copied, present, size)

    def _copy_blobs(self, source: Session) -> tuple[int, int, int]:
        """Return the number of copied blobs, of blobs that the target already had, and of copied bytes."""
        if self.stores is None:
            return 0, 0, 0
        blobs = all_blobs(source)
        copied = present = size = 0
        for number, (sha256, expected) in enumerate(blobs, 1):
            if _has_blob(self.stores[1], sha256, expected):
                present += 1
            else:
                copy_blob(*self.stores, sha256, expected)
                copied, size = copied + 1, size + expected
            if number % PAGE == 0:
                self.on_progress(f"{number} of {len(blobs)} blobs")
        for id in self.stores[0].revoked_tokens():
            self.stores[1].record_revoked_token(id)
        for name, data in self.stores[0].notes().items():
            self.stores[1].keep_note(name, data)
        self.on_progress(f"{copied} blobs copied, {present} already present")
        return copied, present, size

    def _copy_table(self, source: Session, target: Session, table: Table) -> int:
        if table.name in SEEDED:
            target.execute(delete(table))
        count = 0
        query = select(table).order_by(*table.primary_key.columns)
        for page in source.execute(query, execution_options={"yield_per": PAGE}).mappings().partitions():
            try:
                target.execute(insert(table), [dict(row) for row in page])
            except DataError as problem:
                raise UsageError(
                    f"The target database rejected a row of {table.name}: {problem.orig}"[:300],
                    hint="Correct or remove the row in the source. The target was not changed.",
                ) from problem
            count += len(page)
        _set_sequence(source, target, table)
        written = target.execute(select(func.count()).select_from(table)).scalar_one()
        if written != count:
            raise MxrError(
                f"{table.name}: {count} rows were read but {written} were written; the target was not changed."
            )
        if count:
            self.on_progress(f"{table.name}: {counted(count, 'row')}")
        return count


def all_blobs(session: Session) -> list[tuple[str, int]]:
    """Return the sha256 and size of every blob, each once."""
    query = select(BlobRow.sha256, BlobRow.size).distinct().order_by(BlobRow.sha256)
    return [(sha256, size) for sha256, size in session.execute(query)]


def copy_blob(source: Store, target: Store, sha256: str, size: int) -> None:
    """Copy one blob and verify its sha256. Raises `DamagedError` if it is missing or damaged in the source."""
    upload = target.begin(sha256, size)
    try:
        for data in source.read(sha256):
            upload.write(data)
        upload.commit()
    except (NoSuchBlobError, DamagedError) as problem:
        raise DamagedError(
            f"Blob {sha256} is missing or damaged in the source store.",
            hint="Run `mxr-registry fsck` to list what needs it. Push or remove that, then try again.",
            context={"sha256": sha256},
        ) from problem
    finally:
        upload.discard()


def _has_blob(store: Store, sha256: str, size: int) -> bool:
    with contextlib.suppress(NoSuchBlobError, DamagedError):
        return store.stat(sha256) == size and store.check(sha256) == size
    return False


@contextlib.contextmanager
def read_only_source(db: Database) -> Iterator[Session]:
    """Open a read transaction and keep others from writing. Raises `TemporaryError` if a registry is using the
    database.

    SQLite is locked exclusively for this process. PostgreSQL still serves readers.
    """
    if db.embedded:
        # Connections of this process would conflict with the exclusive lock.
        db.close()
    with translate_errors(), db.engine.execution_options(mxr_writes=db.embedded).connect() as session:
        if db.embedded:
            _lock_exclusively(session)
        session.execute(text("SELECT 1"))
        if not db.embedded:
            _disable_timeouts(session)
            names = ", ".join(table.name for table in schema.tables())
            session.execute(text(f"LOCK TABLE {names} IN SHARE MODE"))
        try:
            yield session
        finally:
            session.rollback()
            if db.embedded:
                # Closing the connection releases the lock.
                session.invalidate()


def _lock_exclusively(session: Session) -> None:
    raw: Any = session.connection.driver_connection
    try:
        raw.execute("PRAGMA busy_timeout=1000")
        # A running registry holds a shared lock per connection, even when it does not write.
        raw.execute("PRAGMA locking_mode=EXCLUSIVE")
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("ROLLBACK")
    except Exception as problem:
        session.invalidate()
        if "locked" not in str(problem):
            raise
        raise TemporaryError(
            f"The registry in {Path(session.engine.url.database or '').parent} is in use.",
            hint="Stop every mxr-registry that uses it, then try again.",
        ) from None


def _disable_timeouts(session: Session) -> None:
    """Disable the timeouts of PostgreSQL for this transaction, whose duration has no limit."""
    for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
        session.execute(text(f"SET LOCAL {name} = 0"))


def _lock_tables(session: Session) -> None:
    """Keep others from writing to the target until the end of the transaction."""
    if session.dialect.name != "sqlite":
        _disable_timeouts(session)
        advisory_lock(session, "schema")
        names = ", ".join(table.name for table in schema.tables())
        session.execute(text(f"LOCK TABLE {names} IN EXCLUSIVE MODE"))


def _require_empty(session: Session) -> None:
    for table in schema.tables():
        if table.name not in SEEDED and session.execute(select(table).limit(1)).first() is not None:
            raise ConflictError(
                f"The target database is not empty: {table.name} has rows.",
                hint="Move to a new database, prepared with `mxr-registry migrate` and not served by any registry yet.",
            )


def _set_sequence(source: Session, target: Session, table: Table) -> None:
    """Continue the row numbers of the source in the target, so that no number is ever reused."""
    column = table.autoincrement_column
    if column is None:
        return
    last = max(_last(source, table, column), target.execute(select(func.max(column))).scalar() or 0)
    if not last:
        return
    if target.dialect.name == "sqlite":
        target.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": table.name})
        sql = "INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :last)"
    else:
        sql = "SELECT setval(pg_get_serial_sequence(:name, :column), :last)"
    values = {"name": table.name, "column": column.name, "last": last}
    target.execute(text(sql), {name: value for name, value in values.items() if f":{name}" in sql})


def _last(session: Session, table: Table, column: Column[Any]) -> int:
    """The last row number that the source ever assigned, or 0."""
    if session.dialect.name == "sqlite":
        query = text("SELECT seq FROM sqlite_sequence WHERE name = :name")
        return int(session.execute(query, {"name": table.name}).scalar() or 0)
    sequence = session.execute(select(func.pg_get_serial_sequence(table.name, column.name))).scalar_one()
    return int(
        session.execute(text(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}")).scalar_one()
    )
