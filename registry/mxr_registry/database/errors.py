"""Translate database errors into mxr errors: busy, full, read-only, unreachable, rejected, slow, damaged.

PostgreSQL errors are recognized by SQLSTATE. Connection errors have no SQLSTATE and are recognized by their message.
Messages of libpq contain host, user and database, and never the password.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

from sqlalchemy.exc import DataError, DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from mxr.display.logs import RepeatedLines
from mxr.errors import DiskFullError, MxrError, TemporaryError, UsageError
from mxr_registry import counters

repeated = RepeatedLines(logging.getLogger("mxr_registry"))

SERVER_HINT = "Check the database server. The registry reconnects by itself once the server answers."
REACH_HINT = (
    "Check MXR_DATABASE_URL and the database server. The registry reconnects by itself once the server answers."
)
SLOW_HINT = (
    "Try again. If this repeats, check what blocks or slows the database, or raise `statement` and `answer` in "
    "[database]."
)
OWNER_HINT = "Make its user the owner of the database: ALTER DATABASE ... OWNER TO ..."
MIGRATE_HINT = "Run `mxr-registry migrate` with the same MXR_DATABASE_URL."
READ_ONLY_HINT = (
    "Set MXR_DATABASE_URL to the primary server, and check that neither the server nor the database is read-only."
)
POOL_HINT = "Raise max_connections of the server, or lower `pool` in [database] (MXR_DATABASE_POOL) of each registry."
ACCESS_HINT = "Check user and password in MXR_DATABASE_URL, and pg_hba.conf on the server."
CREATE_HINT = "Create it (`createdb -O USER NAME`) and run `mxr-registry migrate`, or correct MXR_DATABASE_URL."

STATES: dict[str, tuple[str, str]] = {
    "hung": ("The registry's database does not answer.", SERVER_HINT),
    "08": ("The connection to the registry's database was lost.", SERVER_HINT),
    "25006": ("The registry's database is read-only.", READ_ONLY_HINT),
    "25P03": ("The database ended a transaction that was idle for too long.", "Try again."),
    "28": ("The registry's database rejected the credentials.", ACCESS_HINT),
    "3D000": ("The registry's database does not exist.", CREATE_HINT),
    "40": ("Two transactions conflicted in the registry's database.", "Try again."),
    "42501": ("The registry's database user lacks a permission.", OWNER_HINT),
    "42P01": ("The registry's database lacks a table.", MIGRATE_HINT),
    "53200": ("The registry's database is out of memory.", SERVER_HINT),
    "53300": ("The registry's database has too many connections.", POOL_HINT),
    "55P03": ("The registry's database is busy.", "Try again."),
    "57014": ("The registry's database took too long.", SLOW_HINT),
    "57P": ("The registry's database was stopped.", SERVER_HINT),
}
"""Temporary errors by SQLSTATE or its prefix, with message and hint.

Source: PostgreSQL, Appendix A, Error Codes.
"""

CONNECTION_ERRORS: tuple[tuple[str, str], ...] = (
    ("authentication failed", "28"),
    ("no pg_hba.conf entry", "28"),
    ("no password supplied", "28"),
    ("too many clients", "53300"),
    ("too many connections", "53300"),
    ("remaining connection slots", "53300"),
    ("the database system is", "57P"),
    ("had no answer within", "57014"),
    ("did not answer within", "hung"),
    ("connection timeout expired", "hung"),
)
"""Fragments of the messages of a server that rejects a connection, and the SQLSTATE that each stands for."""

DISK_FULL_MESSAGES = ("no space left", "quota exceeded", "file too large", "could not extend")


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Translate errors of the database driver into mxr errors."""
    try:
        yield
    except PoolTimeout:
        counters.REFUSED.labels("database").inc()
        raise TemporaryError("The registry has too many requests at once.") from None
    except DBAPIError as problem:
        translated = translate(problem)
        if translated is None:
            raise
        line = f"database: {_one_line(problem)}"
        repeated.warning(line, line)
        raise translated from problem


