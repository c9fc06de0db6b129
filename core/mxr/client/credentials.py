"""Which token a client sends, and to whom: how it reaches the registry at its URL, and where a token may go.

    unix:/run/mxr/registry.sock     by this socket, whose folder nobody but its owner may write
    http://127.0.0.1:8765           by the socket of this user's own registry on this port if there is one; else by TCP

A configured token (`Settings.token`, or the content of `Settings.token_file`) goes to the registry that it was
configured for. The registry of this very user on this host needs none: who has a socket in a folder of this user is
this user or root; a port belongs to whichever program takes it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mxr.configuration.config_file import UntrustedFileError, read_config
from mxr.configuration.proxies import is_loopback
from mxr.errors import NotAllowedError, UnauthenticatedError, UsageError
from mxr.facts import stated
from mxr.protocol import local_socket
from mxr.settings import Settings, check_token, read_stored

if TYPE_CHECKING:
    import socket


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


Header = Mapping[str, str]


class Credentials:
    """The token of one client. Can be used from several threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._file = TokenFile(settings.token_file) if settings.token_file else None

    @cached_property
    def _stored(self) -> str | None:
        """The token that `mxr login` has stored for the registry."""
        return read_stored(self._settings.config_dir).get(self._settings.registry)

    @property
    def _configured(self) -> str | None:
        return self._file.read() if self._file else self._settings.token or self._stored

    def header(self) -> Header:
        """Return the header with the configured token; nothing without one.

        Raises `UsageError`, and `NotAllowedError` where the token would leave this machine unencrypted.
        """
        token = self._configured
        if token and not self._settings.plaintext:
            refuse_plain(self._settings.registry)
        return _header(token) if token else {}

    def explain(self, error: UnauthenticatedError) -> None:
        """Say in an error which token the registry refused, or why there was none."""
        settings = self._settings
        if self._configured:
            source = "mxr login" if not (self._file or settings.token) else "the settings"
            source = settings.sources.get("token_file" if self._file else "token", source)
            error.hint = f"The token comes from {source}. {error.usual_hint}"
        elif settings.withheld:
            error.hint = f"{settings.withheld} {error.usual_hint}"
        elif is_loopback_url(settings.registry):
            error.hint = f"No registry of this user has a socket for this port, so it needs a token. {error.usual_hint}"


class TokenFile:
    """A file with a token, which can be replaced while a program runs.

    Where it disappears, or has no token at the moment (some tools write it in two steps), the last one stays in use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[Any, str] | None = None

    def read(self) -> str:
        """Return the token in the file. Raises `UsageError` where it cannot be used."""
        with suppress(OSError):
            status = self._path.stat()
            state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if self._known is None:
                self._known = (state, self._read())
            elif self._known[0] != state:
                with suppress(UsageError):
                    self._known = (state, self._read())
        if self._known is None:
            raise UsageError(
                f"The token file {self._path} cannot be read, or does not exist.",
                hint="Write the token to it, or correct MXR_TOKEN_FILE.",
            )
        return self._known[1]

    def _read(self) -> str:
        try:
            # A mounted secret is a symbolic link.
            file = read_config(self._path, follow_links=True, private=True)
        except UntrustedFileError as reason:
            raise UsageError(f"The token file {self._path} is not used: {reason}.", hint="Make it private.") from None
        token = check_token(file.text, str(self._path)) if file else None
        if token is None:
            raise UsageError(f"The token file {self._path} is empty.", hint="Write the token to it.")
        return token


def _header(token: str) -> Header:
    return {"Authorization": f"Bearer {token}"}
