"""Tells the service manager that the registry serves, so that `systemctl start` returns then. Source: sd_notify(3)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping


def tell_ready(environ: Mapping[str, str]) -> None:
    """Send `READY=1` to the socket that a unit with `Type=notify` names; without one, do nothing."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        # An @ stands for the zero byte of the abstract namespace.
        connection.sendto(b"READY=1", address.replace("@", "\0", 1) if address[0] == "@" else address)
