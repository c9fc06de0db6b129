"""A registry as a process: `mxr-registry serve` on a database and a store, and requests to it."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import urllib3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from mxr.configuration.config_file import user_socket_dirs
from mxr.protocol import local_socket

from . import tokens
from .api_document import CONFORMANCE
from .programs import Program, command, run

STOP_SECONDS = 60.0

USUAL = {"MXR_SERVE_DRAIN": "0", "MXR_SERVE_GRACEFUL": "3", "MXR_LIMITS_RESERVE": "0"}
"""The settings of the registries of most tests: they stop soon, and their disk is memory."""

PROBLEM = {"type", "title", "status", "detail", "code", "hint", "retry", "context"}
"""The fields of an error in JSON; a reply of a registry has `request_id` too."""

COMMAND = re.compile(r"`(?!--)[^`]*`|\bmxr(?:-registry|-worker)? [a-z][a-z-]*(?: [^\s`]*[^\s`,.;:])*")
"""A command in backticks, or one that ends where its sentence or clause does."""

CLIENT_COMMAND = re.compile(r"mxr (fetch|push|lock|ls|jobs|promote|workers) ")


class RegistryProcess:
    """One registry on a port that it keeps when it is started again.

    `environ`: its whole environment. `flags`: more options of `serve`. `through`: the command that runs it, if any.
    """

    def __init__(
        self,
        data: Path,
        environ: Mapping[str, str],
        *flags: str,
        port: int = 0,
        through: tuple[str, ...] = (),
        log: Path | None = None,
    ) -> None:
        self.data = data
        own = {"XDG_CONFIG_HOME": f"{data}-config", "XDG_RUNTIME_DIR": f"{data}-run", "XDG_STATE_HOME": f"{data}-state"}
        self.environ = {**own, **environ}
        if {"MXR_DATABASE_URL", "MXR_DATABASE_URL_FILE"} & environ.keys():
            # Registries on one database have one key.
            self.environ.setdefault("MXR_SIGNING_KEY_FILE", str(signing_key(data.parent)))
        self.flags = flags
        self.port = port
        self.through = through
        self.log = log or data.parent / f"{data.name}.log"
        self.line = ""
        self.tokens: dict[str, str] = {}
        # Blobs may be in S3: a redirect is followed, nothing else is repeated.
        follow = urllib3.Retry(total=None, connect=0, read=0, status=0, other=0, redirect=2)
        self.http = urllib3.PoolManager(maxsize=64, retries=follow, timeout=90)
        self.start()

    def start(self) -> None:
        """Start it and wait until it listens."""
        self.data.parent.mkdir(parents=True, exist_ok=True)
        words = ("serve", "--port", self.port, "--data", self.data, *self.flags)
        with self.log.open("ab") as log:
            self.process = Program(
                command("mxr-registry", *words, through=self.through),
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        found = re.search(r"(https?://\S+:([0-9]+))", self.line)
        if not found:
            self.stop()
            raise AssertionError(f"the registry did not start: {self.log.read_text()}")
        self.url, self.port = found[1], int(found[2])
        self.tokens = self.tokens or self._own_tokens() or self._make_tokens()
        tokens.remember(self.url, self.tokens)
        self.http.headers = {**self.http.headers, **tokens.authorization(self.url)}

    def _own_tokens(self) -> dict[str, str]:
        """Tokens made by the socket of the user who serves; none beyond loopback."""
        path = self.socket_path
        if not path.exists():
            return {}
        return {
            scope: json.loads(by_socket(path, "POST", "/v1/tokens", {"name": "tests", "scopes": [scope]})[1])["secret"]
            for scope in ("admin", "work")
        }

    @property
    def socket_path(self) -> Path:
        """Where the socket of the user who serves is, if there is one."""
        places = [folder / local_socket.name_of(self.port) for folder in user_socket_dirs(self.environ)]
        return next((place for place in places if place.exists()), places[0])

    def _make_tokens(self) -> dict[str, str]:
        """Tokens of a registry that other hosts can reach, which keeps none for its user."""
        create = ("token", "create", "tests", "--data", self.data, "--scopes")
        runs = {scope: run(command("mxr-registry", *create, scope), env=self.environ) for scope in ("admin", "work")}
        return {scope: done.stdout.strip() for scope, done in runs.items()}

    def stop(self, how: int = signal.SIGTERM) -> int:
        """Stop it; its exit number."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(STOP_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.http.clear()
        return code

    def kill9(self) -> None:
        """End it as a power cut does."""
        self.stop(signal.SIGKILL)

    def restart(self) -> None:
        """Stop it if it runs, and start it again under the same URL."""
        self.stop()
        self.start()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """It keeps its connections and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> urllib3.BaseHTTPResponse:
        """A reply; a body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        typed = body_type(body) | tokens.authorization(self.url) | dict(headers or {})
        reply = self.http.request(method, self.url + path, body=data, headers=typed, **options)
        if options.get("preload_content", True) and not (reply.retries and reply.retries.history):
            CONFORMANCE.check(method, path, body, reply.status, reply.headers, reply.data)
        return reply

    def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of a reply. The hint of an error names no command of a client."""
        reply = self.request(method, path, body, headers)
        said = json.loads(reply.data) if reply.data else None
        if reply.status >= 400:
            words = COMMAND.sub("", said["hint"]) + said["detail"]
            assert "--" not in words and not CLIENT_COMMAND.search(said["hint"]), said
        return reply.status, said


def by_socket(
    path: Path, method: str, target: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Status and body of a reply that comes by a Unix socket."""
    connection = http.client.HTTPConnection("localhost", timeout=90)
    connection.sock = local_socket.connect(path, 90, private=False)
    data = None if body is None else json.dumps(body).encode()
    connection.request(method, target, data, {**body_type(body), **(headers or {})})
    with contextlib.closing(connection):
        reply = connection.getresponse()
        return reply.status, reply.read()


def body_type(body: Any) -> dict[str, str]:
    """The Content-Type with which a body is sent: bytes as bytes, everything else as JSON."""
    if body is None:
        return {}
    return {"content-type": "application/octet-stream" if isinstance(body, bytes) else "application/json"}


def signing_key(folder: Path) -> Path:
    """The file of the signing key of all registries on a database server."""
    path = folder / "tests.signing.key"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"tests").digest())
        form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        written = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        written.write_bytes(private.private_bytes(*form))
        written.chmod(0o600)
        written.replace(path)
    return path


def registry_environ(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without settings of mxr, and with those given. A registry stops soon, whatever hangs in it."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MXR_")}
    return own | USUAL | dict(more or {})
