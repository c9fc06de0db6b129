"""The HTTP API, a method a verb: the only file that opens a connection. Transfers of many blobs are in `transfer`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from . import fields, wire
from .errors import Json, MxrError, Unreachable, from_json
from .manifest import Blob
from .qualities import Request
from .settings import Settings

if TYPE_CHECKING:
    import urllib3

T = TypeVar("T")

ATTEMPTS = 4
"""Tries of a request that may be repeated, 0.2, 0.4 and 0.8 s apart: about as long as a registry takes to restart."""

CHUNK = 1 << 20


class Client:
    """A registry at one URL. Every method raises `Unreachable` when it does not answer, else the error it answered.

    urllib3 is loaded with the first request: a fetch that the cache answers must not pay for it.
    """

    def __init__(self, settings: Settings, *, connections: int = 8) -> None:
        self.url = settings.registry
        self._settings = settings
        self._connections = connections

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        import urllib3

        headers = {"User-Agent": "mxr/1", "Accept-Encoding": "identity"}
        if self._settings.token:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        timeout = self._settings.timeout
        return urllib3.PoolManager(
            maxsize=self._connections,
            headers=headers,
            timeout=urllib3.Timeout(connect=min(10.0, timeout), read=timeout),
            retries=False,
        )

    def resolve(self, request: Request) -> wire.Hit:
        """The artifact for a request. Raises `NoSuchArtifact`, whose detail says what comes nearest."""
        return self._ask(wire.Hit, "POST", "/resolve", request.to_json())

    def artifacts(self, **filters: str | int | None) -> wire.Artifacts:
        """A page of artifacts, by model, digest, kind, vendor, arch, migraphx, rocm, precision, input; limit, after."""
        return self._ask(wire.Artifacts, "GET", "/artifacts" + _query(filters))

    def artifact(self, identity: str) -> wire.Artifact:
        """One artifact with its manifest, by its id or the beginning of it."""
        return self._ask(wire.Artifact, "GET", f"/artifacts/{quote(identity, safe='')}")

    def publish(self, body: wire.Publish) -> wire.Artifact:
        """Publish an artifact whose blobs are all there. Publishing the same again is fine."""
        return self._ask(wire.Artifact, "POST", "/artifacts", wire.document(body))

    def promote(self, identity: str) -> wire.Artifact:
        """Make this artifact the first choice for its key."""
        return self._ask(wire.Artifact, "POST", f"/artifacts/{quote(identity, safe='')}/promote")

    def remove(self, identity: str) -> None:
        """Take an artifact out of the registry; its bytes go with the next sweep."""
        with self._reply("DELETE", f"/artifacts/{quote(identity, safe='')}") as reply:
            self._read(reply)

    def model(self, model: str) -> wire.Model:
        """What the registry knows of a model."""
        return self._ask(wire.Model, "GET", f"/models/{quote(model, safe='')}")

    def missing(self, blobs: Iterable[Blob]) -> wire.Missing:
        """Which of these blobs the registry does not have yet."""
        return self._ask(wire.Missing, "POST", "/blobs/missing", wire.document(wire.MissingRequest(tuple(blobs))))

    def put_blob(self, blob: Blob, chunks: Iterable[bytes]) -> None:
        """Upload one blob. It is not repeated here: the caller can make the chunks again."""
        headers = {"Content-Length": str(blob.size), "Content-Type": "application/octet-stream"}
        with self._reply("PUT", f"/blobs/{blob.sha256}", chunks, headers, attempts=1) as reply:
            self._read(reply)

    @contextmanager
    def blob(self, sha: str, offset: int = 0) -> Iterator[Iterator[bytes]]:
        """The bytes of a blob from `offset`, in chunks. A connection that is cut raises `Unreachable` in the middle."""
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with self._reply("GET", f"/blobs/{sha}", None, headers) as reply:
            yield self._chunks(reply)

    def _chunks(self, reply: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        import urllib3

        try:
            yield from reply.stream(CHUNK)
        except (urllib3.exceptions.HTTPError, OSError) as problem:
            raise Unreachable(f"The registry at {self.url} broke off in the middle of a file: {problem}.") from problem

    def _ask(self, kind: type[T], method: str, path: str, document: Json | None = None) -> T:
        body = None if document is None else fields.canonical(document).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        with self._reply(method, path, body, headers) as reply:
            data = self._read(reply)
        try:
            return fields.decode(kind, fields.parse(data, "The reply"), lenient=True)
        except MxrError as problem:
            raise MxrError(
                f"The registry at {self.url} answered something that mxr does not understand: {problem.message}",
                hint="Check that --registry names an mxr registry, and that client and registry are not years apart.",
            ) from problem

    def _read(self, reply: urllib3.BaseHTTPResponse) -> bytes:
        return b"".join(self._chunks(reply))

    @contextmanager
    def _reply(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        attempts: int = ATTEMPTS,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """One exchange; raises the error that the registry answered, rebuilt from its code."""
        reply = self._send(method, path, body, headers or {}, attempts)
        try:
            if reply.status >= 400:
                try:
                    document: Any = fields.parse(self._read(reply), "The reply")
                except MxrError:
                    document = None
                raise from_json(document, status=reply.status)
            yield reply
        finally:
            # A reply that was not read to its end must not go back into the pool.
            reply.drain_conn() if reply.status < 300 and reply.length_remaining == 0 else reply.close()
            reply.release_conn()

    def _send(
        self, method: str, path: str, body: bytes | Iterable[bytes] | None, headers: Mapping[str, str], attempts: int
    ) -> urllib3.BaseHTTPResponse:
        import urllib3

        retries = urllib3.Retry(
            total=attempts - 1,
            backoff_factor=0.2,
            redirect=3,
            status_forcelist=(502, 503, 504),
            allowed_methods=None,
            raise_on_status=False,
            raise_on_redirect=True,
        )
        merged = {**self._pool.headers, **headers}
        try:
            return self._pool.request(
                method, self.url + wire.API + path, body=body, headers=merged, retries=retries, preload_content=False
            )
        except (urllib3.exceptions.HTTPError, OSError) as problem:
            raise Unreachable(f"The registry at {self.url} does not answer: {_reason(problem)}.") from problem


def _query(filters: Mapping[str, str | int | None]) -> str:
    pairs = [f"{name}={quote(str(value), safe='')}" for name, value in filters.items() if value is not None]
    return "?" + "&".join(pairs) if pairs else ""


def _reason(problem: Exception) -> str:
    """The innermost reason in one line, without addresses of Python objects."""
    import urllib3

    while isinstance(problem, urllib3.exceptions.MaxRetryError) and problem.reason is not None:
        problem = problem.reason
    text = str(problem).split(">: ")[-1] if ">: " in str(problem) else str(problem)
    return text.rstrip(".") or type(problem).__name__
