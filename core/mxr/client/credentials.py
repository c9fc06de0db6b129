"""Which token a client sends, and to whom.

A configured token (`Settings.token`, or the content of `Settings.token_file`) goes to the registry that it was
configured for. Without one, the registry on this host that belongs to this very user has left a token in a file: it
goes only over a connection whose other end is a program of this user.
"""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from mxr.configuration.config_file import UntrustedFileError, read_config
from mxr.errors import UnauthenticatedError, UsageError
from mxr.protocol import local_tokens
from mxr.settings import Settings
from mxr.settings.tokens import check_token, read_stored

from .listener import owner_of_peer
from .plain_http import is_loopback, refuse_plain

Header = Mapping[str, str]


class Credentials:
    """The token of one client. Can be used from several threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._file = TokenFile(settings.token_file) if settings.token_file else None
        self._missing = ""

    @cached_property
    def _stored(self) -> str | None:
        """The token that `mxr login` has stored for the registry."""
        folder = self._settings.config_dir
        return read_stored(folder).get(self._settings.registry) if folder else None

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

    def header_for(self, connection: socket.socket) -> Header:
        """Return the header with the token that the registry of this user at the other end has left, if it has."""
        if self._configured or self._settings.config_dir is None:
            return {}
        try:
            host, port = connection.getpeername()[:2]
        except OSError:
            return {}
        token, self._missing = self._local_token(connection, host, port) if is_loopback(host) else (None, "")
        return _header(token) if token else {}

    def _local_token(self, connection: socket.socket, host: str, port: int) -> tuple[str | None, str]:
        """Return the token for a listener on this host, or None and the reason, as a sentence."""
        owner, me = owner_of_peer(connection), os.geteuid()
        if owner is None:
            return None, (
                "What listens there cannot be seen from here (it runs in another network namespace, such as a "
                "container with a published port), so no token was sent."
            )
        if owner != me:
            return None, f"The registry there belongs to the user {_user(owner)}, so no token was sent."
        assert self._settings.config_dir is not None
        path = local_tokens.path_of(self._settings.config_dir, host, port)
        try:
            found = local_tokens.read(path)
        except UntrustedFileError as reason:
            return None, f"{path} is not used: {reason}."
        if not found:
            return None, f"There is no token in {path}."
        return found[self._settings.role], ""

    def explain(self, error: UnauthenticatedError) -> None:
        """Say in an error which token the registry refused, or why there was none."""
        settings = self._settings
        if self._configured:
            source = "mxr login" if not (self._file or settings.token) else "the settings"
            source = settings.sources.get("token_file" if self._file else "token", source)
            error.hint = f"The token comes from {source}. {error.usual_hint}"
        elif settings.withheld:
            error.hint = f"{settings.withheld} {error.usual_hint}"
        elif self._missing:
            error.hint = f"{self._missing} {error.usual_hint}"


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


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
