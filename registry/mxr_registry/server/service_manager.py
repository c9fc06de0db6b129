"""What a service manager such as systemd gives to a registry, and what it is told.

It gives sockets that stay open while the registry restarts, so that nobody else can take their port or path, and it
hears when the registry serves. Sources: sd_listen_fds(3), sd_notify(3).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

FIRST = 3
"""The descriptor of the first socket."""


def inherited_sockets(environ: Mapping[str, str]) -> list[socket.socket]:
    """Return the sockets that the service manager listens on for this process; nothing where it has none."""
    count = environ.get("LISTEN_FDS", "")
    if environ.get("LISTEN_PID") != str(os.getpid()) or not (count.isascii() and count.isdigit()):
        return []
    found = [socket.socket(fileno=FIRST + number) for number in range(int(count))]
    for each in found:
        each.set_inheritable(False)
    return found


def tell_ready(environ: Mapping[str, str]) -> None:
    """Send `READY=1` to the socket that a unit with `Type=notify` names; without one, do nothing."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        # An @ stands for the zero byte of the abstract namespace.
        connection.sendto(b"READY=1", address.replace("@", "\0", 1) if address[0] == "@" else address)
