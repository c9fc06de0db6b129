"""The HTTP API, a method a verb: the only file that opens a connection. Transfers of many blobs are in `transfer`.

What a worker says of its jobs is in `worker_client`, over the same connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from mxr.artifact.manifest import Blob
from mxr.artifact.qualities import Request
from mxr.errors import Json, MxrError, Unreachable, from_json
from mxr.protocol import artifacts as artifact_protocol
from mxr.settings import Settings
from mxr.util import codec

from .redirects import PLAIN, RedirectHost, given_back

if TYPE_CHECKING:
    import urllib3

    from mxr.protocol import jobs as job_protocol
    from mxr.protocol import surveys

T = TypeVar("T")

ATTEMPTS = 4
"""Tries of a request that may be repeated, 0.2, 0.4 and 0.8 s apart: about as long as a registry takes to restart."""

CHUNK = 1 << 20

CHECKING = 900.0
"""Seconds that a registry may take over a question for which it reads a whole model or program."""


class Client:
    """A registry at one URL. Every method raises `Unreachable` when it does not answer, else the error it answered.

    urllib3 is loaded with the first request: a fetch that the cache answers must not pay for it.
    """

    def __init__(self, settings: Settings, *, connections: int = 8) -> None:
        self.url = settings.registry
        self._settings = settings
        self._connections = connections
        self._elsewhere = RedirectHost()

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        import urllib3

        headers = dict(PLAIN)
        if self._settings.token:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        return urllib3.PoolManager(maxsize=self._connections, headers=headers, retries=False, socket_options=_lively())

    def hurried(self, seconds: float) -> Client:
        """The same registry over a connection of its own, which gives up after `seconds` without a byte."""
        hurry = replace(self._settings, timeout=min(self._settings.timeout, seconds))
        return Client(hurry, connections=1)

    def resolve(self, request: Request) -> artifact_protocol.Hit:
        """The artifact for a request. Raises `NoSuchArtifact`, whose detail says what comes nearest."""
        return self.exchange(artifact_protocol.Hit, "POST", "/resolve", request.to_json())

    def artifacts(self, **filters: str | int | None) -> artifact_protocol.Artifacts:
        """A page of artifacts, by model, digest, kind, vendor, arch, migraphx, rocm, precision, input; limit, after."""
        return self.exchange(artifact_protocol.Artifacts, "GET", "/artifacts" + _query(filters))

    def artifact(self, identity: str) -> artifact_protocol.Artifact:
        """One artifact with its manifest, by its id or the beginning of it."""
        return self.exchange(artifact_protocol.Artifact, "GET", f"/artifacts/{quote(identity, safe='')}")

    def publish(self, body: artifact_protocol.Publish) -> artifact_protocol.Artifact:
        """Publish an artifact whose blobs are all there. Publishing the same again is fine."""
        return self.exchange(artifact_protocol.Artifact, "POST", "/artifacts", artifact_protocol.document(body))

    def promote(self, identity: str) -> artifact_protocol.Artifact:
        """Make this artifact the first choice for its key."""
        return self.exchange(artifact_protocol.Artifact, "POST", f"/artifacts/{quote(identity, safe='')}/promote")

    def remove(self, identity: str) -> None:
        """Take an artifact out of the registry; its bytes go with the next sweep."""
        with self._reply("DELETE", f"/artifacts/{quote(identity, safe='')}") as reply:
            self._read(reply)

    def put_lock(self, name: str, identities: Iterable[str]) -> artifact_protocol.RegisteredLock:
        """Register a lock, or replace what it pins. Raises `NoSuchArtifact`, whose `detail.ids` are not there."""
        body = artifact_protocol.document(artifact_protocol.PutLock(tuple(identities)))
        return self.exchange(artifact_protocol.RegisteredLock, "PUT", f"/locks/{quote(name, safe='')}", body)

    def locks(self) -> artifact_protocol.Locks:
        """The registered locks."""
        return self.exchange(artifact_protocol.Locks, "GET", "/locks")

    def remove_lock(self, name: str) -> artifact_protocol.RegisteredLock:
        """Forget a registered lock; it as it was."""
        return self.exchange(artifact_protocol.RegisteredLock, "DELETE", f"/locks/{quote(name, safe='')}")

    def model(self, model: str) -> artifact_protocol.Model:
        """What the registry knows of a model."""
        return self.exchange(artifact_protocol.Model, "GET", f"/models/{quote(model, safe='')}")

    def register_model(self, statement: artifact_protocol.RegisterModel) -> artifact_protocol.Model:
        """Register a model, complete where the statement has its manifest and every blob is uploaded."""
        return self.exchange(
            artifact_protocol.Model, "POST", "/models", artifact_protocol.document(statement), wait=CHECKING
        )

    def ask(self, wanted: job_protocol.CompileRequest) -> job_protocol.Job:
        """The job to wait for, an open one or a new one. A job without an id was never needed: it is done.

        Raises `NoSuchModel` and `NoSuchBlob` for what has to be uploaded first, `NoWorker` where `wanted` waits.
        """
        from mxr.protocol import jobs as job_protocol

        return self.exchange(job_protocol.Job, "POST", "/jobs", artifact_protocol.document(wanted))

    def job(self, identity: str, *, wait: float = 0, version: int | None = None) -> job_protocol.Job:
        """One job, by its id or the beginning of it; with `wait` once its version is larger, or after these seconds."""
        from mxr.protocol import jobs as job_protocol

        query = _query({"wait": wait, "version": version} if wait else {})
        return self.exchange(job_protocol.Job, "GET", _job(identity) + query, wait=wait)

    def jobs(self, **filters: str | int | None) -> job_protocol.Jobs:
        """A page of jobs, the latest first, by state (or `open`), model, digest, arch; limit, after."""
        from mxr.protocol import jobs as job_protocol

        return self.exchange(job_protocol.Jobs, "GET", "/jobs" + _query(filters))

    def survey(self, requests: Iterable[Request]) -> surveys.SurveyReply:
        """How these requests stand, each as an asker would meet it; nothing is made or queued."""
        from mxr.protocol import surveys

        asked = surveys.Survey(tuple(requests))
        return self.exchange(surveys.SurveyReply, "POST", "/survey", artifact_protocol.document(asked))

    def watch(self, wanted: surveys.WatchJobs) -> surveys.ChangedJobs:
        """Which of these jobs changed; with `wait` once there are any, or after these seconds."""
        from mxr.protocol import surveys

        return self.exchange(
            surveys.ChangedJobs, "POST", "/jobs/watch", artifact_protocol.document(wanted), wait=wanted.wait
        )

    def cancel(self, identity: str) -> job_protocol.Job:
        """Cancel a job: at once where it is queued, else its worker is told. A closed one stays as it is."""
        from mxr.protocol import jobs as job_protocol

        return self.exchange(job_protocol.Job, "POST", _job(identity) + "/cancel")

    def log(self, identity: str, offset: int = 0) -> tuple[bytes, int]:
        """A job's log from a byte on, and the offset to go on from."""
        with self._reply("GET", _job(identity) + "/log" + _query({"offset": offset})) as reply:
            return self._read(reply), int(reply.headers.get("mxr-log-next", offset))

    def workers(self) -> job_protocol.Workers:
        """The workers and the declared pools."""
        from mxr.protocol import jobs as job_protocol

        return self.exchange(job_protocol.Workers, "GET", "/workers")

    def tell_uses(self, some: tuple[artifact_protocol.Use, ...]) -> artifact_protocol.UsesAccepted:
        """Tell of uses that the registry did not see. It is sent once: nothing waits for it."""
        return self.exchange(
            artifact_protocol.UsesAccepted,
            "POST",
            "/uses",
            artifact_protocol.document(artifact_protocol.Uses(some)),
            attempts=1,
        )

    def usage(self, **filters: str | int | None) -> artifact_protocol.UsageReply:
        """What was used in the last `days`, most used first, by model, kind, vendor, arch, migraphx, rocm; limit."""
        return self.exchange(artifact_protocol.UsageReply, "GET", "/uses" + _query(filters))

    def missing(self, blobs: Iterable[Blob]) -> artifact_protocol.Missing:
        """Which of these blobs the registry does not have yet."""
        return self.exchange(
            artifact_protocol.Missing,
            "POST",
            "/blobs/missing",
            artifact_protocol.document(artifact_protocol.MissingRequest(tuple(blobs))),
        )

    def put_blob(self, blob: Blob, chunks: Iterable[bytes]) -> None:
        """Upload one blob. It is not repeated here: the caller can make the chunks again."""
        headers = {"Content-Length": str(blob.size), "Content-Type": "application/octet-stream"}
        with self._reply("PUT", f"/blobs/{blob.sha256}", chunks, headers, attempts=1) as reply:
            self._read(reply)

    @contextmanager
    def blob(self, sha: str, offset: int = 0, *, direct: bool = True) -> Iterator[Iterator[bytes]]:
        """The bytes of a blob from `offset`, in chunks. A connection that is cut raises `Unreachable` in the middle.

        A registry may answer with a signed URL to its store. Where that does not serve, and with `direct=False`, the
        registry is told to send the bytes itself.
        """
        path = f"/blobs/{sha}"
        part = {"Range": f"bytes={offset}-"} if offset else {}
        with ExitStack() as stack:
            found = None
            if direct and self._elsewhere.serves:
                found = stack.enter_context(self._reply("GET", path, None, part, redirect=False))
                if found.status >= 300:
                    found = stack.enter_context(self._elsewhere.follow(self._pool, found, part, self._settings.timeout))
            if found is None:
                found = stack.enter_context(self._reply("GET", path + "?direct=no", None, part))
            yield self._chunks(found)

    def _chunks(self, reply: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        import urllib3

        try:
            yield from reply.stream(CHUNK)
        except (urllib3.exceptions.HTTPError, OSError) as problem:
            raise Unreachable(f"The registry at {self.url} broke off in the middle of a file: {problem}.") from problem

    def exchange(
        self,
        kind: type[T],
        method: str,
        path: str,
        document: Json | None = None,
        *,
        wait: float = 0,
        attempts: int = ATTEMPTS,
    ) -> T:
        """One exchange of JSON. `wait`: seconds that the registry may take beyond the usual."""
        body = None if document is None else codec.canonical(document).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        with self._reply(method, path, body, headers, attempts=attempts, wait=wait) as reply:
            data = self._read(reply)
        try:
            return codec.decode(kind, codec.parse(data, "The reply"), lenient=True)
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
        wait: float = 0,
        redirect: bool = True,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """One exchange; raises the error that the registry answered, rebuilt from its code."""
        reply = self._send(method, path, body, headers or {}, attempts, wait, redirect)
        with given_back(reply):
            if reply.status >= 400:
                try:
                    document: Any = codec.parse(self._read(reply), "The reply")
                except MxrError:
                    document = None
                raise from_json(document, status=reply.status)
            yield reply

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None,
        headers: Mapping[str, str],
        attempts: int,
        wait: float,
        redirect: bool,
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
        usual = self._settings.timeout
        try:
            return self._pool.request(
                method,
                self.url + artifact_protocol.API + path,
                body=body,
                headers={**self._pool.headers, **headers},
                retries=retries,
                redirect=redirect,
                timeout=urllib3.Timeout(connect=min(10.0, usual), read=usual + wait),
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as problem:
            raise Unreachable(f"The registry at {self.url} does not answer: {_reason(problem)}.") from problem


def _lively() -> list[tuple[int, int, int]]:
    """Socket options by which a connection that broke without a word is noticed within a minute.

    A long poll, or a registry that reads a whole program, is silent for minutes with good reason: no timeout tells it
    from a gateway that forgot the connection. What this system does not know is left out. Source: Linux, tcp(7).
    """
    import socket

    from urllib3.connection import HTTPConnection

    beats = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
    found = [
        (socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in beats.items() if hasattr(socket, name)
    ]
    return [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *found]


def _job(identity: str) -> str:
    return f"/jobs/{quote(identity, safe='')}"


def _query(filters: Mapping[str, str | float | None]) -> str:
    pairs = [f"{name}={quote(str(value), safe='')}" for name, value in filters.items() if value is not None]
    return "?" + "&".join(pairs) if pairs else ""


def _reason(problem: Exception) -> str:
    """The innermost reason in one line, without addresses of Python objects."""
    import urllib3

    while isinstance(problem, urllib3.exceptions.MaxRetryError) and problem.reason is not None:
        problem = problem.reason
    text = str(problem).split(">: ")[-1] if ">: " in str(problem) else str(problem)
    return text.rstrip(".") or type(problem).__name__
