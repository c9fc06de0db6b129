"""The Unix sockets of registries on this host: where they are, and whom the kernel says to be at the other end.

    $XDG_RUNTIME_DIR/mxr/<name of the host>_8765.sock        or below $XDG_STATE_HOME/mxr/run

A registry on a loopback address listens there too, in a folder that only its user can open. Programs of that user find
it by the port of the URL. A folder is opened first, checked, and then used by its descriptor: nobody can put another
one in its place, and its path can have any length.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mxr.configuration.config_file import UntrustedFileError

ABSENT = (FileNotFoundError, NotADirectoryError, ConnectionRefusedError)
"""No registry listens there: there is no such socket, or one that its registry has left behind."""

OVERFLOW = Path("/proc/sys/kernel/overflowuid")
"""The user id that stands for each user whom this user namespace does not know."""


def name_of(port: int) -> str:
    """Return the name of the socket of the registry on this port of this host: several hosts can share a home."""
    return f"{socket.gethostname()[:64]}_{port}.sock"


@contextmanager
def opened(folder: Path, *, private: bool = True) -> Iterator[str]:
    """Yield a path of a folder that stays the same while others rename it. Raises `OSError` and `UntrustedFileError`.

    `private`: it must belong to this user. In any case, nobody but its owner may write it.
    """
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if private and status.st_uid != os.geteuid():
            raise UntrustedFileError(f"it belongs to user {status.st_uid}")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            mode = stat.S_IMODE(status.st_mode)
            raise UntrustedFileError(f"other users can write it (mode {mode:04o}; fix it with `chmod go-w`)")
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def connect(path: Path, timeout: float | None, *, private: bool = True) -> socket.socket:
    """Return a connection to the socket at this path. Raises `OSError`, and `UntrustedFileError` as `opened` does."""
    found = socket.socket(socket.AF_UNIX)
    try:
        found.settimeout(timeout)
        with opened(path.parent, private=private) as folder:
            found.connect(f"{folder}/{path.name}")
    except BaseException:
        found.close()
        raise
    return found


def connect_own(own: Sequence[Path], port: int, timeout: float | None) -> tuple[socket.socket, Path] | None:
    """Return a connection to the registry of this user on a port of this host, and where; None where there is none.

    `own`: the folders of this user's sockets; those that others can write are left out. Raises `OSError` if the
    registry does not answer.
    """
    for folder in own:
        with suppress(*ABSENT, PermissionError, UntrustedFileError):
            path = folder / name_of(port)
            found = connect(path, timeout)
            if is_own_peer(found):
                return found, path
            found.close()
    return None


def is_own_peer(connection: socket.socket) -> bool:
    """Whether a program of this very user, or of root, is at the other end of a connection by a Unix socket.

    A user whom this user namespace does not know is neither. Source: unix(7), SO_PEERCRED; user_namespaces(7).
    """
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return user in (os.geteuid(), 0) and user != _unknown_user()


def _unknown_user() -> int:
    try:
        return int(OVERFLOW.read_text())
    except (OSError, ValueError):
        return 65_534
