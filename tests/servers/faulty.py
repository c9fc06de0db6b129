"""A way to an HTTP server on which things go wrong: it passes requests on as they are, so that signatures hold.

with Faulty(server.url) as way:
    way.spoil(Answer(503), times=2)              the next two requests are answered with 503
    way.spoil(Cut(1000), method="GET")           every GET breaks off after 1000 bytes of its body, until `heal`
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from harness import tokens

CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Answer:
    """The server's word for it, and nothing passed on."""

    status: int = 503
    code: str = "SlowDown"


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing is answered, or after so many bytes of the body nothing more, until it is healed."""

    after: int | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends after so many bytes of the body."""

    after: int


@dataclass(frozen=True, slots=True)
class Alter:
    """One byte of the body is another."""

    at: int = 0


@dataclass(frozen=True, slots=True)
class Lose:
    """The request is passed on, and its answer is not."""


@dataclass(frozen=True, slots=True)
class Withhold:
    """The request is passed on, and its answer does not come before it is healed."""


Fault = Answer | Stall | Cut | Alter | Lose | Withhold


@dataclass(slots=True)
class Plan:
    """A fault, and the requests that it befalls: `times` of those with this method and with `part` in their path."""

    fault: Fault
    method: str
    part: str
    times: float


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came by."""

    method: str
    path: str
    headers: dict[str, str]


class Faulty:
    """The way to `target`. `seen`: the requests so far."""

    def __init__(self, target: str, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: speak TLS to whoever comes, with this certificate."""
        parts = urlsplit(target)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._plans: list[Plan] = []
        self._lock = threading.Lock()
        self._healed = threading.Event()
        self.seen: list[Seen] = []
        self.connections: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", 0), self)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"
        tokens.stands_before(self.url, target)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Faulty:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """The server is gone: nobody listens any more, and what was connected is cut."""
        self.heal()
        self._server.shutdown()
        self._server.server_close()
        for each in list(self.connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def spoil(self, fault: Fault, *, method: str = "", part: str = "", times: float = float("inf")) -> None:
        """Something goes wrong from now on."""
        with self._lock:
            self._healed.clear()
            self._plans.append(Plan(fault, method, part, times))

    def heal(self) -> None:
        """Nothing goes wrong any more; what stalled ends."""
        with self._lock:
            self._plans.clear()
            self._healed.set()

    def count(self, method: str, part: str = "") -> int:
        """Requests so far with this method and with `part` in their path."""
        return sum(each.method == method and part in each.path for each in self.seen)

    def pick(self, seen: Seen) -> Fault | None:
        """What befalls a request."""
        with self._lock:
            self.seen.append(seen)
            for plan in self._plans:
                if plan.times > 0 and plan.method in ("", seen.method) and plan.part in seen.path:
                    plan.times -= 1
                    return plan.fault
        return None

    def wait(self) -> None:
        """Returns when it is healed."""
        self._healed.wait()

    def connect(self) -> http.client.HTTPConnection:
        """A connection to the real server."""
        return http.client.HTTPConnection(*self._target, timeout=120)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], way: Faulty) -> None:
        self.way = way
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""

    def handle(self) -> None:
        self.server.way.connections.add(self.connection)
        with contextlib.suppress(OSError):
            super().handle()
        self.server.way.connections.discard(self.connection)

    def _pass(self) -> None:
        way = self.server.way
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        fault = way.pick(Seen(self.command, self.path, headers))
        if isinstance(fault, Answer):
            self._answer(fault)
            return
        if fault == Stall():
            way.wait()
            self._drop()
            return
        line = way.connect()
        try:
            self._forward(line, body)
            if isinstance(fault, Lose | Withhold):
                line.getresponse().read()
                if isinstance(fault, Withhold):
                    way.wait()
                self._drop()
                return
            self._relay(line.getresponse(), fault)
        finally:
            line.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass

    def _answer(self, fault: Answer) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>a fault</Message></Error>".encode()
        data = b"" if self.command == "HEAD" else text
        self.send_response(fault.status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(data)

    def _forward(self, line: http.client.HTTPConnection, body: bytes) -> None:
        line.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("expect", "connection"):
                line.putheader(name, value)
        line.endheaders(body or None)

    def _relay(self, reply: http.client.HTTPResponse, fault: Fault | None) -> None:
        self.send_response_only(reply.status, reply.reason)
        for name, value in reply.getheaders():
            if name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        if reply.length is None and self.command != "HEAD":
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        at = 0
        while data := reply.read(CHUNK):
            if isinstance(fault, Cut | Stall) and at + len(data) > (fault.after or 0):
                self.wfile.write(data[: (fault.after or 0) - at])
                self.wfile.flush()
                if isinstance(fault, Stall):
                    self.server.way.wait()
                self._drop()
                return
            if isinstance(fault, Alter) and at <= fault.at < at + len(data):
                data = data[: fault.at - at] + bytes([data[fault.at - at] ^ 1]) + data[fault.at - at + 1 :]
            self.wfile.write(data)
            at += len(data)

    def _drop(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def refused() -> str:
    """The URL of a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
