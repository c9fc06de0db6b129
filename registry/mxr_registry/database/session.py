"""Database sessions: one engine per process, and the only code that begins, commits or rolls back transactions.

SQLite runs one write transaction at a time. PostgreSQL runs them concurrently at READ COMMITTED; code that decides on
what it read locks it first: rows with SELECT ... FOR UPDATE, anything else with `advisory_lock`. docs/decisions/0008
lists these cases. On both, a read transaction sees one snapshot.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, Float, Select, bindparam, func, select, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from mxr.artifact.matching import BUILT_ONLY
from mxr.errors import TemporaryError
from mxr_registry import wait_budget
from mxr_registry.config.connections import ConnectionSettings

from .engine import BUSY, apply_pragmas, engine_of
from .errors import SERVER_HINT, is_crowded, is_hung, translate_errors

if TYPE_CHECKING:
    # The Unpack of `typing` is new in Python 3.11.
    from typing_extensions import Unpack

    from mxr_registry.signer import Signer

__all__ = [
    "Database",
    "Now",
    "PreparedQuery",
    "Row",
    "Session",
    "advisory_lock",
    "default_serve",
    "now",
    "signer_of",
    "translate_errors",
    "upsert",
]

Session = Connection
"""One transaction. It returns rows, not ORM entities: with entities, a resolve costs twice as much."""

Row = Any
"""One result row, with its columns as attributes."""

MAX_AT_ONCE = 64 << 10
"""Bytes of one value, and of all text together, that `run_at_once` reads."""

ADVISORY_LOCK = select(func.pg_advisory_xact_lock(bindparam("number")))


HUNG_PAUSE = 2.0
"""Seconds without requests to a server that did not answer one of them."""

LONG_ENOUGH = 1.0
"""Seconds that must be left for another attempt."""

CROWDED_PAUSE = 0.1
"""Seconds, about, until a server without a free connection is asked again."""


class Now(FunctionElement[float]):
    """The clock of the database in seconds since 1970, which all registries on one database share."""

    type = Float()
    inherit_cache = True


@compiles(Now, "sqlite")
def _now_sqlite(_element: Now, _compiler: Any, **_options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(Now)
def _now_elsewhere(_element: Now, _compiler: Any, **_options: Any) -> str:
    return "EXTRACT(EPOCH FROM clock_timestamp())"


def now(session: Session) -> float:
    """Return the time by the database's clock, in seconds since 1970, rounded to milliseconds."""
    return round(float(session.execute(select(Now())).scalar_one()), 3)


class PreparedQuery:
    """A frequent SELECT, and its SQL for SQLite, compiled once. Its constants are `literal_column`s."""

    def __init__(self, statement: Select[Unpack[tuple[Any, ...]]]) -> None:
        self.statement = statement
        names = [column.key for column in statement.selected_columns if column.key]
        named: Any = namedtuple("PreparedRow", names)  # type: ignore[misc]
        self.row: Callable[[Iterable[Any]], Row] = named._make

    @cached_property
    def sqlite(self) -> str:
        """The SQL for SQLite."""
        # Imported on demand: the dialects are large, and a registry uses only one of them.
        from sqlalchemy.dialects.sqlite import dialect

        return str(self.statement.compile(dialect=dialect(paramstyle="named")))


