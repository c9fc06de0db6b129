"""The database: one engine per process, and the one place where a transaction begins, commits or rolls back.

On SQLite one transaction at a time writes. On PostgreSQL they run side by side at READ COMMITTED, and whoever decides
by what he read locks it first: rows by SELECT ... FOR UPDATE, what is no row by `take_turns`. docs/decisions/0008 goes
through them. What only reads sees one snapshot on both.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Float, Select, bindparam, func, select, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from mxr_registry.config.connections import ConnectionSettings

from .engine import BUSY, engine_of, prepare_sqlite
from .errors import known_trouble, translated

__all__ = ["Database", "Now", "PreparedQuery", "Row", "Session", "now", "take_turns", "translated", "upsert"]

Session = Connection
"""One transaction. Rows, not entities: a resolve with mapped entities costs twice as much."""

Row = Any
"""One row of an answer, its columns by their names."""

TURN = select(func.pg_advisory_xact_lock(bindparam("number")))


class Now(FunctionElement[float]):
    """The database's clock, in seconds since 1970: several registries on one database have one clock."""

    type = Float()
    inherit_cache = True


@compiles(Now, "sqlite")
def _now_sqlite(_element: Now, _compiler: Any, **_options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(Now)
def _now_elsewhere(_element: Now, _compiler: Any, **_options: Any) -> str:
    return "EXTRACT(EPOCH FROM clock_timestamp())"


def now(session: Session) -> float:
    """The time by the database's clock, in seconds since 1970, to the millisecond."""
    return round(float(session.execute(select(Now())).scalar_one()), 3)


class PreparedQuery:
    """A SELECT that is asked often, as SQLAlchemy has it, and in the own words of SQLite and of psycopg."""

    def __init__(self, statement: Select[*tuple[Any, ...]]) -> None:
        self.statement = statement
        names = [column.key for column in statement.selected_columns if column.key]
        named: Any = namedtuple("Found", names)  # type: ignore[misc]
        self.row: Callable[[Iterable[Any]], Row] = named._make

    # The dialects are large, and a registry speaks one of them.
    @cached_property
    def sqlite(self) -> str:
        """The words for SQLite."""
        from sqlalchemy.dialects.sqlite import dialect

        return str(self.statement.compile(dialect=dialect(paramstyle="named")))

    @cached_property
    def postgresql(self) -> str:
        """The words for psycopg."""
        from sqlalchemy.dialects.postgresql.psycopg import dialect

        return str(self.statement.compile(dialect=dialect()))  # type: ignore[no-untyped-call]


class Database:
    """The engine, and transactions on it."""

    def __init__(self, url: str, connections: ConnectionSettings | None = None) -> None:
        """Connects to nothing yet. Raises `Usage` for a URL that is none."""
        self.engine = engine_of(url, connections or ConnectionSettings())
        self.embedded = self.engine.dialect.name == "sqlite"
        reading: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        writing: dict[str, Any] = {"isolation_level": "READ COMMITTED"}
        self._reader = self.engine if self.embedded else self.engine.execution_options(**reading)
        self._writer = self.engine.execution_options(mxr_writes=True, **({} if self.embedded else writing))
        self._idle: deque[sqlite3.Connection] = deque()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that only reads: one snapshot for all its statements. Raises `Temporary`."""
        with translated(), self._reader.connect() as session:
            yield session

    def ping(self) -> None:
        """Returns when the database answers a query. Raises `Temporary`."""
        with self.reading() as session:
            session.execute(text("SELECT 1"))

    @contextlib.contextmanager
    def writing(self, *, patience: float = BUSY) -> Iterator[Session]:
        """A transaction, committed at the end of the block and rolled back by any error in it.

        Waits up to `patience` seconds for its turn: on SQLite at the start, on PostgreSQL at each row that another
        holds (there the usual patience is a setting). Raises `Temporary`, `DiskFull`, and SQLAlchemy's
        `IntegrityError`, which is the caller's to explain.
        """
        with translated(), self._writer.connect() as session:
            if patience == BUSY:
                with session.begin():
                    yield session
            elif self.embedded:
                _set_patience(session, patience)
                try:
                    with session.begin():
                        yield session
                finally:
                    _set_patience(session, BUSY)
            else:
                with session.begin():
                    session.execute(text(f"SET LOCAL lock_timeout = {int(patience * 1000)}"))
                    yield session

    def glance(self, question: PreparedQuery, values: Mapping[str, object]) -> list[Row]:
        """The rows that one statement finds, without a transaction around it. Raises `Temporary`.

        It goes past SQLAlchemy, which takes several times as long as such a statement itself.
        """
        return self._glance_embedded(question, values) if self.embedded else self._glance_server(question, values)

    def _glance_embedded(self, question: PreparedQuery, values: Mapping[str, object]) -> list[Row]:
        try:
            connection = self._idle.pop() if self._idle else self._connect()
            try:
                return [question.row(row) for row in connection.execute(question.sqlite, values)]
            finally:
                self._idle.append(connection)
        except sqlite3.Error as problem:
            known = known_trouble(OperationalError(question.sqlite, None, problem))
            raise known or problem from problem

    def _glance_server(self, question: PreparedQuery, values: Mapping[str, object]) -> list[Row]:
        with translated():
            try:
                return self._ask(question, values)
            except DBAPIError as problem:
                if not problem.connection_invalidated:
                    raise
            # What only reads may be asked twice: a restart of the database need not show.
            return self._ask(question, values)

    def _ask(self, question: PreparedQuery, values: Mapping[str, object]) -> list[Row]:
        errors = self.engine.dialect.loaded_dbapi.Error
        driver: Any = None
        try:
            connection = self.engine.raw_connection()
            driver = connection.driver_connection
            try:
                driver.autocommit = True
                found = [question.row(row) for row in driver.execute(question.postgresql, values)]
                driver.autocommit = False
            except BaseException:
                connection.invalidate()
                raise
        except errors as problem:
            lost = driver is not None and driver.pgconn.status != 0
            words = question.postgresql
            raise DBAPIError.instance(words, None, problem, errors, connection_invalidated=lost) from problem
        connection.close()
        return found

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.engine.url.database or ":memory:", check_same_thread=False, timeout=BUSY)
        prepare_sqlite(connection)
        return connection

    def wake(self) -> None:
        """Open a connection, and keep it for later. Raises `Temporary`."""
        with self.reading() as session:
            session.execute(select(1))

    def close(self) -> None:
        """Close every connection that is not in use."""
        self.engine.dispose()
        while self._idle:
            self._idle.pop().close()


def _set_patience(session: Session, seconds: float) -> None:
    raw = session.connection.driver_connection
    assert raw is not None
    raw.execute(f"PRAGMA busy_timeout={int(seconds * 1000)}")


def take_turns(session: Session, *names: str) -> None:
    """Waits until no other transaction that writes has passed here with one of these names and is under way still.

    On SQLite that is so from the start: one transaction at a time writes.
    """
    if session.dialect.name == "sqlite":
        return
    numbers = {int.from_bytes(sha256(name.encode()).digest()[:8], signed=True) for name in names}
    # In one order for all, so that nobody waits for each other.
    for number in sorted(numbers):
        session.execute(TURN, {"number": number})


def upsert(
    session: Session, table: Any, keys: Mapping[str, Any], values: Mapping[str, Any], change: Mapping[str, Any]
) -> None:
    """Insert a row of `keys` and `values`, or make the changes in `change` to the row that has these keys."""
    if session.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert
    else:
        from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
    statement = insert(table).values(**keys, **values)
    session.execute(statement.on_conflict_do_update(index_elements=list(keys), set_=dict(change)))
