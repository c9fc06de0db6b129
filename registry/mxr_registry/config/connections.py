"""How one registry process uses a database server: how many connections, and how long it waits for what.

Read once in main, from the TOML file that MXR_REGISTRY_CONFIG names; an embedded database needs none of it:

    [database]
    pool = 32                       # every field of `Connections`
    statement = 30
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mxr.util.codec import decode, refuse

from .job_rules import document


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Counts of connections, and seconds.

    `pool`: connections at most; `kept` of them stay open when nobody needs them. `wait`: for a free one. `connect`:
    until the server answers. `statement`: for one statement. `lock`: until others let go of a row. `idle`: that a
    transaction may do nothing, before the server ends it.
    """

    pool: int = 32
    kept: int = 8
    wait: float = 10.0
    connect: float = 5.0
    statement: float = 30.0
    lock: float = 10.0
    idle: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.pool <= 1000:
            raise refuse("database.pool", "a count from 1 to 1000", self.pool)
        if not 0 <= self.kept <= 1000:
            raise refuse("database.kept", "a count from 0 to 1000", self.kept)
        for name in ("wait", "connect", "statement", "lock", "idle"):
            if not 0.05 <= getattr(self, name) <= 86400:
                raise refuse(f"database.{name}", "seconds, from 0.05 on", getattr(self, name))

    @classmethod
    def read(cls, environ: Mapping[str, str], file: Path | None = None) -> ConnectionSettings:
        """Those in `file` (the flag, which wins), else in the file that MXR_REGISTRY_CONFIG names; else the usual.

        MXR_DATABASE_POOL wins over the file. Raises `Usage`.
        """
        found = decode(cls, dict(document(environ, file).database), "database")
        stated = environ.get("MXR_DATABASE_POOL")
        if not stated:
            return found
        if not (stated.isascii() and stated.isdigit()):
            raise refuse("MXR_DATABASE_POOL", "a count of connections", stated)
        return replace(found, pool=int(stated))
