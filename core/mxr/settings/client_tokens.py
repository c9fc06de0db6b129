"""The tokens of a client: their form, the registry that each is for, and those that `mxr login` has stored.

$XDG_CONFIG_HOME/mxr/tokens.json    {"https://registry.example.com": "mxr_..."}, mode 0600
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mxr.configuration.config_file import UntrustedFileError, read_config
from mxr.errors import UsageError
from mxr.util import codec, disk

MAX_LENGTH = 4_096
STORE = "tokens.json"


def check_token(value: object, source: str) -> str | None:
    """Return a token without the newline that a mounted secret ends with; None for an empty one.

    Raises `UsageError`, which does not quote it.
    """
    text = str(value).strip()
    if not text:
        return None
    if len(text) > MAX_LENGTH or not all("!" <= letter <= "~" for letter in text):
        raise UsageError(
            f"{source}: the token has characters that a header cannot carry.",
            hint="Write the token alone: visible ASCII characters, without spaces and quotes.",
        )
    return text


def read_stored(config_dir: Path) -> dict[str, str]:
    """Return the token of each registry that `mxr login` has stored.

    Raises `UsageError` for a file that is no such store, or that others can read or write.
    """
    path = config_dir / STORE
    try:
        file = read_config(path, private=True)
    except UntrustedFileError as reason:
        raise UsageError(f"{path} is not used: {reason}.", hint="Make it private, or remove it.") from None
    found: Any = codec.parse(file.text, str(path)) if file else {}
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise UsageError(f"{path} is no store of tokens.", hint="Remove it, and run `mxr login` again.")
    return found


def write_stored(config_dir: Path, tokens: Mapping[str, str]) -> None:
    """Replace what is stored. Raises `MxrError`."""
    with disk.faults(config_dir):
        config_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    disk.write_whole(config_dir / STORE, codec.canonical(dict(tokens)).encode() + b"\n", mode=0o600)
