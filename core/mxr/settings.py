"""Client settings: one frozen value, built once from flags, environment variables and the configuration file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from mxr.util.frozen import dataclass

from .errors import Usage

DEFAULT_REGISTRY = "http://127.0.0.1:8765"

VARIABLES = {
    "registry": "MXR_REGISTRY",
    "token": "MXR_TOKEN",
    "cache_dir": "MXR_CACHE_DIR",
    "consumer": "MXR_CONSUMER",
    "host_file": "MXR_HOST",
    "timeout": "MXR_TIMEOUT",
}
"""The environment variable of each setting. The configuration file uses the names of the settings themselves."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a client.

    `registry`: URL. `token`: sent as a bearer token. `cache_dir`: folder of the local cache. `consumer`: default of
    `--for`. `host_file`: recorded host facts (`mxr host --json`). `timeout`: seconds without a byte received.
    """

    registry: str = DEFAULT_REGISTRY
    token: str | None = None
    cache_dir: Path = Path()
    consumer: str | None = None
    host_file: Path | None = None
    timeout: float = 60.0


def load(environ: Mapping[str, str], given: Mapping[str, Any] | None = None) -> Settings:
    """Returns the settings. Flags in `given` override the environment, which overrides the configuration file.

    Raises `Usage` for an invalid configuration file or value.
    """
    home = Path(environ.get("HOME") or "/")
    default_cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "mxr"
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "mxr" / "config.toml"
    found: dict[str, Any] = {"cache_dir": default_cache, **_read_file(config)}
    found |= {name: environ[variable] for name, variable in VARIABLES.items() if environ.get(variable)}
    found |= {name: value for name, value in (given or {}).items() if value is not None}
    for name in ("cache_dir", "host_file"):
        if found.get(name) is not None:
            found[name] = _path(found[name])
    return Settings(**found | {"registry": _url(found), "timeout": _seconds(found)})


def _read_file(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    # Imported here: most hosts have no configuration file, and a fetch from the cache must start fast.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        found = tomllib.loads(data.decode())
    except ValueError as problem:
        raise Usage(f"{path} is not valid TOML: {problem}.", hint="Correct the file or remove it.") from None
    known = {row.name for row in fields(Settings)}
    for name, value in found.items():
        if name not in known:
            raise Usage(f"{path}: unknown setting {name!r}.", hint="Known settings: " + ", ".join(sorted(known)) + ".")
        if not isinstance(value, (int, float) if name == "timeout" else str) or isinstance(value, bool):
            expected = "a number" if name == "timeout" else "a string"
            raise Usage(f"{path}: {name} must be {expected}.", hint=f"Correct {name} in this file.")
    return found


def _path(text: str | Path) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise Usage(
            f"{text}: the home folder of this user is unknown.", hint="Write the absolute path instead of `~USER`."
        ) from None


def _url(found: Mapping[str, Any]) -> str:
    url = str(found.get("registry", DEFAULT_REGISTRY)).rstrip("/")
    if not url.startswith(("http://", "https://")) or len(url.split("/")[2]) == 0:
        raise Usage(f"{url!r} is not a registry URL.", hint="Write it as http://HOST:8765 or https://HOST.")
    return url


def _seconds(found: Mapping[str, Any]) -> float:
    value = found.get("timeout", 60.0)
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < 86400:
        raise Usage(
            f"The timeout {value!r} is not a number of seconds between 0 and 86400.", hint="Set MXR_TIMEOUT=60."
        )
    return seconds
