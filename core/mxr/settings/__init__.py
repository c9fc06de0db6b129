"""Client settings: one frozen value, built once from flags, environment variables and the user's configuration file.

project        files of a project that set request defaults
tokens         the form of tokens, and those that `mxr login` has stored
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from mxr import facts
from mxr.configuration.client_variables import VARIABLES
from mxr.configuration.config_file import UntrustedFileError, read_config, user_config_dir, user_socket_dirs
from mxr.errors import UsageError
from mxr.util.frozen import dataclass

DEFAULT_REGISTRY = "http://127.0.0.1:8765"

SWITCH = {"1": True, "true": True, "on": True, "yes": True, "0": False, "false": False, "off": False, "no": False}

KSERVE_CHOICES = ("ask", "wait", "local", "env", "host", "path")
"""What an operator can allow to the URIs of `kserve-init`: actions of on-miss, env, host facts and models by path."""

DEFAULTS = tuple(name for name in facts.names(facts.DEFAULT) if name not in ("consumer", "inputs"))
"""The settings that are defaults of a request where neither options nor host tell a fact. So is `consumer`."""

SECRETS = ("token",)
"""The settings that are never shown."""

KINDS: Mapping[str, tuple[Any, str]] = {
    "timeout": ((int, float), "a number"),
    "plaintext": (bool, "true or false"),
    "max_age": ((int, float, str), "a number of seconds, or a time such as '1h'"),
    "max_stale": ((int, float, str), "a number of seconds, or a time such as '7d'"),
    "cache_owners": (list, "a list of user ids"),
    "batch": ((int, list), "a batch size, or a list of them"),
}
"""The types of the settings in the configuration file that are not strings, and how messages name them."""

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a client. Their repr has no secret.

    `registry`: URL, without user and password. `token`: sent as a bearer token; `token_file`: a file that has it.
    `ca_file`: certificates (PEM) of authorities that may sign the registry's, besides those of the system.
    `socket_dirs`: folders of the sockets of this user's registries on this host. `withheld`: why a token is not for
    `registry`, as a sentence. `config_dir`: folder of this user's configuration. `cache_dir`: of the local cache.
    `consumer`: default of `--for`. `rocm`, `migraphx`, `batch`: what a request has where neither options nor host tell.
    `host_file`: recorded host facts (`mxr host --json`). `timeout`: seconds without a
    byte received. `plaintext`: send the token also over plain http to another machine. `kserve_allow`: what the URIs of
    `kserve-init` may set beyond the default, of `KSERVE_CHOICES`.

    `max_age`: seconds after which the registry confirms a cached answer. `max_stale`: seconds for which it serves while
    the registry is away. `cache_owners`: user ids whose cache folder is read, besides this user's and root's.
    `state_dir`: folder for what this user keeps about the caches of others.

    `home`: the home folder, above which no project file is looked for. `sources`: where each setting comes from, by its
    name; none for a default. `unused`: sentences about configuration files that are not used.
    """

    registry: str = DEFAULT_REGISTRY
    token: str | None = field(default=None, repr=False)
    cache_dir: Path = Path()
    consumer: str | None = None
    host_file: Path | None = None
    timeout: float = 60.0
    plaintext: bool = False
    kserve_allow: tuple[str, ...] = ()
    max_age: float = 3600.0
    max_stale: float = 7 * 86400.0
    cache_owners: tuple[int, ...] = ()
    state_dir: Path | None = None
    rocm: str | None = None
    migraphx: str | None = None
    batch: tuple[int, ...] = ()
    token_file: Path | None = None
    ca_file: Path | None = None
    socket_dirs: tuple[Path, ...] = ()
    withheld: str = ""
    config_dir: Path | None = None
    home: Path | None = None
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    unused: tuple[str, ...] = ()

    @property
    def token_variables(self) -> dict[str, str]:
        """The environment variables with which another program uses the same token."""
        found = {"token": self.token, "token_file": self.token_file and str(self.token_file)}
        return {VARIABLES[name]: value for name, value in found.items() if value}


