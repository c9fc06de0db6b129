"""The settings of one registry process, from options, environment and file: one frozen value, made once in `main`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from mxr.artifact.matching import BUILT_ONLY
from mxr.configuration.config_file import home_dir
from mxr.configuration.reading import HiddenValueError, ServiceValues, read_service
from mxr.configuration.schema import SECONDS, ServiceSchema, check_registry_id, setting
from mxr.display.text import redact_url
from mxr.errors import UsageError
from mxr.s3.s3_settings import S3Settings
from mxr_registry.storage.reserve import DiskReserve

from .connections import ConnectionSettings, read_url
from .job_rules import POOLS_EXAMPLE, JobRules, declared_pools
from .limits import RequestLimits
from .retention import RetentionRules
from .signing import FILE, SigningSettings

HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,252}[a-z0-9_])?")
ROOT_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9_.~-]{1,200}){1,16}", re.ASCII)


def check_host_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of hosts in lower case. Raises `ValueError` with what is expected."""
    found = tuple(name.strip().lower().rstrip(".") for name in names)
    if not all(HOST_NAME.fullmatch(name) for name in found):
        raise ValueError("names of hosts without scheme, port and wildcard, such as registry.example.com")
    return found


def check_root_path(path: str) -> str:
    """Return a path without the slash at its end. Raises `ValueError` with what is expected."""
    found = path.removesuffix("/")
    if found and not ROOT_PATH.fullmatch(found):
        raise ValueError("a path of letters, digits and any of _.~- that begins with a slash, such as /mxr")
    return found


