"""How a client reaches the registry at its URL: by TCP, or by a Unix socket of this host.

    unix:/run/mxr/registry.sock     by this socket, whose folder nobody but its owner may write
    http://127.0.0.1:8765           by the socket of this user's own registry on this port if there is one; else by TCP

Who has a socket in a folder of this user is this user or root; a port belongs to whichever program takes it first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mxr.configuration.config_file import UntrustedFileError
from mxr.errors import NotAllowedError
from mxr.protocol import local_socket

from .plain_http import is_loopback

if TYPE_CHECKING:
    import socket

    from mxr.settings import Settings

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