def load_settings(environ: Mapping[str, str], given: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings. Flags in `given` override the environment, which overrides the configuration file.

    Raises `UsageError` for an invalid configuration file or value.
    """
    home = Path(environ.get("HOME") or "/")
    default_cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "mxr"
    state = Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "mxr"
    config = config_path(environ)
    file, unused = _read_file(config)
    variables = {name: environ[variable] for name, variable in VARIABLES.items() if environ.get(variable)}
    flags = {name: value for name, value in (given or {}).items() if value is not None}
    sources = dict.fromkeys(file, str(config)) | {name: VARIABLES[name] for name in variables}
    sources |= {name: FLAGS.get(name, f"--{name.replace('_', '-')}") for name in flags}
    found: dict[str, Any] = {"cache_dir": default_cache, "state_dir": state, **file, **variables, **flags}
    registry = _url(found)
    read: dict[str, Any] = {"registry": registry, "timeout": _seconds(found)}
    read |= {"plaintext": _switch(found), "kserve_allow": _kserve_allow(found)}
    read |= _token_settings((flags, variables, file), registry, sources)
    for name in ("cache_dir", "host_file", "state_dir", "ca_file"):
        if found.get(name) is not None:
            found[name] = _path(found[name])
    for name in ("max_age", "max_stale"):
        if name in found:
            found[name] = _duration(name, found[name])
    if "cache_owners" in found:
        found["cache_owners"] = _user_ids(found["cache_owners"])
    for name in DEFAULTS:
        if name in found:
            found[name] = _request_default(name, found[name], sources[name])
    config_dir = config.parent
    more = {"home": home, "config_dir": config_dir, "socket_dirs": user_socket_dirs(environ)}
    return Settings(**found | read | more, sources=sources, unused=unused)


def _token_settings(levels: Sequence[Mapping[str, Any]], registry: str, sources: Mapping[str, str]) -> dict[str, Any]:
    """Return `token`, `token_file` and `withheld`. `levels`: flags, variables and file.

    A token is for the registry that is set beside it or further down. With another one from further up, it is not sent:
    whoever runs that one would have it.
    """
    none: dict[str, Any] = {"token": None, "token_file": None, "withheld": ""}
    for at, level in enumerate(levels):
        names = [name for name in ("token", "token_file") if level.get(name)]
        if len(names) > 1:
            raise UsageError(
                f"{sources['token']} and {sources['token_file']} are both set.", hint="Set one of them, or neither."
            )
        if not names:
            continue
        meant = next((str(each["registry"]).rstrip("/") for each in levels[at:] if each.get("registry")), registry)
        if level is levels[-1] and not level.get("registry"):
            meant = DEFAULT_REGISTRY
        if meant != registry:
            return none | {"withheld": f"The token from {sources[names[0]]} is for {meant}, so it was not sent."}
        if names == ["token"]:
            from .tokens import check_token

            return none | {"token": check_token(level["token"], sources["token"])}
        return none | {"token_file": _path(level["token_file"])}
    return none


FLAGS = {"consumer": "--for", "host_file": "--host"}
"""The options of settings whose names differ."""


def config_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's configuration file, whether it exists or not."""
    return user_config_dir(environ) / "config.toml"


def _read_file(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what the user's file sets; or nothing, and why the file is not used."""
    try:
        # Tools that manage the files of a user put links there.
        file = read_config(path, follow_links=True)
    except UntrustedFileError as reason:
        return {}, (f"{path} is not used: {reason}",)
    found = (file and file.table()) or {}
    if file is not None:
        file.check_names(found, VARIABLES)
        for name, value in found.items():
            kinds, expected = KINDS.get(name, (str, "a string"))
            if not isinstance(value, kinds) or isinstance(value, bool) != (kinds is bool):
                raise file.error(name, f"{name} must be {expected}", f"Correct {name} in this file.")
        if "token" in found:
            _require_private(path)
    return found, ()


def _require_private(path: Path) -> None:
    try:
        read_config(path, follow_links=True, private=True)
    except UntrustedFileError as reason:
        raise UsageError(f"{path} sets token, but {reason}.", hint="Or remove it, and run `mxr login`.") from None


def _request_default(name: str, value: object, source: str) -> Any:
    from mxr.artifact.request_defaults import check_default

    try:
        return check_default(name, value)
    except UsageError as problem:
        raise UsageError(f"{source}: {problem.message}.", hint=problem.hint) from None


def _path(text: str | Path) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(
            f"{text}: the home folder of this user is unknown.", hint="Write the absolute path instead of `~USER`."
        ) from None


def _url(found: Mapping[str, Any]) -> str:
    url = str(found.get("registry", DEFAULT_REGISTRY)).rstrip("/")
    if "@" in url:
        # Not quoted: the part before it may be a password.
        raise UsageError(
            "The registry URL contains a user name or a password.",
            hint="Remove it, and run `mxr login` or set MXR_TOKEN_FILE.",
        )
    if url.startswith("unix:/"):
        return url
    if not url.startswith(("http://", "https://")) or not _host(url):
        hint = "Write it as https://HOST, http://HOST:8765 or unix:/PATH."
        raise UsageError(f"{url!r} is not a registry URL.", hint=hint)
    return url


def _host(url: str) -> str | None:
    from urllib.parse import urlsplit

    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _seconds(found: Mapping[str, Any]) -> float:
    value = found.get("timeout", 60.0)
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < 86400:
        raise UsageError(
            f"The timeout {value!r} is not a number of seconds between 0 and 86400.", hint="Set MXR_TIMEOUT=60."
        )
    return seconds


def _switch(found: Mapping[str, Any]) -> bool:
    value = str(found.get("plaintext", "off")).lower()
    if value not in SWITCH:
        raise UsageError(f"MXR_PLAINTEXT={value} is neither on nor off.", hint="Set it to 1, or unset it.")
    return SWITCH[value]


def _kserve_allow(found: Mapping[str, Any]) -> tuple[str, ...]:
    words = tuple(filter(None, (word.strip() for word in str(found.get("kserve_allow", "")).split(","))))
    for word in words:
        if word not in KSERVE_CHOICES:
            hint = f"Use a list such as env,wait. Known: {', '.join(KSERVE_CHOICES)}."
            raise UsageError(f"MXR_KSERVE_ALLOW: {word!r} is not known.", hint=hint)
    return words


def _duration(name: str, value: object) -> float:
    """Return a time in seconds from a number of seconds or a text such as `90`, `30m`, `1h` or `7d`."""
    text = str(value).strip()
    try:
        seconds = float(text[:-1]) * UNITS[text[-1]] if text[-1:] in UNITS else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e10:
        raise UsageError(
            f"{name} is {text[:40]!r}, which is not a time.", hint=f"Write MXR_{name.upper()}=1h, 30m or 7d."
        )
    return seconds


def _user_ids(value: object) -> tuple[int, ...]:
    """Return user ids from a list, or from a text with commas."""
    parts = (
        list(value) if isinstance(value, (list, tuple)) else [part for part in str(value).split(",") if part.strip()]
    )
    try:
        found = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        found = (-1,)
    if any(not 0 <= each < 2**32 for each in found):
        raise UsageError(
            f"cache_owners has a value that is not a user id: {str(value)[:80]}.", hint="Write MXR_CACHE_OWNERS=1000,0."
        )
    return found
