"""Create the SQLAlchemy engine for a database URL: SQLite pragmas, and PostgreSQL timeouts and connection checks.

SQLite runs in WAL mode, so that readers never wait for the writer, and with synchronous=FULL: a confirmed publication
survives a power failure (NORMAL could lose the last commits). A write transaction starts with BEGIN IMMEDIATE: it waits
for the write lock at its start instead of failing in the middle.

A connection to PostgreSQL gets its timeouts when it is made, and waits no longer than its request may
(`wait_budget`): the server's timeouts do not end a hang of the server itself. Before reuse, a poll of its socket shows
at no cost whether the server closed it. If it did, or if the connection was idle for long, the connection is tested
and, if broken, replaced.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, NoSuchModuleError, OperationalError

from mxr.errors import MxrError, UsageError
from mxr_registry.config.connections import ConnectionSettings, read_url

BUSY = 10.0
"""Seconds that a write transaction waits for the write lock of SQLite."""

PRIVATE = 0o600
"""Mode of the files of an SQLite database."""

PRAGMAS = ("synchronous=FULL", "foreign_keys=ON", "mmap_size=268435456", "cache_size=-16384", "temp_store=MEMORY")

MAX_IDLE = 30.0
"""Seconds without use after which a connection is tested before it is used again."""

KEEPALIVE = {
    **{"keepalives": 1, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3},
    "tcp_user_timeout": 20_000,
}
"""TCP parameters of libpq: they detect a server that vanished within a minute, and in 20 s while bytes wait for it."""


def engine_of(url: str, connections: ConnectionSettings) -> Engine:
    """Return the engine for a database URL, `sqlite:////path` or `postgresql://...`. It opens no connection.

    Raises `UsageError`, whose message contains no part of the URL that may be secret.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise _unusable("it is not a valid URL") from None
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    # A slash in an unescaped password makes part of the password the host, and the rest the database name.
    if "@" in (parsed.host or "") or (parsed.host and "@" in (parsed.database or "")):
        raise _unusable("its user or password contains an @ that is not written as %40")
    try:
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed)
        if parsed.drivername == "postgresql+psycopg":
            return _postgresql(parsed, connections)
    except ModuleNotFoundError:
        # Of the driver: the URL is not at fault.
        raise
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as problem:
        raise _unusable(str(problem).splitlines()[0]) from None
    raise _unusable(f"{parsed.drivername} is not supported")


def _unusable(reason: str) -> UsageError:
    return UsageError(
        f"Cannot use the database in MXR_DATABASE_URL: {reason}.",
        hint="Use postgresql://user:password@host/database (percent-encode special characters in the password, such "
        "as @ as %40) or sqlite:////var/lib/mxr/registry.db, or unset it to use the embedded database.",
    )


def _postgresql(url: URL, settings: ConnectionSettings) -> Engine:
    timeouts = {
        "statement_timeout": settings.statement,
        "lock_timeout": settings.lock,
        "idle_in_transaction_session_timeout": settings.idle,
    }
    options = " ".join(f"-c {name}={int(seconds * 1000)}" for name, seconds in timeouts.items())
    defaults: dict[str, Any] = {
        "connect_timeout": max(2, math.ceil(settings.connect)),
        "application_name": "mxr-registry",
        **KEEPALIVE,
    }
    arguments = {name: value for name, value in defaults.items() if name not in url.query}
    # Options in the URL come last and override these.
    arguments["options"] = " ".join([options, *_as_tuple(url.query.get("options", ()))])
    engine = create_engine(
        url,
        pool_size=min(settings.kept, settings.pool) or 1,
        max_overflow=max(0, settings.pool - (min(settings.kept, settings.pool) or 1)),
        pool_timeout=settings.wait,
        pool_use_lifo=True,
        connect_args=arguments,
    )
    event.listen(engine, "do_connect", partial(_connect_bounded, settings.url_file, {}))
    event.listen(engine, "checkin", _record_use)
    event.listen(engine, "checkout", _check)
    return engine


def _connect_bounded(
    url_file: Path | None,
    account: dict[str, str],
    _dialect: Any,
    _record: Any,
    arguments: list[Any],
    options: dict[str, Any],
) -> Any:
    """Connect. `account`: user and password as the file of the URL had them last."""
    # Imported on demand: an embedded registry needs no driver of a server.
    from .bounded_connection import BoundedConnection

    # A Secret may be replaced at this moment: what was read before holds on.
    with contextlib.suppress(MxrError, ArgumentError, ValueError):
        if url_file is not None:
            found = make_url(read_url(url_file))
            account.update({"user": found.username or "", "password": found.password or ""})
    return BoundedConnection.connect(
        *arguments, **(options | {name: value for name, value in account.items() if value})
    )


def _as_tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _record_use(connection: Any, record: Any) -> None:
    record.info["used"] = time.monotonic()
    if connection is not None and not connection.closed:
        # After a READ ONLY transaction, SQLAlchemy sets the connection to READ WRITE. The server's own default applies.
        connection.read_only = None


def _check(connection: Any, record: Any, _proxy: Any) -> None:
    """Test a connection before reuse. Raises `DisconnectionError` if it is broken; the pool then opens a new one."""
    used = record.info.get("used")
    if used is None or (time.monotonic() - used < MAX_IDLE and not _has_input(connection)):
        return
    try:
        connection.rollback()
        connection.execute("")
        connection.rollback()
    except Exception as problem:
        raise DisconnectionError(str(problem)) from problem


def _has_input(connection: Any) -> bool:
    """Whether the connection is closed, or has unread input: the server sends a message when it ends a session."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _sqlite(url: URL) -> Engine:
    engine = create_engine(url, pool_size=8, max_overflow=64, connect_args={"timeout": BUSY})
    event.listen(engine, "do_connect", _protect)
    event.listen(engine, "connect", prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _protect(_dialect: Any, _record: Any, arguments: list[Any], _options: dict[str, Any]) -> None:
    """Create the file of the database for this user only, before SQLite does, and take the rights of others away.

    SQLite gives the files `-wal` and `-shm` the mode of the database. Source: SQLite, os_unix.c, findCreateFileMode.
    """
    path = str(arguments[0]) if arguments else ""
    if not path.startswith("/"):
        return
    with contextlib.suppress(OSError):
        # Never open an existing file: closing it would drop the locks that SQLite holds on it in this process.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    for file in (Path(path), Path(f"{path}-wal"), Path(f"{path}-shm")):
        with contextlib.suppress(OSError):
            if file.stat().st_mode & 0o077:
                file.chmod(file.stat().st_mode & 0o700)


def prepare_sqlite(connection: sqlite3.Connection, _record: object = None) -> None:
    """Apply the registry's settings to a new connection to SQLite."""
    apply_pragmas(connection, BUSY)
    _use_wal(connection)


def apply_pragmas(connection: sqlite3.Connection, busy: float) -> None:
    """Apply the settings that a connection has for itself. It waits `busy` seconds for locks."""
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout={int(busy * 1000)}")
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL mode, with retries: the busy timeout does not apply when several connections switch at once."""
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
