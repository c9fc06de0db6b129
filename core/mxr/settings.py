"""The settings of the client: one frozen value, made once from flags, environment and configuration file."""

from __future__ import annotations

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
"""The environment variable of each setting; the names in the configuration file are those of the settings."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`registry` is a URL, `consumer` the one that `--for` defaults to, `timeout` seconds without a byte."""

    registry: str = DEFAULT_REGISTRY
    token: str | None = None
    cache_dir: Path = Path()
    consumer: str | None = None
    host_file: Path | None = None
    timeout: float = 60.0


def load(environ: Mapping[str, str], given: Mapping[str, Any] | None = None) -> Settings:
    """Flags in `given` win over the environment, that over the file. Raises `Usage` for a bad file or value."""
    home = Path(environ.get("HOME") or "/")
    default_cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "mxr"
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "mxr" / "config.toml"
    found: dict[str, Any] = {"cache_dir": default_cache, **_from_file(config)}
    found |= {name: environ[variable] for name, variable in VARIABLES.items() if environ.get(variable)}
    found |= {name: value for name, value in (given or {}).items() if value is not None}
    for name in ("cache_dir", "host_file"):
        if found.get(name) is not None:
            found[name] = _path(found[name])
    return Settings(**found | {"registry": _url(found), "timeout": _seconds(found)})


def _from_file(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    import tomllib

    try:
        found = tomllib.loads(data.decode())
    except ValueError as problem:
        raise Usage(f"{path} is not valid TOML: {problem}.", hint="Correct it or remove it.") from None
    known = {row.name for row in fields(Settings)}
    for name, value in found.items():
        if name not in known:
            raise Usage(f"{path}: there is no setting {name!r}.", hint="Known: " + ", ".join(sorted(known)) + ".")
        if not isinstance(value, (int, float) if name == "timeout" else str) or isinstance(value, bool):
            raise Usage(f"{path}: {name} has a value of the wrong type.", hint="Correct it.")
    return found


def _path(text: str | Path) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise Usage(f"{text} begins with the home of a user that there is not.", hint="Write the whole path.") from None


def _url(found: Mapping[str, Any]) -> str:
    url = str(found.get("registry", DEFAULT_REGISTRY)).rstrip("/")
    if not url.startswith(("http://", "https://")) or len(url.split("/")[2]) == 0:
        raise Usage(f"{url!r} is not the URL of a registry.", hint="Write it as http://HOST:8765.")
    return url


def _seconds(found: Mapping[str, Any]) -> float:
    try:
        seconds = float(found.get("timeout", 60.0))
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < 86400:
        raise Usage("The timeout is not a number of seconds.", hint="Set MXR_TIMEOUT=60.")
    return seconds
