"""What can go wrong with a database, in our words: busy, full, read-only, away, refused, slow, damaged.

PostgreSQL's troubles are known by their SQLSTATE, but for those of connecting, which have words only. What libpq says
names host, user and database and never the password.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

from sqlalchemy.exc import DataError, DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from mxr.errors import DiskFull, MxrError, Temporary, Usage

log = logging.getLogger("mxr_registry")

AWAY = "Look at the database server; requests go on by themselves once it answers."
REACH = "Check MXR_DATABASE_URL, and look at the database server; requests go on by themselves once it answers."
SLOW = "Try again. If this repeats, look for what blocks or slows the database, or raise `statement` in [database]."
RIGHTS = "Make its user the owner of the database: ALTER DATABASE ... OWNER TO ..."
MIGRATE = "Run `mxr-registry migrate` with the same MXR_DATABASE_URL."
READ_ONLY = "Give MXR_DATABASE_URL the primary server, and see that neither it nor the database is set to read-only."
COUNTS = "Raise max_connections of the server, or lower `pool` in [database] (MXR_DATABASE_POOL) of each registry."
ACCESS = "Check user and password in MXR_DATABASE_URL, and pg_hba.conf on the server."
MISSING = "Make it (`createdb -O USER NAME`), then run `mxr-registry migrate`; or correct MXR_DATABASE_URL."

STATES: dict[str, tuple[str, str]] = {
    "08": ("The registry's database was cut off.", AWAY),
    "25006": ("The registry's database is read-only.", READ_ONLY),
    "25P03": ("A transaction did nothing for too long, and the database ended it.", "Try again."),
    "28": ("The registry's database does not let this registry in.", ACCESS),
    "3D000": ("The registry's database does not exist.", MISSING),
    "40": ("Two changes met in the registry's database.", "Try again."),
    "42501": ("The registry may not do this in its database.", RIGHTS),
    "42P01": ("The registry's database lacks a table.", MIGRATE),
    "53200": ("The registry's database is short of memory.", AWAY),
    "53300": ("The registry's database has too many connections.", COUNTS),
    "55P03": ("The registry's database is busy.", "Try again."),
    "57014": ("The registry's database took too long.", SLOW),
    "57P": ("The registry's database was stopped.", AWAY),
}
"""Troubles that may pass, by SQLSTATE or the beginning of it. Source: PostgreSQL, Appendix A, Error Codes."""

REFUSED: tuple[tuple[str, str], ...] = (
    ("authentication failed", "28"),
    ("no pg_hba.conf entry", "28"),
    ("no password supplied", "28"),
    ("too many clients", "53300"),
    ("too many connections", "53300"),
    ("remaining connection slots", "53300"),
    ("the database system is", "57P"),
)
"""Words of a server that takes no connection, and the state that they stand for."""


NO_ROOM = ("no space left", "quota exceeded", "file too large", "could not extend")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turns the database's own troubles into ours."""
    try:
        yield
    except PoolTimeout:
        raise Temporary("The registry has too many requests at once.") from None
    except DBAPIError as problem:
        known = known_trouble(problem)
        if known is None:
            raise
        log.warning("database: %s", _line(problem))
        raise known from problem


def known_trouble(problem: SQLAlchemyError) -> MxrError | None:
    """The error of ours that says the same; None for one that is the caller's to explain, or a fault."""
    state = getattr(getattr(problem, "orig", None), "sqlstate", None)
    ways: tuple[Callable[[SQLAlchemyError, str], MxrError | None], ...] = (_common, _of_sqlite)
    if type(getattr(problem, "orig", None)).__module__.startswith("psycopg"):
        ways = (_of_state,) if state else (_common, _of_connecting)
    for way in ways:
        found = way(problem, state or _words(problem))
        if found is not None:
            return found
    return None


def _words(problem: SQLAlchemyError) -> str:
    return str(getattr(problem, "orig", problem)).lower()


def _line(problem: SQLAlchemyError) -> str:
    return " ".join(str(getattr(problem, "orig", problem)).split())


def _common(problem: SQLAlchemyError, words: str) -> MxrError | None:
    if "disk is full" in words or "disk full" in words or "no space left" in words:
        return DiskFull("The disk that holds the registry's database is full.")
    if isinstance(problem, DataError):
        return Usage(f"The registry cannot keep this: {_line(problem)}"[:300], hint="Shorten or correct the value.")
    return None


def _of_sqlite(problem: SQLAlchemyError, words: str) -> MxrError | None:
    if "readonly" in words or "read-only" in words:
        return Temporary(
            "The registry's database is read-only.", hint="Make its file and folder writable for the registry."
        )
    if "malformed" in words or "not a database" in words:
        return MxrError("The registry's database is damaged.", hint="Run `mxr-registry fsck`, and restore a backup.")
    if isinstance(problem, OperationalError) and ("locked" in words or "busy" in words):
        return Temporary("The registry's database is busy.")
    if isinstance(problem, OperationalError) and "unable to open" in words:
        return Temporary("The registry's database cannot be reached.", hint="Check MXR_DATABASE_URL and --data.")
    return None


def _of_state(problem: SQLAlchemyError, state: str) -> MxrError | None:
    # Of a quota and of a file's largest size PostgreSQL has no state of its own.
    if state in ("53100", "53400") or (
        state in ("XX000", "58030") and any(part in _words(problem) for part in NO_ROOM)
    ):
        return DiskFull("The disk that holds the registry's database is full.")
    if state.startswith("22"):
        return _common(problem, "")
    if state in ("XX001", "XX002"):
        return MxrError("The registry's database is damaged.", hint="Look at the server's log, and restore a backup.")
    for begin, (message, hint) in STATES.items():
        if state.startswith(begin):
            return Temporary(message, hint=hint)
    return None


def _of_connecting(problem: SQLAlchemyError, words: str) -> MxrError | None:
    """Without a state: the connection was refused, was lost, or never came about."""
    for part, state in REFUSED:
        if part in words:
            message, hint = STATES[state]
            return Temporary(message, hint=hint)
    if "database" in words and "does not exist" in words:
        message, hint = STATES["3D000"]
        return Temporary(message, hint=hint)
    if isinstance(problem, DBAPIError) and (problem.connection_invalidated or _lost(words)):
        return Temporary("The registry's database was cut off.", hint=AWAY)
    if isinstance(problem, OperationalError):
        reason = _line(problem).rpartition("failed: ")[2].partition(" Is the server running")[0]
        return Temporary(f"The registry's database cannot be reached: {reason[:200].rstrip('.')}.", hint=REACH)
    return None


def _lost(words: str) -> bool:
    return any(part in words for part in ("closed the connection", "connection is closed", "connection is lost"))
