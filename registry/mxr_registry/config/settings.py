"""What one registry process was told, from its flags and its environment: one frozen value, made once in main."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from mxr_registry.storage.place import S3Place

if TYPE_CHECKING:
    from .connections import ConnectionSettings
    from .job_rules import JobRules
    from .retention import RetentionRules


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds on what clients can make the registry do. Bytes and seconds.

    `inspect_memory`, `inspect_cpu` and `inspect_wall` bound the child that reads a published program.
    """

    body: int = 8 * 2**20
    blob: int = 64 * 2**30
    inspect_memory: int = 2**30
    inspect_cpu: int = 60
    inspect_wall: float = 120.0


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where a registry keeps its data, and how it serves.

    `grace`: seconds for which a blob that was said to be here stays, whether anything is made of it or not. `s3`: how
    the server of an `s3://` store is spoken to. `rules` are those of compiling, `retention` those of sweeping,
    `connections` those to a database server; None are the usual ones.
    """

    data: Path
    database_url: str
    store_url: str
    host: str = "127.0.0.1"
    port: int = 8765
    insecure: bool = False
    verbose: bool = False
    grace: float = 24 * 3600.0
    limits: RequestLimits = RequestLimits()
    s3: S3Place = field(default_factory=S3Place)
    rules: JobRules | None = None
    retention: RetentionRules | None = None
    connections: ConnectionSettings | None = None

    @classmethod
    def read(cls, environ: Mapping[str, str], data: Path | None = None, config: Path | None = None) -> RegistrySettings:
        """The settings that an environment gives; `data` and `config` are flags, which win.

        Reads MXR_DATABASE_URL, MXR_DATABASE_POOL, MXR_STORE_URL, MXR_S3_*, MXR_REGISTRY_CONFIG, MXR_LEASE_SECONDS,
        XDG_DATA_HOME and HOME. Raises `Usage`.
        """
        # The child that reads programs imports this file, and should start quickly.
        from .connections import ConnectionSettings
        from .job_rules import JobRules
        from .retention import RetentionRules

        retention = RetentionRules.read(environ, config)
        folder = (data or usual_place(environ)).absolute()
        return cls(
            data=folder,
            database_url=environ.get("MXR_DATABASE_URL") or _embedded_url(folder),
            store_url=environ.get("MXR_STORE_URL") or "file://" + quote(str(folder / "store")),
            grace=retention.grace_hours * 3600.0,
            s3=S3Place.read(environ),
            rules=JobRules.read(environ, config),
            retention=retention,
            connections=ConnectionSettings.read(environ, config),
        )

    @property
    def database(self) -> Path:
        """The file of the embedded database."""
        return self.data / "registry.db"

    @property
    def embedded(self) -> bool:
        """Whether the database is the embedded one in the data directory."""
        return self.database_url == _embedded_url(self.data)

    @property
    def where(self) -> str:
        """Where rows and bytes are, for people: without user, password or options."""
        if self.embedded:
            return f"data in {self.data}"
        return f"rows in {place_of(self.database_url)}, bytes in {place_of(self.store_url)}"


def usual_place(environ: Mapping[str, str]) -> Path:
    """The platform's folder for the data of this user's programs. Source: XDG Base Directory Specification."""
    base = environ.get("XDG_DATA_HOME") or ""
    if not base.startswith("/"):
        base = str(Path(environ.get("HOME") or Path.home()) / ".local" / "share")
    return Path(base) / "mxr-registry"


def place_of(url: str) -> str:
    """A URL without what may be secret: its user, password and query."""
    scheme, _, rest = url.partition("://")
    # Not split as a URL: a password that nobody encoded may hold any of its signs.
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def _embedded_url(folder: Path) -> str:
    path = str(folder / "registry.db").replace("%", "%25").replace("?", "%3F")
    return f"sqlite:///{path}"
