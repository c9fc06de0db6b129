"""Bytes to and from a registry on a raw socket: requests that no HTTP client would send."""

from __future__ import annotations

import json
import socket
from typing import Any

from harness.tokens import authorization

NAME = "0" * 64
"""The sha256 of a blob that nobody sends."""


class RawConnection:
    """One TCP connection. `send` writes what it is given; `reply` reads until the registry closes, or one response."""

    def __init__(self, port: int, *lines: str, body: bytes = b"", seconds: float = 60.0) -> None:
        """`lines`: request line and header. Sends nothing without them."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self._file = self._socket.makefile("rb")
        if lines:
            token = [f"{name}: {value}" for name, value in authorization(f"http://127.0.0.1:{port}").items()]
            self.send("\r\n".join((*lines, *token, "", "")).encode("latin-1") + body)

    def send(self, data: bytes) -> None:
        """Send these bytes."""
        self._socket.sendall(data)

    def status(self) -> int:
        """The status of the next response; 0 where the registry closes the connection without one."""
        line = self._file.readline()
        return int(line.split()[1]) if line else 0

    def error(self) -> tuple[int, dict[str, Any]]:
        """Status and error of the next response."""
        status, size = self.status(), 0
        while (line := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").lower().partition(":")
            size = int(value) if name == "content-length" else size
        found: dict[str, Any] = json.loads(self._file.read(size))
        return status, found

    def rest(self) -> bytes:
        """Everything until the registry closes the connection."""
        try:
            return self._file.read()
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def upload(port: int, size: int = 1 << 20, body: bytes = b"") -> RawConnection:
    """An upload of `size` bytes that has sent only `body`."""
    lines = (f"PUT /v1/blobs/{NAME} HTTP/1.1", "host: 127.0.0.1", "content-type: application/octet-stream")
    return RawConnection(port, *lines, f"content-length: {size}", body=body)
