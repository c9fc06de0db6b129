"""Which user runs the program at the other end of a connection: real sockets, of this user and of another one."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mxr.client.listener import owner_of_peer

STRANGER, UNKNOWN = 12_345, 65_534


@contextlib.contextmanager
def connected(host: str, listen_on: str | None = None, *, accept: bool) -> Iterator[socket.socket]:
    """A connection to a listener of this process."""
    family = socket.AF_INET6 if ":" in (listen_on or host) else socket.AF_INET
    with socket.socket(family) as listener:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((listen_on or host, 0))
        listener.listen()
        with socket.create_connection((host, listener.getsockname()[1])) as client:
            taken = listener.accept()[0] if accept else None
            yield client
            if taken is not None:
                taken.close()


@pytest.mark.parametrize("accept", [True, False])
@pytest.mark.parametrize(
    ("host", "listen_on"),
    [("127.0.0.1", None), ("::1", None), ("127.0.0.1", "0.0.0.0"), ("127.0.0.1", "::"), ("127.0.0.77", "0.0.0.0")],
)
def test_a_program_of_this_user(host: str, listen_on: str | None, accept: bool) -> None:
    with connected(host, listen_on, accept=accept) as client:
        assert owner_of_peer(client) == os.geteuid()


@contextlib.contextmanager
def listener_of(user: int, *, accept: bool) -> Iterator[int]:
    """The port of a process of another user that listens."""
    told, tell = os.pipe()
    hold, release = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(release)
            os.setgid(user)
            os.setuid(user)
            with socket.create_server(("127.0.0.1", 0)) as listener:
                os.write(tell, listener.getsockname()[1].to_bytes(4, "big"))
                taken = listener.accept() if accept else None
                os.read(hold, 1)
                del taken
        os._exit(0)
    os.close(hold)
    try:
        yield int.from_bytes(os.read(told, 4), "big")
    finally:
        for descriptor in (release, told, tell):
            os.close(descriptor)
        os.waitpid(child, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a program of another user")
@pytest.mark.parametrize("accept", [True, False])
@pytest.mark.parametrize(("user", "owner"), [(STRANGER, STRANGER), (UNKNOWN, None)])
def test_a_program_of_another_user(accept: bool, user: int, owner: int | None) -> None:
    """The number that stands for all users of other namespaces says nothing, also to a program that runs as it."""
    with listener_of(user, accept=accept) as port, socket.create_connection(("127.0.0.1", port)) as client:
        assert owner_of_peer(client) == owner


def test_what_this_host_does_not_show_belongs_to_nobody(tmp_path: Path) -> None:
    """As in another network namespace: the tables of this one do not have the connection."""
    other = tmp_path / "tcp"
    other.write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    )
    with connected("127.0.0.1", accept=True) as client:
        assert owner_of_peer(client, (other,)) is None
        assert owner_of_peer(client, (tmp_path / "missing",)) is None
