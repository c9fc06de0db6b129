"""The settings of one registry process, from flags and environment: one frozen value, made once in `main`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from mxr.artifact.serving import BUILT_ONLY
from mxr.display.redaction import redact_url
from mxr_registry.storage.s3_settings import S3Settings

from .limits import RequestLimits

if TYPE_CHECKING:
    from .connections import ConnectionSettings
    from .job_rules import JobRules
    from .retention import RetentionRules


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where a registry keeps its data, and how it serves.

    `grace`: seconds for which a blob that was reported as present is kept, even if nothing refers to it. `s3`:
    connection settings of an `s3://` store. `allowed_hosts`: names, besides IP addresses and `localhost`, under which
    clients may reach it. `trusted_proxies`: addresses and networks whose `X-Forwarded-For` is believed. `serve`: the
    rule of namespaces without one of their own. `rules` apply to compile jobs, `retention` to sweeps, `connections` to
    a database server; None selects the defaults.
    """

    data: Path
    database_url: str = field(repr=False)
    store_url: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 8765
    insecure: bool = False
    verbose: bool = False
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    serve: str = BUILT_ONLY
    grace: float = 24 * 3600.0
    limits: RequestLimits = field(default_factory=RequestLimits)
    s3: S3Settings = field(default_factory=S3Settings)
    rules: JobRules | None = None
    retention: RetentionRules | None = None
    connections: ConnectionSettings | None = None

    @classmethod
    def read(cls, environ: Mapping[str, str], data: Path | None = None, config: Path | None = None) -> RegistrySettings:
        """Read the settings from the environment. `data` and `config` come from flags and take precedence.

        Reads MXR_DATABASE_URL, MXR_DATABASE_POOL, MXR_STORE_URL, MXR_S3_*, MXR_REGISTRY_CONFIG, MXR_LEASE_SECONDS,
        XDG_DATA_HOME and HOME. Raises `UsageError`.
        """
        from .connections import ConnectionSettings
        from .job_rules import JobRules
        from .retention import RetentionRules

        retention = RetentionRules.read(environ, config)
        folder = (data or default_data_dir(environ)).absolute()
        return cls(
            data=folder,
            database_url=environ.get("MXR_DATABASE_URL") or _embedded_url(folder),
            store_url=environ.get("MXR_STORE_URL") or "file://" + quote(str(folder / "store")),
            grace=retention.grace_hours * 3600.0,
            limits=RequestLimits.read(environ, config),
            s3=S3Settings.read(environ),
            rules=JobRules.read(environ, config),
            retention=retention,
            connections=ConnectionSettings.read(environ, config),
        )

    @property
    def database(self) -> Path:
        """The path of the embedded database file."""
        return self.data / "registry.db"

    @property
    def embedded(self) -> bool:
        """Whether the database is the embedded one in the data directory."""
        return self.database_url == _embedded_url(self.data)

    @property
    def where(self) -> str:
        """Where database and store are, for display: without user, password or options."""
        if self.embedded:
            return f"data in {self.data}"
        return f"database {redact_url(self.database_url)}, store {redact_url(self.store_url)}"


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Return the default data directory of this user. Source: XDG Base Directory Specification."""
    base = environ.get("XDG_DATA_HOME") or ""
    if not base.startswith("/"):
        base = str(Path(environ.get("HOME") or Path.home()) / ".local" / "share")
    return Path(base) / "mxr-registry"


def _embedded_url(folder: Path) -> str:
    path = str(folder / "registry.db").replace("%", "%25").replace("?", "%3F")
    return f"sqlite:///{path}"
