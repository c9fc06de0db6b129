"""A registry that lies to a worker: it hands out one lease, with whatever key and model a test gives it."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from harness import tokens

from mxr.errors import NotFoundError

JOB = "ab" * 16
DIGEST = "0" * 64


class LyingRegistry(ThreadingHTTPServer):
    """Listens on loopback. `received`: the paths of all requests; `failures`: what the worker reported."""

    daemon_threads = True

    def __init__(self, key: Mapping[str, Any], files: Mapping[str, bytes], onnx: str = "model.onnx") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.blobs = {sha256(data).hexdigest(): data for data in files.values()}
        self.received: list[str] = []
        self.failures: list[dict[str, Any]] = []
        self.ended = threading.Event()
        rows = []
        for name, data in files.items():
            sha = sha256(data).hexdigest()
            rows.append({"name": name, "size": len(data), "sha256": sha, "blobs": [{"sha256": sha, "size": len(data)}]})
        self.lease: dict[str, Any] | None = {
            "job": JOB,
            "seconds": 60.0,
            "key": dict(key),
            "constraints": {},
            "model": {"v": 1, "files": rows},
            "onnx": onnx,
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> LyingRegistry:
        # No client believes what asks for no token.
        tokens.remember(self.url, {"admin": "t", "work": "t"})
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """A worker that is killed resets its connections."""

    def answer(self, method: str, path: str, body: Any) -> Any:
        """The JSON of a reply, or bytes."""
        path = path.removeprefix("/v1")
        if path == "/workers":
            return {
                "id": "w1",
                "name": body["name"],
                "state": "idle",
                "can": body["can"],
                "seen_at": SEEN_AT,
            }
        if path == "/workers/sign-off":
            return {"id": "w1", "name": "gone", "state": "left", "can": CAN, "seen_at": SEEN_AT}
        if path == "/jobs/claim":
            lease, self.lease = self.lease, None
            return {"lease": lease}
        if path.endswith("/heartbeat"):
            return {"seconds": 60.0, "cancelled": False}
        if path.endswith("/fail"):
            self.failures.append(body["failure"])
            self.ended.set()
        if (found := self.blobs.get(path.removeprefix("/blobs/"))) is not None:
            return found
        return NotFoundError("This registry does nothing else.").to_json()


SEEN_AT = "2026-11-24T20:33:41Z"
CAN = {"targets": [{"arch": "ref", "kind": "ref"}], "toolchain": {"migraphx": "2.15.0"}}


class _Handler(BaseHTTPRequestHandler):
    server: LyingRegistry
    protocol_version = "HTTP/1.1"

    def _reply(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        self.server.received.append(f"{self.command} {self.path}")
        made = self.server.answer(self.command, self.path, json.loads(data) if data else None)
        found = made if isinstance(made, bytes) else json.dumps(made).encode()
        self.send_response(404 if isinstance(made, dict) and "error" in made else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(found)))
        self.send_header("MXR-Registry", "00000000-0000-4000-8000-000000000000")
        self.end_headers()
        self.wfile.write(found)

    do_GET = do_POST = do_PUT = do_DELETE = _reply

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""
