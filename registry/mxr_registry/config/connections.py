"""Connection pool size and timeouts for a database server.

Read once in `main`, from the TOML file that MXR_REGISTRY_CONFIG names. An embedded database ignores these settings.

    [database]
    pool = 32                       # every field of `ConnectionSettings`
    statement = 30
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mxr.util.codec import decode, refuse

from .job_rules import read_config


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Connection counts and timeouts in seconds.

    `pool` is the maximum number of connections, `kept` the number that stay open while idle. The timeouts: `wait` for
    a free connection, `connect` for the server to answer, `statement` for one statement, `lock` for a row that another
    transaction has locked, `idle` for a transaction without statements before the server ends it.
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
            raise refuse("database.pool", "an integer from 1 to 1000", self.pool)
        if not 0 <= self.kept <= 1000:
            raise refuse("database.kept", "an integer from 0 to 1000", self.kept)
        for name in ("wait", "connect", "statement", "lock", "idle"):
            if not 0.05 <= getattr(self, name) <= 86400:
                raise refuse(f"database.{name}", "seconds from 0.05 to 86400", getattr(self, name))

    @classmethod
    def read(cls, environ: Mapping[str, str], file: Path | None = None) -> ConnectionSettings:
        """Read the settings from `file`, or from the file that MXR_REGISTRY_CONFIG names, or use the defaults.

        `file` comes from --config and takes precedence. MXR_DATABASE_POOL overrides the file. Raises `UsageError`.
        """
        settings = decode(cls, dict(read_config(environ, file).database), "database")
        pool = environ.get("MXR_DATABASE_POOL")
        if not pool:
            return settings
        if not (pool.isascii() and pool.isdigit()):
            raise refuse("MXR_DATABASE_POOL", "a number of connections", pool)
        return replace(settings, pool=int(pool))