def translate(problem: SQLAlchemyError) -> MxrError | None:
    """Return the mxr error for a database error, or None if the caller has to handle it or it is a bug."""
    state = getattr(getattr(problem, "orig", None), "sqlstate", None)
    translators: tuple[Callable[[SQLAlchemyError, str], MxrError | None], ...] = (_common, _sqlite_error)
    if type(getattr(problem, "orig", None)).__module__.startswith("psycopg"):
        translators = (_by_state,) if state else (_common, _connection_error)
    for translator in translators:
        translated = translator(problem, state or _message(problem))
        if translated is not None:
            return translated
    return None


def is_crowded(problem: SQLAlchemyError) -> bool:
    """Whether the server refused a connection because it has too many."""
    message = _message(problem)
    return any(part in message for part, state in CONNECTION_ERRORS if state == "53300")


def is_hung(problem: SQLAlchemyError) -> bool:
    """Whether the server took the connection and did not answer."""
    message = _message(problem)
    return any(part in message for part, state in CONNECTION_ERRORS if state == "hung")


def _message(problem: SQLAlchemyError) -> str:
    return str(getattr(problem, "orig", problem)).lower()


def _one_line(problem: SQLAlchemyError) -> str:
    return " ".join(str(getattr(problem, "orig", problem)).split())


def _common(problem: SQLAlchemyError, message: str) -> MxrError | None:
    if "disk is full" in message or "disk full" in message or "no space left" in message:
        return DiskFullError("The disk that holds the registry's database is full.")
    if isinstance(problem, DataError):
        return UsageError(
            f"The database rejected a value: {_one_line(problem)}"[:300], hint="Shorten or correct the value."
        )
    return None


def _sqlite_error(problem: SQLAlchemyError, message: str) -> MxrError | None:
    if "readonly" in message or "read-only" in message:
        return TemporaryError(
            "The registry's database is read-only.", hint="Make its file and folder writable for the registry."
        )
    if "malformed" in message or "not a database" in message:
        return MxrError("The registry's database is damaged.", hint="Run `mxr-registry fsck`, and restore a backup.")
    if isinstance(problem, OperationalError) and ("locked" in message or "busy" in message):
        return TemporaryError("The registry's database is busy.")
    if isinstance(problem, OperationalError) and "unable to open" in message:
        return TemporaryError("The registry's database cannot be opened.", hint="Check MXR_DATABASE_URL and --data.")
    return None


def _by_state(problem: SQLAlchemyError, state: str) -> MxrError | None:
    # PostgreSQL has no SQLSTATE of its own for an exceeded quota or the maximum size of a file.
    if state in ("53100", "53400") or (
        state in ("XX000", "58030") and any(part in _message(problem) for part in DISK_FULL_MESSAGES)
    ):
        return DiskFullError("The disk that holds the registry's database is full.")
    if state.startswith("22"):
        return _common(problem, "")
    if state in ("XX001", "XX002"):
        return MxrError("The registry's database is damaged.", hint="Check the server's log, and restore a backup.")
    for prefix, (message, hint) in STATES.items():
        if state.startswith(prefix):
            return TemporaryError(message, hint=hint)
    return None


def _connection_error(problem: SQLAlchemyError, message: str) -> MxrError | None:
    """An error without SQLSTATE: the connection was rejected, was lost, or could not be made."""
    for part, state in CONNECTION_ERRORS:
        if part in message:
            return _temporary(state)
    if "database" in message and "does not exist" in message:
        return _temporary("3D000")
    if isinstance(problem, DBAPIError) and (problem.connection_invalidated or _lost(message)):
        return _temporary("08")
    if isinstance(problem, OperationalError):
        reason = _one_line(problem).rpartition("failed: ")[2].partition(" Is the server running")[0]
        return TemporaryError(f"The registry's database is unreachable: {reason[:200].rstrip('.')}.", hint=REACH_HINT)
    return None


def _temporary(state: str) -> TemporaryError:
    message, hint = STATES[state]
    return TemporaryError(message, hint=hint)


def _lost(message: str) -> bool:
    return any(part in message for part in ("closed the connection", "connection is closed", "connection is lost"))
