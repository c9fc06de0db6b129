"""The tokens that a registry on a loopback address keeps for the user who runs it, in one file of that user.

    $XDG_CONFIG_HOME/mxr/local/127.0.0.1_8765.json    {"admin": "mxr_...", "work": "mxr_..."}, mode 0600

The registry writes it before it listens. Programs of the same user find it by the address that they are connected to:
`mxr` takes the token with the scope `admin`, and `mxr-worker` the one with the scope `work`. The tokens are in no
database: they are valid only in the registry that listens at this address.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mxr.configuration.config_file import UntrustedFileError, read_config
from mxr.errors import MxrError
from mxr.util import codec, disk

from .access import ADMIN, TOKEN, WORK

ROLES = (ADMIN, WORK)
"""The scopes of the tokens; each token has one of them."""


def path_of(config_dir: Path, host: str, port: int) -> Path:
    """Return the path of the file for a listener at this IP address, whether there is one or not."""
    return config_dir / "local" / f"{host.partition('%')[0]}_{port}.json"


def read(path: Path) -> dict[str, str]:
    """Return the token of each role; nothing where there is no such file, or none that registries write.

    Raises `UntrustedFileError` for a file that others can read or write.
    """
    file = read_config(path, private=True)
    if file is None:
        return {}
    try:
        found: Any = codec.parse(file.text, str(path))
    except MxrError:
        return {}
    if not isinstance(found, dict):
        return {}
    tokens = {role: str(found.get(role)) for role in ROLES}
    return tokens if all(map(TOKEN.fullmatch, tokens.values())) else {}


def keep(path: Path, make: Callable[[], str]) -> dict[str, str]:
    """Return the tokens in the file, made new and written where there are none. Raises `MxrError`.

    What is there already stays: a program that has a token keeps it when the registry starts again.
    """
    try:
        known = read(path)
    except UntrustedFileError:
        known = {}
    if known:
        return known
    made = {role: make() for role in ROLES}
    with disk.faults(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
    disk.write_whole(path, codec.canonical(made).encode() + b"\n", mode=0o600)
    return made
