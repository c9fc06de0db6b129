"""The database: one engine per process, and the one place where a transaction begins, commits or rolls back.

SQLite runs in WAL mode, so that readers never wait for the writer, and with synchronous=FULL: a publication that was
answered with success is still there after a power cut (NORMAL could lose the last commits). A transaction that writes
begins with BEGIN IMMEDIATE: it waits for its turn at the start, instead of failing in the middle.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections import deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Engine, Float, Select, create_engine, event, make_url, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from mxr.errors import DiskFull, MxrError, Temporary, Usage

log = logging.getLogger("mxr_registry")

Session = Connection
"""One transaction. Rows, not entities: a resolve with mapped entities costs twice as much."""

Row = Any
"""One row of an answer, its columns by their names."""

BUSY = 10.0
"""Seconds that a writer waits for its turn on SQLite."""

PRAGMAS = ("synchronous=FULL", "foreign_keys=ON", "mmap_size=268435456", "cache_size=-16384", "temp_store=MEMORY")


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


class Question:
    """A SELECT that is asked often: as SQLAlchemy has it, and as SQLite's own words with named values."""

    def __init__(self, statement: Select[*tuple[Any, ...]]) -> None:
        self.statement = statement
        self.sqlite = str(statement.compile(dialect=sqlite.dialect(paramstyle="named")))
        names = [column.key for column in statement.selected_columns if column.key]
        named: Any = namedtuple("Found", names)  # type: ignore[misc]
        self.row: Callable[[Iterable[Any]], Row] = named._make


class Database:
    """The engine, and transactions on it."""

    def __init__(self, url: str) -> None:
        self.engine = engine_of(url)
        self.embedded = self.engine.dialect.name == "sqlite"
        self._writer = self.engine.execution_options(mxr_writes=True)
        self._idle: deque[sqlite3.Connection] = deque()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that only reads: one snapshot for all its statements. Raises `Temporary`."""
        with translated(), self.engine.connect() as session:
            yield session

    @contextlib.contextmanager
    def writing(self, *, patience: float = BUSY) -> Iterator[Session]:
        """A transaction, committed at the end of the block and rolled back by any error in it.

        Waits up to `patience` seconds for its turn on SQLite. Raises `Temporary`, `DiskFull`, and SQLAlchemy's
        `IntegrityError`, which is the caller's to explain.
        """
        with translated(), self._writer.connect() as session:
            if not self.embedded or patience == BUSY:
                with session.begin():
                    yield session
                return
            _set_patience(session, patience)
            try:
                with session.begin():
                    yield session
            finally:
                _set_patience(session, BUSY)

    def glance(self, question: Question, values: Mapping[str, object]) -> list[Row]:
        """The rows that one statement finds, without a transaction around it. Raises `Temporary`.

        On SQLite it goes past SQLAlchemy, which takes ten times as long as such a statement itself.
        """
        if not self.embedded:
            with self.reading() as session:
                return list(session.execute(question.statement, values))
        try:
            connection = self._idle.pop() if self._idle else self._connect()
            try:
                return [question.row(row) for row in connection.execute(question.sqlite, values)]
            finally:
                self._idle.append(connection)
        except sqlite3.Error as problem:
            known = _trouble(OperationalError(question.sqlite, None, problem))
            raise known or problem from problem

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.engine.url.database or ":memory:", check_same_thread=False, timeout=BUSY)
        _prepare_sqlite(connection)
        return connection

    def close(self) -> None:
        """Close every connection that is not in use."""
        self.engine.dispose()
        while self._idle:
            self._idle.pop().close()


def _set_patience(session: Session, seconds: float) -> None:
    raw = session.connection.driver_connection
    assert raw is not None
    raw.execute(f"PRAGMA busy_timeout={int(seconds * 1000)}")


def engine_of(url: str) -> Engine:
    """The engine for a database URL: `sqlite:////path`, or a server's. Connects to nothing yet. Raises `Usage`."""
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() != "sqlite":
            return create_engine(parsed, pool_pre_ping=True)
        engine = create_engine(parsed, pool_size=8, max_overflow=64, connect_args={"timeout": BUSY})
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as problem:
        raise Usage(
            f"MXR_DATABASE_URL is not a database that this registry can use: {str(problem).splitlines()[0]}",
            hint="Write it as sqlite:////var/lib/mxr/registry.db, or leave it out for the embedded default.",
        ) from None
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object = None) -> None:
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout={int(BUSY * 1000)}")
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    _use_wal(connection)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Changing the mode does not wait for other connections that do the same, whatever the busy timeout."""
    for attempt in range(100):
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as problem:
            if "readonly" in str(problem):
                return
            if "locked" not in str(problem) or attempt == 99:
                raise
            time.sleep(0.05)


def _begin_sqlite(session: Connection) -> None:
    writes = session.get_execution_options().get("mxr_writes")
    raw = session.connection.driver_connection
    assert raw is not None
    try:
        raw.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
    except sqlite3.Error as problem:
        raise OperationalError("BEGIN", None, problem) from problem


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turns the database's own troubles into ours: busy, full, read-only, away."""
    try:
        yield
    except PoolTimeout:
        raise Temporary("The registry has too many requests at once.") from None
    except DatabaseError as problem:
        known = _trouble(problem)
        if known is None:
            raise
        log.warning("database: %s", problem.orig)
        raise known from problem


def _trouble(problem: SQLAlchemyError) -> MxrError | None:
    words = str(getattr(problem, "orig", problem)).lower()
    if "disk is full" in words or "disk full" in words or "no space left" in words:
        return DiskFull("The disk that holds the registry's database is full.")
    if "readonly" in words or "read-only" in words:
        return Temporary(
            "The registry's database is read-only.", hint="Make its file and folder writable for the registry."
        )
    if "malformed" in words or "not a database" in words:
        return MxrError("The registry's database is damaged.", hint="Run `mxr-registry fsck`, and restore a backup.")
    if isinstance(problem, OperationalError) and ("locked" in words or "busy" in words):
        return Temporary("The registry's database is busy.")
    if isinstance(problem, OperationalError) and ("connect" in words or "unable to open" in words):
        return Temporary("The registry's database cannot be reached.", hint="Check MXR_DATABASE_URL and --data.")
    return None


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
