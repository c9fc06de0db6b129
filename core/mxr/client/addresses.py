"""How a client reaches the registry at its URL, and where a token may go.

    unix:/run/mxr/registry.sock     by this socket, whose folder nobody but its owner may write
    http://127.0.0.1:8765           by the socket of this user's own registry on this port if there is one; else by TCP

Who has a socket in a folder of this user is this user or root; a port belongs to whichever program takes it first.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mxr.configuration.config_file import UntrustedFileError
from mxr.errors import NotAllowedError
from mxr.facts import stated
from mxr.protocol import local_socket

if TYPE_CHECKING:
    import socket

    from mxr.settings import Settings


def refuse_plain(url: str) -> None:
    """Raise `NotAllowedError` if a token for this URL would leave this machine unencrypted."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise NotAllowedError(
            f"The token would go to {parts.hostname} over plain http, where others can read it.",
            hint=f"Use an https:// URL. In a network that you trust: {stated('plaintext')} or MXR_PLAINTEXT=1.",
        )


def is_loopback_url(url: str) -> bool:
    """Whether a URL is that of a TCP port of this host."""
    return url.startswith("http://") and is_loopback(urlsplit(url).hostname or "")


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this host."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


SCHEME = "unix:"


class RegistrySocket:
    """Makes the connections to one registry that do not use TCP. `base`: the URL for requests."""

    def __init__(self, settings: Settings) -> None:
        url = settings.registry
        self._path = Path(url.removeprefix(SCHEME)) if url.startswith(SCHEME) else None
        self._own = settings.socket_dirs
        self.base = "http://localhost" if self._path else url

    def connect(self, host: str, port: int, timeout: float | None) -> tuple[socket.socket, Path] | None:
        """Return a connection and the path of its socket, or None where TCP has to be used.

        Raises `OSError`, and `NotAllowedError` for a configured socket that others could have put there.
        """
        if self._path is not None:
            try:
                return local_socket.connect(self._path, timeout, private=False), self._path
            except UntrustedFileError as reason:
                raise NotAllowedError(
                    f"The folder of the socket {self._path} is not used: {reason}.",
                    hint="Whoever can write it could answer as the registry. Put the socket into a folder of its own.",
                ) from None
        return local_socket.connect_own(self._own, port, timeout) if is_loopback(host.strip("[]")) else None
