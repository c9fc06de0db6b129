"""The database: its URL, and connections to a database server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mxr.configuration.schema import SECONDS, setting
from mxr.display.text import redact_url
from mxr.errors import UsageError

MAX_URL = 16_384
"""Bytes of a file with a URL."""


def _pause(default: float, about: str) -> float:
    found: float = setting(default, about, unit=SECONDS, least=0.05, most=86_400)
    return found


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The database. An embedded one, in SQLite, ignores the settings of connections."""

    url: str | None = setting(
        None,
        "A URL of PostgreSQL, or of SQLite (`sqlite:////PATH`).",
        secret=True,
        shown=redact_url,
        example='"postgresql://db.example.com/mxr"',
        absent="SQLite in the data directory",
    )
    url_file: Path | None = setting(
        None,
        "A file with that URL instead, such as a mounted Secret. New connections take a new user or password from it.",
        example='"/run/secrets/database-url"',
        absent="`url`",
    )
    pool: int = setting(32, "The largest number of connections of one registry process.", least=1, most=1000)
    kept: int = setting(8, "How many of them stay open while idle.", least=0, most=1000)
    wait: float = _pause(10.0, "Pause for a free connection; then 503.")
    connect: float = _pause(5.0, "Time for the server to answer a new connection.")
    answer: float = _pause(10.0, "Time that one request waits without an answer of the server; then 503.")
    statement: float = _pause(30.0, "Time for one statement.")
    lock: float = _pause(10.0, "Pause for a row that another transaction has locked.")
    idle: float = _pause(60.0, "Pause of a transaction between statements after which the server ends it.")


def read_url(path: Path) -> str:
    """Return the URL in a file. Raises `UsageError`, which has nothing of it."""
    try:
        with path.open("rb") as file:
            found = file.read(MAX_URL + 1).decode().strip()
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise UsageError(
            f"database.url_file: cannot read {path}: {reason}.", hint="Name a file whose only line is the URL."
        ) from None
    if not found or len(found.split()) != 1 or len(found) > MAX_URL:
        raise UsageError(f"database.url_file: {path} has no URL, or more than one.", hint="Write the URL in one line.")
    return found
