"""Which user runs the program at the other end of a connection on this host.

The kernel lists every TCP socket of this network namespace with its owner. A connection that has not been accepted yet
has no owner (inode 0): then the socket that listens has it, which alone can accept the connection. Source: Linux,
net/ipv4/tcp_ipv4.c, `get_tcp4_sock` and `get_openreq4`.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
ESTABLISHED, LISTEN = "01", "0A"

OVERFLOW = Path("/proc/sys/kernel/overflowuid")
"""The user id that stands for each user whom this user namespace does not know."""

READS = 3
"""How often the tables are read: the kernel can skip a row while others change."""


class _Row(NamedTuple):
    local: str
    remote: str
    state: str
    user: int
    inode: int


def owner_of_peer(connection: socket.socket, tables: tuple[Path, ...] = TABLES) -> int | None:
    """Return the user id of the program that a connected socket reaches.

    None where this host does not show it: the program runs in another network namespace, such as a container whose port
    is published here, on another host, or as a user that this user namespace does not know.
    """
    found = _owner_of_peer(connection, tables)
    return None if found is None or found == _overflow() else found


def _overflow() -> int:
    try:
        return int(OVERFLOW.read_text())
    except (OSError, ValueError):
        return 65_534


def _owner_of_peer(connection: socket.socket, tables: tuple[Path, ...]) -> int | None:
    peer, own = connection.getpeername(), connection.getsockname()
    theirs, ours = _spellings(peer[0], peer[1]), _spellings(own[0], own[1])
    anywhere = {name for each in ("0.0.0.0", "::") for name in _spellings(each, peer[1])}
    for _ in range(READS):
        rows = [row for table in tables for row in _rows(table)]
        found = next((row for row in rows if row.local in theirs and row.remote in ours), None)
        if found is None:
            continue
        if found.inode and found.state == ESTABLISHED:
            return found.user
        listening = [row for row in rows if row.state == LISTEN and row.local in theirs | anywhere]
        if listening:
            # An exact address takes the connection before a wildcard does.
            return min(listening, key=lambda row: row.local in anywhere).user
    return None


def _rows(table: Path) -> Iterator[_Row]:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        words = line.split()
        yield _Row(words[1], words[2], words[3], int(words[7]), int(words[9]))


def _spellings(host: str, port: int) -> set[str]:
    """Return an address as the tables write it; an IPv4 address also as IPv6 sockets have it."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    forms = [address.packed]
    if isinstance(address, ipaddress.IPv4Address):
        forms.append(b"\0" * 10 + b"\xff\xff" + address.packed)
    return {f"{_words(form)}:{port:04X}" for form in forms}


def _words(address: bytes) -> str:
    """Return the bytes of an address in words of 32 bits, each in the order of this machine."""
    words = (address[at : at + 4] for at in range(0, len(address), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