class Database:
    """The engine and its transactions.

    `run_at_once` has a private SQLite connection that bypasses SQLAlchemy. `bench/bench_resolve.py` measures what it
    brings to resolves; remove it if that benchmark no longer needs it.
    """

    def __init__(
        self,
        url: str,
        connections: ConnectionSettings | None = None,
        serve: str = BUILT_ONLY,
        signer: Signer | None = None,
    ) -> None:
        """Open no connection. `serve`: see `default_serve`; `signer`: signs what is published.

        Raises `UsageError` for an invalid URL.
        """
        self.serve = serve
        engine = engine_of(url, connections or ConnectionSettings())
        self.engine = engine.execution_options(mxr_serve=serve, mxr_signer=signer)
        self.embedded = self.engine.dialect.name == "sqlite"
        reading: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        writing: dict[str, Any] = {"isolation_level": "READ COMMITTED"}
        self._reader = self.engine if self.embedded else self.engine.execution_options(**reading)
        # A statement alone needs no transaction around it, which takes two more exchanges with the server.
        self._single = self.engine if self.embedded else self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._writer = self.engine.execution_options(mxr_writes=True, **({} if self.embedded else writing))
        self._at_once: sqlite3.Connection | None = None
        self._hung_until = 0.0

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a read-only transaction, which sees one snapshot. Raises `TemporaryError`."""
        with translate_errors(), self._connect(self._reader) as session:
            yield session

    @contextlib.contextmanager
    def _connect(self, engine: Engine) -> Iterator[Session]:
        """Take a connection. Where the server has no more of them, wait for one that comes back.

        While the server hangs, requests are refused at once: each would hold a thread until its time is over.
        """
        if not self.embedded and wait_budget.left() is not None and time.monotonic() < self._hung_until:
            raise TemporaryError("The registry's database did not answer a moment ago.", hint=SERVER_HINT)
        try:
            with self._take(engine) as session:
                yield session
        except DBAPIError as problem:
            if is_hung(problem):
                self._hung_until = time.monotonic() + HUNG_PAUSE
            raise

    def _take(self, engine: Engine) -> Session:
        with wait_budget.waiting() as seconds:
            end = time.monotonic() + (0.0 if seconds is None else seconds)
            while True:
                try:
                    return engine.connect()
                except OperationalError as problem:
                    if not is_crowded(problem) or time.monotonic() > end:
                        raise
                time.sleep(CROWDED_PAUSE * (0.5 + random.random()))

    def ping(self) -> None:
        """Check that the database answers a query. Raises `TemporaryError`."""
        with self.reading() as session:
            session.execute(text("SELECT 1"))

    @contextlib.contextmanager
    def writing(self, *, lock_timeout: float = BUSY) -> Iterator[Session]:
        """Open a read-write transaction: committed at the end of the block, rolled back if the block raises.

        Waits up to `lock_timeout` seconds for locks: on SQLite for the write lock at the start, on PostgreSQL for each
        locked row (there, the default is the setting `lock`). Raises `TemporaryError`, `DiskFullError`, and
        SQLAlchemy's `IntegrityError`, which the caller has to handle.
        """
        with translate_errors(), self._connect(self._writer) as session:
            if lock_timeout == BUSY:
                with session.begin():
                    yield session
            elif self.embedded:
                _set_busy_timeout(session, lock_timeout)
                try:
                    with session.begin():
                        yield session
                finally:
                    _set_busy_timeout(session, BUSY)
            else:
                with session.begin():
                    session.execute(text(f"SET LOCAL lock_timeout = {int(lock_timeout * 1000)}"))
                    yield session

    def run(self, query: PreparedQuery, values: Mapping[str, object]) -> list[Row]:
        """Run one statement outside of any transaction and return its rows. Raises `TemporaryError`."""
        with translate_errors():
            try:
                return self._run(query, values)
            except DBAPIError as problem:
                if not problem.connection_invalidated or (wait_budget.left() or LONG_ENOUGH) < LONG_ENOUGH:
                    raise
            # A read can be repeated safely: this hides a restart of the database from clients.
            return self._run(query, values)

    def _run(self, query: PreparedQuery, values: Mapping[str, object]) -> list[Row]:
        with self._connect(self._single) as session:
            return list(session.execute(query.statement, values).all())

    def run_at_once(self, query: PreparedQuery, values: Mapping[str, object]) -> list[Row] | None:
        """Run a statement that reads a few indexed rows in the event loop itself, and return the rows.

        Handing a call to a thread and back costs several times as much. None where it could take longer: the database
        is a server, another connection has a lock, or the rows are large. Then call `run` in a thread.
        """
        if not self.embedded:
            return None
        try:
            self._at_once = self._at_once or self._open_at_once()
            rows, size = [], 0
            for row in self._at_once.execute(query.sqlite, values):
                size += sum(len(value) for value in row if isinstance(value, str))
                if size > MAX_AT_ONCE:
                    return None
                rows.append(query.row(row))
        except sqlite3.Error:
            return None
        return rows

    def _open_at_once(self) -> sqlite3.Connection:
        path = self.engine.url.database or ":memory:"
        connection = sqlite3.connect(path, check_same_thread=False)
        try:
            apply_pragmas(connection, busy=0.0)
            if sys.version_info >= (3, 11):
                # A larger value is not read from the disk: the statement fails.
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_AT_ONCE)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def open_connection(self) -> None:
        """Open a connection and leave it in the pool. Raises `TemporaryError`."""
        with self.reading() as session:
            session.execute(select(1))

    def close(self) -> None:
        """Close every connection that is not in use."""
        self.engine.dispose()
        if self._at_once is not None:
            self._at_once.close()
            self._at_once = None


def _set_busy_timeout(session: Session, seconds: float) -> None:
    raw = session.connection.driver_connection
    assert raw is not None
    raw.execute(f"PRAGMA busy_timeout={int(seconds * 1000)}")


def default_serve(session: Session) -> str:
    """Return the rule `serve` of namespaces without one of their own. The process decides it, by where it listens."""
    return str(session.get_execution_options()["mxr_serve"])


def signer_of(session: Session) -> Signer | None:
    """Return what signs for this process; None where it publishes nothing."""
    found: Signer | None = session.get_execution_options()["mxr_signer"]
    return found


def advisory_lock(session: Session, *names: str) -> None:
    """Lock these names until the end of the transaction. Waits for other transactions that hold one of them.

    Does nothing on SQLite, which runs only one write transaction at a time.
    """
    if session.dialect.name == "sqlite":
        return
    numbers = {int.from_bytes(sha256(name.encode()).digest()[:8], "big", signed=True) for name in names}
    # Always in the same order, to avoid deadlocks.
    for number in sorted(numbers):
        session.execute(ADVISORY_LOCK, {"number": number})


def upsert(
    session: Session, table: Any, keys: Mapping[str, Any], values: Mapping[str, Any], change: Mapping[str, Any]
) -> None:
    """Insert a row with `keys` and `values`, or apply `change` to the existing row with these keys."""
    if session.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert
    else:
        from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
    statement = insert(table).values(**keys, **values)
    session.execute(statement.on_conflict_do_update(index_elements=list(keys), set_=dict(change)))
