"""The engine for a database URL: how SQLite is opened, and how connections to PostgreSQL are made, kept and checked.

SQLite runs in WAL mode, so that readers never wait for the writer, and with synchronous=FULL: a publication that was
answered with success is still there after a power cut (NORMAL could lose the last commits). A transaction that writes
begins with BEGIN IMMEDIATE: it waits for its turn at the start, instead of failing in the middle.

A connection to PostgreSQL has its timeouts from the start. Before it is used again its socket is looked at, which costs
nothing: where the server ended it, or it was idle for long, it is tried and replaced.
"""

from __future__ import annotations

import math
import select
import sqlite3
import time
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, NoSuchModuleError, OperationalError

from mxr.errors import Usage
from mxr_registry.config.connections import ConnectionSettings

BUSY = 10.0
"""Seconds that a writer waits for its turn on SQLite."""

PRAGMAS = ("synchronous=FULL", "foreign_keys=ON", "mmap_size=268435456", "cache_size=-16384", "temp_store=MEMORY")

QUIET = 30.0
"""Seconds without use after which a connection is tried before it is used again."""

KEEPALIVE = {"keepalives": 1, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""A server that vanished without a word is noticed after a minute."""


def engine_of(url: str, connections: ConnectionSettings) -> Engine:
    """The engine for a database URL: `sqlite:////path`, or `postgresql://...`. Connects to nothing yet.

    Raises `Usage`, with no part of the URL in it that may be secret.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise _unusable("it cannot be read as a URL") from None
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    # A slash before the @ leaves the rest of a password in the name of the database, and a piece of it as the host.
    if "@" in (parsed.host or "") or (parsed.host and "@" in (parsed.database or "")):
        raise _unusable("its user or password holds an @ that is not written %40")
    try:
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed)
        if parsed.drivername == "postgresql+psycopg":
            return _postgresql(parsed, connections)
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as problem:
        raise _unusable(str(problem).splitlines()[0]) from None
    raise _unusable(f"{parsed.drivername} is not supported")


def _unusable(reason: str) -> Usage:
    return Usage(
        f"MXR_DATABASE_URL is not a database that this registry can use: {reason}.",
        hint="Write it as postgresql://user:password@host/database (special signs in the password as %40 and so on), "
        "or as sqlite:////var/lib/mxr/registry.db; or leave it out for the embedded default.",
    )


def _postgresql(url: URL, wanted: ConnectionSettings) -> Engine:
    timeouts = {
        "statement_timeout": wanted.statement,
        "lock_timeout": wanted.lock,
        "idle_in_transaction_session_timeout": wanted.idle,
    }
    options = " ".join(f"-c {name}={int(seconds * 1000)}" for name, seconds in timeouts.items())
    usual: dict[str, Any] = {
        "connect_timeout": max(2, math.ceil(wanted.connect)),
        "application_name": "mxr-registry",
        **KEEPALIVE,
    }
    stated = {name: value for name, value in usual.items() if name not in url.query}
    # What the URL says itself comes later, and wins.
    stated["options"] = " ".join([options, *_texts(url.query.get("options", ()))])
    engine = create_engine(
        url,
        pool_size=min(wanted.kept, wanted.pool) or 1,
        max_overflow=max(0, wanted.pool - (min(wanted.kept, wanted.pool) or 1)),
        pool_timeout=wanted.wait,
        pool_use_lifo=True,
        connect_args=stated,
    )
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", _check)
    return engine


def _texts(found: str | tuple[str, ...]) -> tuple[str, ...]:
    return (found,) if isinstance(found, str) else found


def _note_use(connection: Any, record: Any) -> None:
    record.info["used"] = time.monotonic()
    if connection is not None and not connection.closed:
        # SQLAlchemy leaves READ WRITE behind where a transaction was READ ONLY: what the server says itself must hold.
        connection.read_only = None


def _check(connection: Any, record: Any, _proxy: Any) -> None:
    """Raises `DisconnectionError`, upon which the pool makes a new connection, for one that is of no use any more."""
    used = record.info.get("used")
    if used is None or (time.monotonic() - used < QUIET and not _spoke(connection)):
        return
    try:
        connection.rollback()
        connection.execute("")
        connection.rollback()
    except Exception as problem:
        raise DisconnectionError(str(problem)) from problem


def _spoke(connection: Any) -> bool:
    """Whether the server sent something unasked, as it does when it ends a session; or the connection is no more."""
    if connection.closed:
        return True
    look = select.poll()
    look.register(connection.fileno(), select.POLLIN)
    return bool(look.poll(0))


def _sqlite(url: URL) -> Engine:
    engine = create_engine(url, pool_size=8, max_overflow=64, connect_args={"timeout": BUSY})
    event.listen(engine, "connect", prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def prepare_sqlite(connection: sqlite3.Connection, _record: object = None) -> None:
    """Make a new connection to SQLite as every one of them is."""
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
