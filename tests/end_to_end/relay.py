"""A relay between a client and a registry: sees how far a transfer is, acts at a byte, can be cut and mended."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from harness import tokens


class Relay:
    """Forwards connections to `target`; when `after` bytes have gone `up` or `down`, runs `then` once.

    With `hold` nothing more is forwarded from there on, so that whoever waits for it waits.
    """

    def __init__(
        self,
        target: str,
        *,
        up: bool = False,
        after: int = 0,
        then: Callable[[], None] | None = None,
        hold: bool = False,
    ) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._up, self._after, self._then, self._hold = up, after, then, hold
        self.reached = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self.bytes = {True: 0, False: 0}
        self.met = 0
        """How often somebody met the cut, with a new connection or with bytes on an open one; or our own answer."""
        self._cut, self._silent, self._marker = threading.Event(), False, b""
        self._answer = ""
        self._held: list[socket.socket] = []
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        tokens.stands_before(self.url, target)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for each in [self._listener, *self._sockets, *self._held]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def drop(self) -> None:
        """Cuts every connection; new ones are taken."""
        for each in self._sockets[:]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self, *, silent: bool = False) -> None:
        """Cuts the network. `silent`: as where packets vanish, so that who asks hears nothing at all."""
        self._silent = silent
        self._cut.set()
        if not silent:
            self.drop()

    def cut_at(self, marker: bytes, *, silent: bool = False) -> None:
        """Cuts the network when a request comes that holds these bytes, which it does not pass on."""
        self._silent, self._marker = silent, marker

    def answer(self, marker: bytes, status: str) -> None:
        """Answers requests that hold these bytes itself, `500 Internal Server Error` say, as a proxy with a fault."""
        self._marker, self._answer = marker, status

    @property
    def is_cut(self) -> bool:
        """Whether the network is cut."""
        return self._cut.is_set()

    def mend(self) -> None:
        """The network works again; what was open when it was cut, or tried to open since, stays as dead as it was."""
        self._marker, self._answer = b"", ""
        self._cut.clear()

    def _turned_away(self, near: socket.socket) -> bool:
        """Whether a new connection finds the network cut."""
        if not self.is_cut:
            return False
        self.met += 1
        if self._silent:
            self._held.append(near)
        else:
            near.close()
        return True

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._turned_away(near):
                continue
            try:
                far = socket.create_connection(self._target, 30)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self._sockets += [near, far]
            for source, sink, up in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._pump, args=(source, sink, up), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, up: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if up and self._marker and self._marker in data:
                    if self._answer:
                        self.met += 1
                        source.sendall(f"HTTP/1.1 {self._answer}\r\nContent-Length: 0\r\n\r\n".encode())
                        break
                    self.cut(silent=self._silent)
                if self.is_cut and self._silent:
                    # Dead for good, and nobody is told: a gateway that forgot the connection does so.
                    self.met += 1
                    self._closed.wait()
                if self.is_cut:
                    break
                self._pass(len(data), up)
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _pass(self, count: int, up: bool) -> None:
        with self._lock:
            self.bytes[up] += count
            here = up == self._up and self.bytes[up] > self._after
            first = here and not self.reached.is_set()
            if first:
                if self._then is not None:
                    self._then()
                self.reached.set()
        if here and self._hold:
            self._closed.wait()