def check_networks(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Return addresses and networks in their normal form. Raises `ValueError` with what is expected."""
    try:
        return tuple(str(ipaddress.ip_network(address)) for address in addresses)
    except ValueError:
        raise ValueError("IP addresses or networks, such as 10.1.2.3 or 10.1.2.0/24") from None


def check_store_url(url: str) -> str:
    """Return the URL of a store. Raises `ValueError`, and `HiddenValueError` where it may have a password."""
    if "@" in url:
        raise HiddenValueError(
            "it contains a user name or a password; the credentials of S3 are AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
    return url


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Where the registry listens, whom it answers, and where it keeps what is not in another database or store."""

    host: str = setting("127.0.0.1", "The address to listen on.", option="--host")
    port: int | None = setting(
        None,
        "The port to listen on; 0 chooses a free one.",
        least=0,
        most=65_535,
        example="8765",
        absent="8765, or none with `unix`",
        option="--port",
    )
    unix: Path | None = setting(
        None,
        "A Unix socket to listen on, for a proxy and other users of this host. Its folder must be the service's.",
        example='"/run/mxr/registry.sock"',
        absent="no such socket",
        option="--unix",
    )
    data: Path | None = setting(
        None,
        "The data directory, for database and files.",
        example='"/var/lib/mxr"',
        absent="`mxr-registry` in `$XDG_DATA_HOME` or in `~/.local/share`",
        option="--data",
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Names under which clients reach this registry, besides its IP addresses and localhost.",
        check=check_host_names,
        option="--allowed-host",
    )
    trusted_proxies: tuple[str, ...] = setting(
        (),
        "Addresses or networks of proxies whose X-Forwarded-For is believed.",
        check=check_networks,
        option="--trusted-proxies",
    )
    root_path: str = setting(
        "",
        "The path of a proxy below which clients reach this registry, such as /mxr. The proxy may remove it or pass it "
        "on.",
        check=check_root_path,
        option="--root-path",
    )
    tls_cert: Path | None = setting(
        None,
        "The certificate (PEM, with its chain) of a registry that terminates TLS itself. A renewed one is loaded while "
        "it serves.",
        example='"/etc/mxr/registry.pem"',
        absent="plain http",
        option="--tls-cert",
    )
    tls_key: Path | None = setting(
        None,
        "The key of the certificate (PEM, without a password).",
        example='"/etc/mxr/registry.key"',
        absent="plain http",
        option="--tls-key",
    )
    verbose: bool = setting(False, "Log every request.", option="--verbose")
    log: str = setting("text", "How the lines of the log are written.", choices=("text", "json"))
    registry_id: str | None = setting(
        None,
        "The id of the registry (`mxr-registry status` shows it). With it, no other database is served, and an empty "
        "data directory does not become a new registry.",
        check=check_registry_id,
        example='"1b4e28ba-2fa1-41d2-883f-0016d3cca427"',
        absent="an empty data directory becomes a new registry",
    )
    drain: float | None = setting(
        None,
        "After SIGTERM, the time for which everything is still served, while `/readyz` says 503: load balancers and "
        "proxies go elsewhere meanwhile.",
        unit=SECONDS,
        least=0,
        most=3600,
        example="5",
        absent="5, and 0 where only this host reaches the registry",
    )
    graceful: float = setting(
        120.0,
        "Then, the time in which running transfers may end. What is left is cut, and clients of mxr go on where it "
        "was. Ctrl-C ends both times.",
        unit=SECONDS,
        least=0,
        most=86_400,
    )


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The store of all bytes."""

    url: str | None = setting(
        None,
        "A folder (`file:///PATH`) or a bucket (`s3://BUCKET/PREFIX`; the prefix is optional). Registries of different "
        "fleets share a bucket under different prefixes.",
        check=check_store_url,
        example='"s3://compiled/fleet-a"',
        absent="`store` in the data directory",
    )


SCHEMA = ServiceSchema(
    program="mxr-registry",
    file_variable="MXR_REGISTRY_CONFIG",
    tables={
        "serve": ServeSettings,
        "database": ConnectionSettings,
        "store": StoreSettings,
        "s3": S3Settings,
        "work": JobRules,
        "retention": RetentionRules,
        "limits": RequestLimits,
        "signing": SigningSettings,
    },
    lists={"pools": POOLS_EXAMPLE},
    others=("MXR_WORKER_",),
)


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where a registry keeps its data, and how it serves.

    `s3`: connection settings of an `s3://` store. `serve`: the rule of namespaces without one of their own. `rules`
    apply to compile jobs, `retention` to sweeps, `connections` to a database server.
    """

    data: Path
    database_url: str = field(repr=False)
    store_url: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int | None = None
    unix: Path | None = None
    verbose: bool = False
    log: str = "text"
    registry_id: str | None = None
    drain: float | None = None
    graceful: float = 120.0
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    root_path: str = ""
    serve: str = BUILT_ONLY
    limits: RequestLimits = field(default_factory=RequestLimits)
    s3: S3Settings = field(default_factory=S3Settings)
    rules: JobRules = field(default_factory=JobRules)
    retention: RetentionRules = field(default_factory=RetentionRules)
    signing: SigningSettings = field(default_factory=SigningSettings)
    connections: ConnectionSettings = field(default_factory=ConnectionSettings)

    @classmethod
    def read(
        cls, environ: Mapping[str, str], options: Mapping[str, Any] | None = None, file: Path | None = None
    ) -> RegistrySettings:
        """Read the settings. `options` of the command line, by path, override the environment, and this the file.

        Raises `UsageError`.
        """
        return cls.of(read_service(SCHEMA, environ, options, file), environ)

    @classmethod
    def of(cls, values: ServiceValues, environ: Mapping[str, str]) -> RegistrySettings:
        """Return the settings of these values. Raises `UsageError` for a problem, and for what contradicts itself."""
        served: ServeSettings = values.table("serve")
        paths = effective(values, environ)
        return cls(
            data=paths["serve.data"],
            database_url=paths["database.url"],
            store_url=paths["store.url"],
            host=served.host,
            port=served.port,
            unix=served.unix,
            verbose=served.verbose,
            log=served.log,
            registry_id=served.registry_id,
            drain=served.drain,
            graceful=served.graceful,
            tls_cert=served.tls_cert,
            tls_key=served.tls_key,
            allowed_hosts=served.allowed_hosts,
            trusted_proxies=served.trusted_proxies,
            root_path=served.root_path,
            limits=values.table("limits"),
            s3=values.table("s3"),
            rules=values.table("work", pools=declared_pools(values.lists.get("pools", ()), values.file)),
            retention=values.table("retention"),
            signing=values.table("signing"),
            connections=values.table("database"),
        )

    @property
    def grace(self) -> float:
        """Seconds for which a blob that was reported as present is kept, even if nothing refers to it."""
        return self.retention.grace_hours * 3600.0

    @property
    def database(self) -> Path:
        """The path of the embedded database file."""
        return self.data / "registry.db"

    @property
    def embedded(self) -> bool:
        """Whether the database is the embedded one in the data directory."""
        return self.database_url == _embedded_url(self.data)

    @property
    def signing_key(self) -> Path | None:
        """The file of the signing key, whether it exists or not; None where no place is named for it."""
        return self.signing.key_file or (self.data / FILE if self.embedded else None)

    @property
    def reserve(self) -> DiskReserve:
        """What is kept free of the disk of the embedded database; without one, of that of a store in files."""
        store = urlsplit(self.store_url)
        folder = self.data if self.embedded else Path(unquote(store.path)) if store.scheme == "file" else None
        return DiskReserve(folder and folder / "reserve", self.limits.reserve)

    @property
    def where(self) -> str:
        """Where database and store are, for display: without user, password or options."""
        if self.embedded:
            return f"data in {self.data}"
        return f"database {redact_url(self.database_url)}, store {redact_url(self.store_url)}"


def effective(values: ServiceValues, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return data directory, database and store, which depend on each other, by their paths."""
    data = Path(values.value("serve.data") or default_data_dir(environ)).absolute()
    url_file = values.value("database.url_file")
    if url_file and values.value("database.url"):
        raise UsageError(
            f"{values.found['database.url'].source} sets database.url, and "
            f"{values.found['database.url_file'].source} database.url_file.",
            hint="Set one of them.",
        )
    return {
        "serve.data": data,
        "database.url": values.value("database.url") or (read_url(url_file) if url_file else _embedded_url(data)),
        "store.url": values.value("store.url") or "file://" + quote(str(data / "store")),
        "s3.style": "path" if values.value("s3.endpoint") else "auto",
    }


def check_served(values: ServiceValues, settings: RegistrySettings) -> None:
    """Raise `UsageError` for settings of which one must be a mistake.

    These are a server of S3 beside a store that is not in S3, and a certificate without its key.
    """
    if (settings.tls_cert is None) != (settings.tls_key is None):
        given, other = ("tls_cert", "tls_key") if settings.tls_cert else ("tls_key", "tls_cert")
        raise UsageError(
            f"{values.found[f'serve.{given}'].source} sets serve.{given}, but serve.{other} is not set.",
            hint="TLS needs the certificate and its key: --tls-cert and --tls-key.",
        )
    for path in ("s3.endpoint", "s3.public_endpoint"):
        if values.value(path) and not settings.store_url.startswith("s3://"):
            raise UsageError(
                f"{values.found[path].source} sets {path}, but the store is not in S3.",
                hint="Set store.url (MXR_STORE_URL) to s3://BUCKET/PREFIX, or remove the settings of S3.",
            )


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Return the default data directory of this user. Source: XDG Base Directory Specification.

    Raises `UsageError` for a user without a home folder.
    """
    base = environ.get("XDG_DATA_HOME") or ""
    if base.startswith("/"):
        return Path(base) / "mxr-registry"
    home = home_dir(environ)
    if home is None:
        raise UsageError(
            "This user has no home folder for the data.", hint="Name a folder: --data DIR, or MXR_SERVE_DATA."
        )
    return home / ".local" / "share" / "mxr-registry"


def _embedded_url(folder: Path) -> str:
    path = str(folder / "registry.db").replace("%", "%25").replace("?", "%3F")
    return f"sqlite:///{path}"
