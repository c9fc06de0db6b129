"""A relay between a client and a registry: it sees how far a transfer is, and does something at a certain byte."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit


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
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for each in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def drop(self) -> None:
        """Cuts every connection; new ones are taken."""
        for each in self._sockets[:]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
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
