"""The HTTP client of a registry: one method for each route of the API.

Transfers of many blobs are in `transfer`, the requests of a worker in `worker`, and retries in `retry`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote

from mxr.artifact import packed
from mxr.artifact.attributes import Request
from mxr.artifact.manifest import Blob
from mxr.artifact.partial import PartialRequest
from mxr.configuration.file_urls import names_files
from mxr.display.text import redact_url
from mxr.errors import (
    DamagedBlobError,
    DamagedError,
    InvalidReplyError,
    Json,
    MxrError,
    NotARegistryError,
    OtherRegistryError,
    UnauthenticatedError,
    UnreachableError,
    UsageError,
    from_json,
    has_error,
)
from mxr.protocol import artifacts as artifact_protocol
from mxr.protocol.artifacts import RECALLS_HEADER
from mxr.settings import Settings
from mxr.util import codec
from mxr.util.hashing import CHUNK
from mxr.version import __version__, order_of

from .connection_errors import EXEMPT, connection_error, proxy_error, try_https
from .credentials import Credentials, RegistrySocket, is_loopback_url
from .pools import (
    MAX_ERROR,
    MAX_REPLY,
    MAX_VALUES,
    MIN_RATE,
    PLAIN,
    ConnectionPools,
    RedirectHost,
    returned_connection,
    shut_down_after,
)
from .retry import HURRY, request_policy, retry, transfer_policy

if TYPE_CHECKING:
    from pathlib import Path

    import urllib3

    from mxr.artifact.candidates import Candidates
    from mxr.artifact.recall import Recalled
    from mxr.configuration.proxies import Proxy
    from mxr.protocol import access, surveys
    from mxr.protocol import jobs as job_protocol
    from mxr.protocol.events import Event
    from mxr.protocol.recalls import RecallList
    from mxr.protocol.statements import RegistryKeys, Statements
    from mxr.protocol.tags import Tag, TagRevision
    from mxr.trust.statement import StoredStatement

T = TypeVar("T")


class Page(Protocol):
    """A page of a list."""

    @property
    def next(self) -> str | None:
        """Where the next page begins; None after the last one."""


P = TypeVar("P", bound=Page)

MAX_PAGES = 1_000
"""Pages of one list that are read."""

CONNECT = 10.0
"""Seconds to connect, where the timeout of the client is not shorter."""

OK, NOT_MODIFIED, BAD_REQUEST = 200, 304, 400

CHECKING = 900.0
"""Additional seconds for a request during which the registry reads a whole model or program."""


class Client:
    """The registry at one URL. Can be used from several threads.

    Every method raises `UnreachableError` when the registry does not answer, and otherwise the error in its answer.
    Unless stated otherwise, requests are repeated as `retry.request_policy` says. urllib3 is imported with the first
    request, to keep a fetch from the cache fast.
    """

    def __init__(self, settings: Settings, *, connections: int = 8) -> None:
        self.url = settings.registry
        self._settings = settings
        self._connections = connections
        self._credentials = Credentials(settings)
        self._socket = RegistrySocket(settings)
        self._redirect_host = RedirectHost()
        # Who configured no registry waits for none.
        seconds = settings.retry if {"registry", "retry"} & settings.sources.keys() else min(settings.retry, HURRY)
        self._requests, self._hurried = request_policy(seconds), request_policy(min(seconds, HURRY))
        self.transfers = transfer_policy(seconds)
        self.identity = ""
        """The UUID of the registry that sent the last reply; empty before, and where the reply did not say."""
        self.recalls: int | None = None
        """The number of the recall list, if the last reply told it."""
        self.version = ""
        """The version of mxr there, as the last reply told; empty where it did not."""
        self.socket_path: Path | None = None
        """The Unix socket by which the last reply came; None for TCP."""

    @cached_property
    def _pool(self) -> ConnectionPools:
        return ConnectionPools(self._settings, self._connections, self._socket.connect)

    @cached_property
    def _plain_pool(self) -> ConnectionPools:
        """Connections to other hosts, which get no token."""
        return ConnectionPools(self._settings, self._connections)

    @property
    def _proxy(self) -> Proxy | None:
        """The proxy by which this client reaches the registry."""
        return self._settings.proxies.choose(self._socket.base)[0]

    def with_timeout(self, seconds: float) -> Client:
        """Return a client with its own connection and a timeout of at most `seconds` without a byte received."""
        return Client(replace(self._settings, timeout=min(self._settings.timeout, seconds)), connections=1)

    def whoami(self) -> access.Principal:
        """Return the principal of the token that this client sends."""
        from mxr.protocol import access

        return self.exchange(access.Principal, "GET", "/whoami")

    def sign_in_link(self) -> access.SignInLink:
        """Return a link that signs one browser in, as the principal of this client."""
        from mxr.protocol import access

        return self.exchange(access.SignInLink, "POST", "/sign-in-links")

    def resolve(self, request: Request, *, name: str = "", hurry: bool = False) -> artifact_protocol.ResolveReply:
        """Return the artifact for a request. `hurry`: where the registry is away, the caller has another answer.

        `name`: what this host calls the model, for those who look why there was no artifact.

        Raises `NoSuchArtifactError`; its `context.nearest` lists the closest ones.
        """
        found = self.exchange(
            artifact_protocol.ResolveReply, "POST", "/resolve", request.to_json(), headers=names(name), hurry=hurry
        )
        self.recalls = found.recalls
        return found

    def candidates(self, partial: PartialRequest, *, name: str = "", hurry: bool = False) -> Candidates:
        """Return the ways to complete a partial request; `name` and `hurry` as for `resolve`.

        Raises `NoSuchArtifactError` if there is none.
        """
        from mxr.artifact.candidates import Candidates

        return self.exchange(Candidates, "POST", "/candidates", partial.to_json(), headers=names(name), hurry=hurry)

    def defaults(self) -> artifact_protocol.NamespaceDefaults:
        """Return the request defaults of the namespace. Sent once: where the registry is away, the cache has them."""
        with self._reply("GET", "/defaults", once=True) as reply:
            return self._decode(artifact_protocol.NamespaceDefaults, self._read(reply))

    def artifacts(self, **filters: str | int | None) -> artifact_protocol.Artifacts:
        """Return a page of artifacts.

        Filters: model, name (of the model: its beginning), digest, kind, vendor, arch, migraphx, rocm, precision,
        state, input. Paging: limit, after.
        """
        return self.exchange(artifact_protocol.Artifacts, "GET", "/artifacts" + _query(filters))

    def artifact(self, identity: str) -> artifact_protocol.Artifact:
        """Return one artifact with its manifest, by its id or a unique prefix of it."""
        return self.exchange(artifact_protocol.Artifact, "GET", f"/artifacts/{quote(identity, safe='')}")

    def confirm(self, identity: str, etag: str) -> tuple[artifact_protocol.Artifact | None, str]:
        """Return one artifact if its entity tag is not `etag` any more, else None, and its entity tag now.

        Raises `NotFoundError` if the registry no longer has it. Sent once: where the registry is away, the cache
        serves.
        """
        headers = {"If-None-Match": etag} if etag else {}
        with self._reply("GET", f"/artifacts/{quote(identity, safe='')}", None, headers, once=True) as reply:
            data = self._read(reply)
            tag = reply.headers.get("etag", "")
        return None if reply.status == NOT_MODIFIED else self._decode(artifact_protocol.Artifact, data), tag

    def publish(self, body: artifact_protocol.Publish) -> artifact_protocol.Artifact:
        """Publish an artifact. All its blobs must be uploaded. Publishing the same artifact twice is not an error."""
        return self.exchange(artifact_protocol.Artifact, "POST", "/artifacts", artifact_protocol.message_document(body))

    def promote(self, identity: str) -> artifact_protocol.Artifact:
        """Make this artifact the first choice for its key."""
        return self.exchange(artifact_protocol.Artifact, "POST", f"/artifacts/{quote(identity, safe='')}/promote")

    def recall(self, identity: str, word: str, reason: str) -> Recalled:
        """Yank or quarantine an artifact. `word`: one of `mxr.artifact.recall.WORDS`."""
        from mxr.artifact.recall import Recalled
        from mxr.protocol.recalls import RecallArtifact

        body = artifact_protocol.message_document(RecallArtifact(word, reason))
        return self.exchange(Recalled, "PUT", f"/artifacts/{quote(identity, safe='')}/recall", body)

    def end_recall(self, identity: str) -> Recalled:
        """End the recall of an artifact, and return what was said of it."""
        from mxr.artifact.recall import Recalled

        return self.exchange(Recalled, "DELETE", f"/artifacts/{quote(identity, safe='')}/recall")

    def recall_list(self) -> RecallList:
        """Return what is recalled in the namespace."""
        from mxr.protocol.recalls import RecallList

        return self.exchange(RecallList, "GET", "/recalls")

    def statements(self, identity: str) -> Statements:
        """Return what the registry signed of an artifact, the latest first."""
        from mxr.protocol.statements import Statements

        return self.exchange(Statements, "GET", f"/statements/{quote(identity, safe='')}")

    def add_statement(self, identity: str, document: Json) -> StoredStatement:
        """Add what somebody else signed of an artifact: a DSSE envelope, or a bundle of sigstore."""
        from mxr.protocol.statements import AddStatement
        from mxr.trust.statement import StoredStatement

        body = artifact_protocol.message_document(AddStatement(document))
        return self.exchange(StoredStatement, "POST", f"/statements/{quote(identity, safe='')}", body)

    def keys(self) -> RegistryKeys:
        """Return the keys with which the registry signs, and signed, the latest first."""
        from mxr.protocol.statements import RegistryKeys

        return self.exchange(RegistryKeys, "GET", "/keys")

    def remove(self, identity: str, *, force: bool = False) -> None:
        """Remove an artifact, with `force` also from the locks that pin it. A later sweep deletes its bytes."""
        with self._reply("DELETE", f"/artifacts/{quote(identity, safe='')}{'?force=yes' if force else ''}") as reply:
            self._read(reply)

    def put_lock(self, name: str, identities: Iterable[str]) -> artifact_protocol.RegisteredLock:
        """Register a lock, or replaces its artifacts.

        Raises `NoSuchArtifactError`; `context.ids` lists the missing ones.
        """
        body = artifact_protocol.message_document(artifact_protocol.PutLock(tuple(identities)))
        return self.exchange(artifact_protocol.RegisteredLock, "PUT", f"/locks/{quote(name, safe='')}", body)

    def locks(self) -> tuple[artifact_protocol.RegisteredLock, ...]:
        """Return all registered locks."""
        pages = self._pages(artifact_protocol.Locks, "/locks", {})
        return tuple(item for page in pages for item in page.items)

    def tag(self, name: str, revision: int | None = None, etag: str = "") -> tuple[Tag | None, str]:
        """Return what a tag names if its entity tag is not `etag` any more, else None, and its entity tag now.

        `revision`: what it named then. Raises `NotFoundError`. With `etag`, it is sent once: where the registry is
        away, the cache serves.
        """
        from mxr.protocol.tags import Tag

        path = f"/tags/{quote(name, safe='')}" + _query({"revision": revision})
        with self._reply("GET", path, None, {"If-None-Match": etag} if etag else {}, once=bool(etag)) as reply:
            data = self._read(reply)
            found = reply.headers.get("etag", "")
        return None if reply.status == NOT_MODIFIED else self._decode(Tag, data), found

    def tags(self, name: str | None = None) -> tuple[TagRevision, ...]:
        """Return what each tag names now, by name; or the revisions of the tag `name`, the latest first."""
        from mxr.protocol.tags import Tags

        path = "/tags" if name is None else f"/tags/{quote(name, safe='')}/revisions"
        return tuple(item for page in self._pages(Tags, path, {}) for item in page.items)

    def move_tag(self, name: str, *, lock: str | None = None, revision: int | None = None) -> TagRevision:
        """Move a tag to the text of a lock, or back to a revision, and return its revision now.

        Raises `NoSuchArtifactError`; `context.ids` lists the missing ones.
        """
        from mxr.protocol.tags import MoveTag, TagRevision

        body = artifact_protocol.message_document(MoveTag(lock, revision))
        return self.exchange(TagRevision, "PUT", f"/tags/{quote(name, safe='')}", body)

    def remove_tag(self, name: str) -> TagRevision:
        """Remove a tag, and return what it named."""
        from mxr.protocol.tags import TagRevision

        return self.exchange(TagRevision, "DELETE", f"/tags/{quote(name, safe='')}")

    def remove_lock(self, name: str) -> artifact_protocol.RegisteredLock:
        """Remove a registered lock and return its last state."""
        return self.exchange(artifact_protocol.RegisteredLock, "DELETE", f"/locks/{quote(name, safe='')}")

    def model(self, model: str) -> artifact_protocol.Model:
        """Return the registered description of a model."""
        return self.exchange(artifact_protocol.Model, "GET", f"/models/{quote(model, safe='')}")

    def model_identities(self, prefix: str) -> tuple[str, ...]:
        """Return the identities of all models that begin with `prefix`: "sha256:" and at least 12 hex digits."""
        pages = self._pages(artifact_protocol.Models, "/models", {"prefix": prefix})
        return tuple(item.model for page in pages for item in page.items)

    def register_model(self, statement: artifact_protocol.RegisterModel) -> artifact_protocol.Model:
        """Register a model. It is complete where the statement has a manifest and every blob is uploaded."""
        return self.exchange(
            artifact_protocol.Model, "POST", "/models", artifact_protocol.message_document(statement), wait=CHECKING
        )

    def request_compile(self, message: job_protocol.CompileRequest) -> job_protocol.Job:
        """Request a compile and return its job, which is a new one or an open one for the same program.

        A job without an id is done: the program already exists. Raises `NoSuchModelError` or `NoSuchBlobError` for what
        must be uploaded first, and `NoWorkerError` when `wanted.require_worker` is set and no worker can compile the
        program.
        """
        from mxr.protocol import jobs as job_protocol

        return self.exchange(job_protocol.Job, "POST", "/jobs", artifact_protocol.message_document(message))

    def job(self, identity: str, *, wait: float = 0, version: int | None = None) -> job_protocol.Job:
        """Return one job, by its id or a unique prefix of it.

        With `wait`, returns when the version of the job is larger than `version`, or after `wait` seconds.
        """
        from mxr.protocol import jobs as job_protocol

        query = _query({"wait": wait, "version": version} if wait else {})
        return self.exchange(job_protocol.Job, "GET", _job(identity) + query, wait=wait)

    def jobs(self, **filters: str | int | None) -> job_protocol.Jobs:
        """Return a page of jobs, latest first. Filters: state (or `open`), model, name, digest, arch;
        limit, after."""
        from mxr.protocol import jobs as job_protocol

        return self.exchange(job_protocol.Jobs, "GET", "/jobs" + _query(filters))

    def survey(self, requests: Iterable[Request]) -> surveys.SurveyReply:
        """Return the status of each request, as a fetch would find it. Queues nothing."""
        from mxr.protocol import surveys

        body = artifact_protocol.message_document(surveys.Survey(tuple(requests)))
        return self.exchange(surveys.SurveyReply, "POST", "/survey", body)

    def watch(self, message: surveys.WatchJobs) -> surveys.ChangedJobs:
        """Return which of these jobs changed. With `wanted.wait`, waits for a change, at most that many seconds."""
        from mxr.protocol import surveys

        return self.exchange(
            surveys.ChangedJobs, "POST", "/jobs/watch", artifact_protocol.message_document(message), wait=message.wait
        )

    def cancel(self, identity: str) -> job_protocol.Job:
        """Cancel a job: at once if it is queued, else at the next heartbeat of its worker. Ignores a closed job."""
        from mxr.protocol import jobs as job_protocol

        return self.exchange(job_protocol.Job, "POST", _job(identity) + "/cancel")

    def log(self, identity: str, offset: int = 0) -> tuple[bytes, int]:
        """Return the log of a job from a byte offset, and the offset of the next read."""
        with self._reply("GET", _job(identity) + "/log" + _query({"offset": offset})) as reply:
            text, following = self._read(reply), reply.headers.get("mxr-log-next", "")
            return text, int(following) if following.isascii() and following.isdigit() else offset + len(text)

    def misses(self, **filters: str | float | None) -> Iterator[artifact_protocol.RecordedMiss]:
        """Yield the requests that found no artifact, latest first.

        Filters: model (or its beginning), name, arch, reason, by (a host or a principal), hours.
        """
        return (item for page in self._pages(artifact_protocol.Misses, "/misses", filters) for item in page.items)

    def events(self, **filters: str | None) -> Iterator[Event]:
        """Yield who did what, newest first. Filters: subject (its beginning), model, kind, principal."""
        from mxr.protocol.events import Events

        return (item for page in self._pages(Events, "/events", filters) for item in page.items)

    def workers(self) -> tuple[job_protocol.WorkerInfo, ...]:
        """Return all workers."""
        from mxr.protocol import jobs as job_protocol

        return tuple(item for page in self._pages(job_protocol.Workers, "/workers", {}) for item in page.items)

    def pools(self) -> tuple[job_protocol.DeclaredPool, ...]:
        """Return the declared pools, with their queued and running jobs."""
        from mxr.protocol import jobs as job_protocol

        return tuple(item for page in self._pages(job_protocol.Pools, "/pools", {}) for item in page.items)

    def report_uses(self, some: tuple[artifact_protocol.Use, ...]) -> artifact_protocol.UsesAccepted:
        """Report uses of programs that a local cache served. Sent once: a later report includes them again."""
        return self.exchange(
            artifact_protocol.UsesAccepted,
            "POST",
            "/uses",
            artifact_protocol.message_document(artifact_protocol.Uses(some)),
            once=True,
        )

    def usage(self, most: int, **filters: str | int | None) -> tuple[artifact_protocol.ArtifactUsage, ...]:
        """Return the artifacts used in the last `days`, most used first, at most so many.

        Filters: model, kind, vendor, arch, migraphx, rocm.
        """
        found: list[artifact_protocol.ArtifactUsage] = []
        for page in self._pages(artifact_protocol.UsageReply, "/uses", filters):
            found += page.items
            if len(found) >= most:
                break
        return tuple(found[:most])

    def missing(self, blobs: Iterable[Blob]) -> artifact_protocol.Missing:
        """Return which of these blobs the registry does not have."""
        return self.exchange(
            artifact_protocol.Missing,
            "POST",
            "/blobs/missing",
            artifact_protocol.message_document(artifact_protocol.MissingRequest(tuple(blobs))),
        )

    def put_blob(self, blob: Blob, chunks: Iterable[bytes], *, follows: Sequence[str] = ()) -> None:
        """Upload one blob, packed if that is much smaller.

        Sent once: to repeat it, the caller has to produce the chunks again.

        `follows`: what is before it in its file, as the header says (`FOLLOWS_HEADER`).
        """
        headers = {"Content-Type": "application/octet-stream"}
        if follows:
            headers[artifact_protocol.FOLLOWS_HEADER] = ",".join(follows)
        with packed.smaller_body(iter(chunks), blob.size) as (body, size, zstd):
            headers |= {"Content-Length": str(size)} | ({"Content-Encoding": "zstd"} if zstd else {})
            with self._reply("PUT", f"/blobs/{blob.sha256}", body, headers, once=True) as reply:
                self._read(reply)

    @contextmanager
    def blob(
        self, sha: str, size: int | None = None, *, direct: bool = True, start: int = 0
    ) -> Iterator[Iterator[bytes]]:
        """Yield an iterator over the chunks of a blob from `start`. A broken connection raises `UnreachableError`.

        `size`: the bytes of the blob, which must arrive at `MIN_RATE` on average; without it, a day is allowed. The
        caller checks that there are not more bytes. The registry can redirect to a signed URL of its object store. If
        that host does not answer, or with `direct=False`, the registry sends the bytes itself.
        """
        zstd = not start and packed.available()
        path, headers = f"/blobs/{sha}", {"Accept-Encoding": "zstd"} if zstd else {}
        if start:
            headers["Range"] = f"bytes={start}-"
        seconds = self._settings.timeout + (86_400.0 if size is None else size / MIN_RATE)
        with ExitStack() as stack:
            found = None
            if direct and self._redirect_host.serves:
                found = stack.enter_context(self._reply("GET", path, None, headers, redirects=True))
                if found.status >= 300:
                    found = stack.enter_context(
                        self._redirect_host.follow(self._plain_pool, found, self._settings.timeout, headers)
                    )
            if found is None:
                found = stack.enter_context(self._reply("GET", path + "?direct=no", None, headers))
            stack.enter_context(shut_down_after(seconds, found.shutdown))
            chunks = self._chunks(found, *(("zstd",) if zstd else ()))
            # A server may send all of it all the same.
            yield self._unpacked(chunks, size) if zstd else _skip(chunks, start if found.status == OK else 0)

    def _unpacked(self, chunks: Iterator[bytes], size: int | None) -> Iterator[bytes]:
        try:
            yield from packed.plain_stream(chunks, packed.FRAME * packed.MAX_FRAMES if size is None else size)
        except DamagedError as problem:
            raise DamagedBlobError(f"The registry at {self.url} sent damaged bytes: {problem.message}") from None

    def _chunks(self, reply: urllib3.BaseHTTPResponse, *accepted: str) -> Iterator[bytes]:
        import urllib3

        encoding = reply.headers.get("content-encoding", "identity")
        if encoding.lower() not in ("identity", *accepted):
            raise InvalidReplyError(
                f"The registry at {self.url} sent a reply with the encoding {encoding[:40]!r}, which nobody asked for.",
                hint="Let the proxy in front of it not compress replies.",
            )
        try:
            yield from reply.stream(CHUNK, decode_content=False)
        except (urllib3.exceptions.HTTPError, OSError) as problem:
            raise UnreachableError(
                f"The connection to the registry at {self.url} broke during a transfer: {problem}."
            ) from problem

    def _pages(self, kind: type[P], path: str, filters: Mapping[str, str | float | None]) -> Iterator[P]:
        """Yield the pages of a list, at most `MAX_PAGES`."""
        after: str | None = None
        for _ in range(MAX_PAGES):
            page = self.exchange(kind, "GET", path + _query({**filters, "after": after}))
            yield page
            if page.next is None:
                return
            after = page.next
        raise InvalidReplyError(f"A list of the registry at {self.url} does not end.")

    def exchange(
        self,
        kind: type[T],
        method: str,
        path: str,
        document: Json | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        wait: float = 0,
        once: bool = False,
        hurry: bool = False,
    ) -> T:
        """Send one JSON request and decodes the reply. `wait`: seconds added to the read timeout.

        `once`: it is not repeated; `hurry`: only for a moment.
        """
        body = None if document is None else codec.canonical(document).encode()
        typed = {} if body is None else {"Content-Type": "application/json"}
        with self._reply(method, path, body, {**typed, **(headers or {})}, once=once, hurry=hurry, wait=wait) as reply:
            data = self._read(reply)
        return self._decode(kind, data)

    def _decode(self, kind: type[T], data: bytes) -> T:
        try:
            if codec.count_values(data) > MAX_VALUES:
                raise UsageError(f"It has more than {MAX_VALUES} values.")
            return codec.decode(kind, codec.parse(data, "The reply"), lenient=True)
        except MxrError as problem:
            raise InvalidReplyError(
                f"The reply of the registry at {self.url} is invalid: {problem.message}", hint=self._skew() or None
            ) from problem

    def _skew(self) -> str:
        """Return which side is older, and what to do, as a sentence; empty where they are equal, or nobody knows."""
        own, theirs = order_of(__version__), order_of(self.version)
        if not theirs or own == theirs:
            return ""
        if theirs < own:
            return f"This registry is older ({self.version}) than this client ({__version__}): update the registry."
        return f"This client is older ({__version__}) than the registry ({self.version}): update the client."

    def _read(self, reply: urllib3.BaseHTTPResponse, most: int = MAX_REPLY) -> bytes:
        parts, size = [], 0
        with shut_down_after(self._settings.timeout, reply.shutdown):
            for chunk in self._chunks(reply):
                size += len(chunk)
                if size > most:
                    raise InvalidReplyError(f"A reply of the registry at {self.url} has more than {most} bytes.")
                parts.append(chunk)
        return b"".join(parts)

    @contextmanager
    def _reply(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        once: bool = False,
        hurry: bool = False,
        wait: float = 0,
        redirects: bool = False,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Send one request and yield the reply. Raises the error that the registry answered.

        `redirects`: a redirect is an answer, which the caller follows; otherwise it is an error.
        """
        policy = None if once else self._hurried if hurry else self._requests
        reply = retry(policy, lambda: self._send(method, path, body, headers or {}, wait, redirects))
        with returned_connection(reply):
            yield reply

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None,
        headers: Mapping[str, str],
        wait: float,
        redirects: bool,
    ) -> urllib3.BaseHTTPResponse:
        """Make one attempt: returns a reply with a status below 400, and raises the error in any other."""
        import urllib3

        if names_files(self.url):
            raise self.takes_nothing()
        timeout, header = self._settings.timeout, self._credentials.header()
        try:
            reply = self._pool.request(
                method,
                self._socket.base + artifact_protocol.API + path,
                body=body,
                headers={**PLAIN, **header, **headers},
                # `retry` makes the attempts, and no token goes along a redirect.
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=min(CONNECT, timeout), read=timeout + wait),
                preload_content=False,
                decode_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as problem:
            raise connection_error(self.url, problem, self._proxy) from problem
        self.identity = reply.headers.get(artifact_protocol.REGISTRY_HEADER, "")
        self.version = reply.headers.get(artifact_protocol.VERSION_HEADER, "")[:40]
        told = reply.headers.get(RECALLS_HEADER, "")
        self.recalls = int(told) if re.fullmatch("[0-9]{1,15}", told) else None
        self.socket_path = by_socket = getattr(reply.connection, "socket_path", None)
        wanted = self._settings.registry_id
        if wanted and self.identity not in ("", wanted):
            with returned_connection(reply):
                raise OtherRegistryError(
                    f"What answers at {self.url} is registry {self.identity}, but registry_id is {wanted}."
                )
        if reply.status >= 400:
            with returned_connection(reply):
                raise self._error(reply)
        if not self.identity or (reply.status >= 300 and not (redirects or reply.status == NOT_MODIFIED)):
            with returned_connection(reply):
                raise self._foreign(reply)
        if is_loopback_url(self.url) and not (by_socket or header):
            with returned_connection(reply):
                raise NotARegistryError(
                    f"What answers at {self.url} asks for no token, which every registry does.",
                    hint="Another program may have taken the port. Start the registry, or run `mxr login`.",
                )
        return reply

    def _error(self, reply: urllib3.BaseHTTPResponse) -> MxrError:
        """Return the error in a reply, rebuilt from its code."""
        try:
            document: Any = codec.parse(self._read(reply, MAX_ERROR), "The reply")
        except MxrError:
            document = None
        # A registry whose database does not answer cannot say which one it is.
        if self.identity or has_error(document):
            error = from_json(document, status=reply.status)
        else:
            error = proxy_error(reply.status, reply.headers.get("server", ""), self._proxy) or self._foreign(reply)
        error.retry_after = _retry_after(reply)
        from .hints import command_hint

        error.hint = command_hint(error) or error.hint
        if isinstance(error, UsageError) and (skew := self._skew()):
            error.hint = f"{skew} Else: {error.hint}"
        if isinstance(error, UnauthenticatedError):
            self._credentials.explain(error)
        return error

    def takes_nothing(self) -> UsageError:
        """Return the error for what a registry that is files cannot do."""
        return UsageError(
            f"The registry at {self.url} is files: it takes nothing, lists nothing and compiles nothing.",
            hint="Use the registry that it was exported from (--registry URL, MXR_REGISTRY).",
        )

    def _foreign(self, reply: urllib3.BaseHTTPResponse) -> NotARegistryError:
        """Return the error for a reply without the header that every reply of a registry has, with what answered."""
        facts = [f"HTTP status {reply.status}"]
        for name, what in (("content-type", ""), ("server", "server ")):
            if value := reply.headers.get(name, "")[:60]:
                facts.append(f"{what}{value}")
        elsewhere = reply.get_redirect_location()
        if elsewhere:
            facts.append(f"it redirects to {redact_url(elsewhere[:200])}")
        way, hint = "", None
        if elsewhere:
            hint = "Use the URL of the registry itself (`mxr config` shows it): redirects are not followed."
        elif self._proxy is not None:
            way, hint = f" through the {self._proxy}", f"It may be an answer of the proxy itself. {EXEMPT}"
        elif reply.status == BAD_REQUEST and self.url.startswith("http:"):
            hint = try_https(self.url)
        return NotARegistryError(
            f"What answers at {self.url}{way} is not an mxr registry ({', '.join(facts)}; no header "
            f"{artifact_protocol.REGISTRY_HEADER}).",
            hint=hint,
        )


def names(model: str) -> dict[str, str]:
    """Return the headers by which operators see who found no program, and of what: names of this host and a model."""
    host = os.uname().nodename
    found = {artifact_protocol.HOST_HEADER: host} if host.isascii() and host.isprintable() else {}
    return {**found, artifact_protocol.MODEL_NAME_HEADER: quote(model, errors="replace")} if model else found


def _skip(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the chunks without so many first bytes."""
    for chunk in chunks:
        if len(chunk) > size:
            yield chunk[size:]
        size = max(0, size - len(chunk))


def _retry_after(reply: urllib3.BaseHTTPResponse) -> float | None:
    """Return the seconds in the Retry-After header, None without a valid one. Source: RFC 9110, section 10.2.3."""
    import urllib3

    with suppress(urllib3.exceptions.InvalidHeader):
        return urllib3.Retry().get_retry_after(reply)
    return None


def _job(identity: str) -> str:
    return f"/jobs/{quote(identity, safe='')}"


def _query(filters: Mapping[str, str | float | None]) -> str:
    pairs = [f"{name}={quote(str(value), safe='')}" for name, value in filters.items() if value is not None]
    return "?" + "&".join(pairs) if pairs else ""
