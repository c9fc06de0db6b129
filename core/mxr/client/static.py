"""A registry that is files: `mxr export --static` wrote them, and a web server or a disk has them.

    https://cdn.example.com/mxr     GET of each file, without a token
    file:///srv/mxr                 the files themselves
    s3://BUCKET/mxr                 a bucket, with the credentials of AWS
    hf://ORG/REPO@REV/mxr           a folder of a repository of Hugging Face, with the token of HF_TOKEN to the hub only

Requests are decided here, over the index of their model, by the rules of a registry. Such a registry takes nothing:
whatever else is asked of it is refused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

from mxr.artifact import candidates as choice_rules
from mxr.artifact import misses, packed
from mxr.artifact.candidates import Candidates
from mxr.artifact.key import MODEL
from mxr.artifact.matching import choose_candidate
from mxr.artifact.misses import MissContext, MissedArtifact
from mxr.artifact.recall import Recall
from mxr.artifact.records import LOST, Model
from mxr.artifact.target import FAMILY_OF
from mxr.configuration.file_urls import BUCKET, FILE, HUB
from mxr.errors import (
    InvalidReplyError,
    MxrError,
    NoSuchArtifactError,
    NoSuchBlobError,
    NoSuchModelError,
    NotARegistryError,
    NotFoundError,
    TemporaryError,
    UnauthenticatedError,
    UnreachableError,
    UsageError,
)
from mxr.protocol import artifacts as artifact_protocol
from mxr.protocol import static_form
from mxr.protocol.static_form import MAX_ARTIFACTS, MAX_INDEX, ROOT, ModelIndex, StaticArtifact, StaticRegistry
from mxr.util import codec
from mxr.util.hashing import CHUNK, sha256_hex

from .pools import CONNECT, MIN_RATE, PLAIN, returned_connection, shut_down_after
from .registry import OK, Client, _retry_after, _skip
from .retry import retry

if TYPE_CHECKING:
    import urllib3

    from mxr.artifact.attributes import Request
    from mxr.artifact.partial import PartialRequest
    from mxr.protocol.recalls import RecallList
    from mxr.protocol.statements import RegistryKeys, Statements
    from mxr.s3.user_bucket import UserBucket

T = TypeVar("T")

READ_SECONDS = 2.0
"""Seconds for which an index is not read again."""

_READ: dict[str, tuple[float, dict[str, ReadIndex]]] = {}
MAX_REDIRECTS = 3
MAX_ROOT = 1 << 20
"""Bytes of `mxr.json`."""

MAX_READ, MAX_COMPARED = 1_000, 500
"""Artifacts that a partial request reads, the latest, and those that a miss is compared with, as by a registry."""

MAX_LISTED = 50
"""Ways to complete a partial request that are listed, as by a registry."""

ID = re.compile("[0-9a-f]{64}")
TAKES_NOTHING = "It is files that `mxr export --static` wrote."


class ReadIndex:
    """An index whose artifacts are read as they are needed: it can have many, and a request means few.

    One that cannot be read, or is of another model, is passed over. `recalls`: what was recalled after it was written.
    """

    def __init__(self, head: ModelIndex, rows: Iterable[object]) -> None:
        self.head, self.recalls = head, dict[str, Recall]()
        self._rows = [row for row in rows if isinstance(row, dict) and isinstance(row.get("artifact"), dict)]

    def with_digests(self, digests: Iterable[str]) -> list[StaticArtifact]:
        """Return the artifacts whose keys have one of these digests."""
        wanted = {*digests}
        return list(self._read(row for row in self._rows if row["artifact"].get("digest") in wanted))

    def with_id(self, identity: str) -> StaticArtifact | None:
        """Return one artifact, or None."""
        return next(self._read(row for row in self._rows if row["artifact"].get("id") == identity), None)

    def for_archs(self, *archs: str | None) -> Iterator[StaticArtifact]:
        """Yield the artifacts for these archs, the latest first."""
        return self._read(row for row in self._latest if _arch(row) in archs)

    def for_others(self, arch: str | None) -> Iterator[StaticArtifact]:
        """Yield the artifacts for other archs than this one, the latest first."""
        return self._read(row for row in self._latest if _arch(row) != arch)

    @cached_property
    def packed(self) -> frozenset[str]:
        """The sha256s of the blobs that are there packed, too."""
        listed = (row.get("packed") for row in self._rows)
        return frozenset(sha for each in listed if isinstance(each, list) for sha in each if isinstance(sha, str))

    @cached_property
    def _latest(self) -> list[dict[str, Any]]:
        return sorted(self._rows, key=lambda row: str(row["artifact"].get("published_at")), reverse=True)

    def _read(self, rows: Iterable[dict[str, Any]]) -> Iterator[StaticArtifact]:
        for row in rows:
            with suppress(MxrError):
                found = codec.decode(StaticArtifact, row, lenient=True)
                artifact = found.artifact
                if artifact.key.model == self.head.model and artifact.sound and artifact.manifest:
                    newer = self.recalls.get(artifact.id)
                    yield found if newer is None else replace(found, artifact=replace(artifact, recall=newer))


def _arch(row: Mapping[str, Any]) -> object:
    key = row["artifact"].get("key")
    return key.get("arch") if isinstance(key, dict) else ""


class StaticClient(Client):
    """The static form of a registry at one URL. Can be used from several threads."""

    seen: Callable[[ModelIndex], tuple[float, int]] | None = None
    """Takes an index. Returns the seconds since this host saw a newer one of its model, 0 if none, and the highest
    number of a recall list that it saw."""

    # --- requests ---

    def resolve(self, request: Request, *, name: str = "", hurry: bool = False) -> artifact_protocol.ResolveReply:  # noqa: ARG002
        """Return the artifact for a request, as a registry would choose it. Raises `NoSuchArtifactError`."""
        index = self._index_of(request.key.model)
        rows = {each.artifact.id: each.artifact for each in index.with_digests(request.related)}
        candidates = [
            artifact.candidate(related)
            for artifact in rows.values()
            if artifact.recall is None and artifact.state != LOST
            for related in [request.related.get(artifact.digest)]
            if related is not None
        ]
        chosen = choose_candidate(request.constraints, candidates, serve=index.head.serve)
        if chosen is None:
            raise self._missed(misses.miss_error(request, _missed(index, request.key.arch), _context(index)))
        artifact = rows[chosen[0].id]
        return artifact_protocol.ResolveReply(artifact, chosen[1], {}, _etag(artifact), index.head.recalls)

    def candidates(self, partial: PartialRequest, *, name: str = "", hurry: bool = False) -> Candidates:  # noqa: ARG002
        """Return the ways to complete a partial request. Raises `NoSuchArtifactError` if there is none."""
        index = self._index_of(partial.model)
        read = list(islice(index.for_archs(partial.arch, FAMILY_OF.get(partial.arch or "")), MAX_READ + 1))
        usable = (each.artifact for each in read[:MAX_READ] if each.artifact.recall is None)
        programs = ((each.key, each.candidate()) for each in usable if each.state != LOST)
        found = choice_rules.choices(partial, programs, serve=index.head.serve)
        if not found:
            raise self._missed(misses.partial_miss_error(partial, _missed(index, partial.arch), _context(index)))
        varies = choice_rules.varying(found) if len(found) > 1 else {}
        return Candidates(tuple(found[:MAX_LISTED]), len(found), len(read) > MAX_READ, varies)

    def confirm(self, identity: str, etag: str) -> tuple[artifact_protocol.Artifact | None, str]:
        """Return one artifact if its entity tag is not `etag` any more, else None, and its entity tag now."""
        row = self._row(identity)
        tag = _etag(row.artifact)
        return None if tag == etag else row.artifact, tag

    def artifact(self, identity: str) -> artifact_protocol.Artifact:
        """Return one artifact with what is said of its compile, by its whole id. Raises `NotFoundError`."""
        row = self._row(identity).artifact
        whole = self._document(artifact_protocol.Artifact, static_form.artifact_name(row.id))
        return whole if whole.id == row.id and whole.sound else row

    def model(self, model: str) -> Model:
        """Return what is said of a model. Raises `NoSuchModelError`."""
        claim = self._index_of(model).head.claim
        if claim is None:
            raise NoSuchModelError(f"The registry at {self.url} does not know the model {model}.")
        return Model(model, claim.name, claim.inputs, claimed=True)

    def model_identities(self, prefix: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: the files cannot be searched."""
        return ()

    def defaults(self) -> artifact_protocol.NamespaceDefaults:
        """There are none, and nothing is asked for them. Raises `UnreachableError`: a request does without them."""
        raise UnreachableError(f"The registry at {self.url} tells no request defaults.")

    def report_uses(self, some: tuple[artifact_protocol.Use, ...]) -> artifact_protocol.UsesAccepted:  # noqa: ARG002
        """Report nothing: nobody counts."""
        return artifact_protocol.UsesAccepted()

    def is_there(self) -> bool:
        """Whether there is a static registry at the URL. Asks once, and raises nothing."""
        with suppress(MxrError), self._opened(ROOT, self._settings.timeout) as chunks:
            data = b""
            while len(data) <= MAX_ROOT and (chunk := next(chunks, b"")):
                data += chunk
            self._decoded(StaticRegistry, self._parsed(data, ROOT), ROOT)
            return True
        return False

    # --- what was signed ---

    def statements(self, identity: str) -> Statements:
        """Return what was signed of an artifact."""
        from mxr.protocol.statements import Statements

        row = self._row(identity)
        if row.statements is None or not ID.fullmatch(row.statements):
            return Statements(row.artifact.id, ())
        return self._immutable(Statements, "statements", row.statements)

    def keys(self) -> RegistryKeys:
        """Return the keys with which the registry signs, and signed."""
        from mxr.protocol.statements import RegistryKeys

        root = self._root()
        return RegistryKeys(root.registry, root.keys)

    def recall_list(self) -> RecallList:
        """Return what is recalled in the namespace."""
        from mxr.protocol.recalls import RecallList

        root = self._root()
        if root.recall_list is None or not ID.fullmatch(root.recall_list):
            return RecallList(root.namespace, 0, ())
        return self._immutable(RecallList, "recalls", root.recall_list)

    # --- bytes ---

    @contextmanager
    def blob(
        self,
        sha: str,
        size: int | None = None,
        *,
        direct: bool = True,
        start: int = 0,
    ) -> Iterator[Iterator[bytes]]:
        """Yield an iterator over the chunks of a blob from `start`. Raises `NoSuchBlobError`, `UnreachableError`.

        `direct`: by its packed form, where there is one; what is wrong with that is no reason to fail.
        """
        seconds = self._settings.timeout + (86_400.0 if size is None else size / MIN_RATE)
        zstd = direct and not start and packed.available() and any(sha in each.packed for each in self._known.values())
        with ExitStack() as stack:
            chunks = None
            if zstd:
                with suppress(NotFoundError):
                    smaller = self._opened(static_form.blob_name(sha, packed=True), seconds)
                    chunks = self._unpacked(stack.enter_context(smaller), size)
            try:
                yield chunks or stack.enter_context(self._opened(static_form.blob_name(sha), seconds, start))
            except NotFoundError:
                raise NoSuchBlobError(
                    f"The registry at {self.url} lacks blob {sha}.", hint="Write it again: `mxr export --static`."
                ) from None

    # --- documents ---

    def _row(self, identity: str) -> StaticArtifact:
        if not ID.fullmatch(identity):
            raise UsageError(
                f"{identity[:80]!r} is not the whole id of an artifact.",
                hint=f"Give all 64 digits: the registry at {self.url} is files, which are not searched.",
            )
        for index in self._known.values():
            if (row := index.with_id(identity)) is not None:
                return row
        try:
            name = static_form.artifact_name(identity)
            key = self._parsed(self._whole(name), name).get("key")
            model = key.get("model") if isinstance(key, dict) else None
        except NotFoundError:
            model = None
        known = isinstance(model, str) and MODEL.fullmatch(model)
        if known and (row := self._index_of(str(model)).with_id(identity)) is not None:
            return row
        self._root()
        raise NotFoundError(f"The registry at {self.url} has no artifact {identity[:12]}.")

    @property
    def _known(self) -> dict[str, ReadIndex]:
        """The indexes that this process read a moment ago, by model: one command has several clients."""
        moment, found = _READ.get(self.url, (0.0, {}))
        if time.monotonic() - moment > READ_SECONDS:
            found = {}
            _READ[self.url] = (time.monotonic(), found)
        return found

    def _index_of(self, model: str) -> ReadIndex:
        """Return the index of a model; one without artifacts where there is none."""
        if (found := self._known.get(model)) is None:
            try:
                data = self._whole(static_form.index_name(model))
            except NotFoundError:
                root = self._root()
                head = ModelIndex(root.registry, root.namespace, model, "any", root.recalls, root.written_at, None, ())
                found = ReadIndex(head, ())
            else:
                found = self._read_index(model, data)
                found.recalls = self._newer_recalls(found.head)
            self._known[model] = found
        self.identity, self.recalls = found.head.registry, found.head.recalls
        return found

    def _newer_recalls(self, head: ModelIndex) -> dict[str, Recall]:
        """Return what was recalled since an index was written, if this host has heard that something was.

        Raises `InvalidReplyError` for an index that a newer one replaced more than `max_age` ago, and where nothing
        tells what was recalled.
        """
        age, number = self.seen(head) if self.seen is not None else (0.0, 0)
        old = age > self._settings.max_age
        if not old and head.recalls < number:
            root = self._root()
            old = root.recalls < number
        if old:
            raise InvalidReplyError(
                f"The index of this model at {self.url}, written {codec.time_text(head.written_at)}, is older than "
                "what this host saw there before.",
                hint="A cache in between keeps pages for too long, or somebody put an old one there. Export it again: "
                "`mxr export --static`. Where it is meant, as after a restore, delete the cache (`mxr cache dir`).",
            )
        return {each.id: each.recall for each in self.recall_list().items} if head.recalls < number else {}

    def _read_index(self, model: str, data: bytes) -> ReadIndex:
        name = static_form.index_name(model)
        document = self._parsed(data, name)
        rows = document.get("artifacts")
        head = self._decoded(ModelIndex, {**document, "artifacts": []}, name)
        if head.model != model or not isinstance(rows, list) or len(rows) > MAX_ARTIFACTS:
            raise InvalidReplyError(f"{name} of the registry at {self.url} is not the index of this model.")
        return ReadIndex(head, rows)

    def _root(self) -> StaticRegistry:
        """Return what the folder is, read each time. Raises `NotARegistryError`."""
        try:
            found = self._document(StaticRegistry, ROOT)
        except NotFoundError:
            raise NotARegistryError(
                f"There is no {ROOT} at {self.url}, so it is no static registry.",
                hint="Use the URL of the folder that `mxr export --static` wrote.",
            ) from None
        self.identity, self.recalls = found.registry, found.recalls
        return found

    def _document(self, kind: type[T], name: str) -> T:
        return self._decoded(kind, self._parsed(self._whole(name), name), name)

    def _immutable(self, kind: type[T], folder: str, sha256: str) -> T:
        name = f"{folder}/{sha256}.json"
        data = self._whole(name)
        if sha256_hex(data) != sha256:
            raise InvalidReplyError(f"{name} of the registry at {self.url} does not match the sha256 in its name.")
        return self._decoded(kind, self._parsed(data, name), name)

    def _parsed(self, data: bytes, name: str) -> dict[str, Any]:
        try:
            found = codec.parse(data, name)
        except MxrError as problem:
            raise self._invalid(name, problem) from None
        if not isinstance(found, dict):
            raise self._invalid(name, codec.refuse("", "an object", found))
        return found

    def _decoded(self, kind: type[T], document: Any, name: str) -> T:
        try:
            return codec.decode(kind, document, lenient=True)
        except MxrError as problem:
            raise self._invalid(name, problem) from None

    def _invalid(self, name: str, problem: MxrError) -> InvalidReplyError:
        return InvalidReplyError(
            f"{name} of the registry at {self.url} is invalid: {problem.message}",
            hint="Something else may answer there, such as a page of the web server. Write it again: `mxr export "
            "--static`.",
        )

    def _missed(self, error: NoSuchArtifactError) -> NoSuchArtifactError:
        error.hint = f"The registry at {self.url} takes nothing. {TAKES_NOTHING} Publish the program in the registry "
        error.hint += "that it was exported from, and export it again."
        error.context["static"] = True
        return error

    # --- reading ---

    def _whole(self, name: str) -> bytes:
        """Return a document. Raises `NotFoundError`, `InvalidReplyError`, `UnreachableError`."""

        def attempt() -> bytes:
            parts, size = [], 0
            with self._opened(name, self._settings.timeout) as chunks:
                for chunk in chunks:
                    size += len(chunk)
                    if size > MAX_INDEX:
                        raise InvalidReplyError(
                            f"{name} of the registry at {self.url} exceeds {MAX_INDEX} bytes.",
                            hint="Export fewer artifacts to this place: a LOCK instead of --all.",
                        )
                    parts.append(chunk)
            return b"".join(parts)

        return retry(self._requests, attempt)

    def _opened(self, name: str, seconds: float, start: int = 0) -> AbstractContextManager[Iterator[bytes]]:
        if self.url.startswith(FILE):
            return self._file(name, start)
        return self._object(name, start) if self.url.startswith(BUCKET) else self._page(name, seconds, start)

    @contextmanager
    def _file(self, name: str, start: int) -> Iterator[Iterator[bytes]]:
        path = Path(unquote(urlsplit(self.url).path)) / name
        try:
            with path.open("rb") as file:
                file.seek(start)
                yield iter(lambda: file.read(CHUNK), b"")
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"There is no {name} at {self.url}.") from None
        except OSError as problem:
            raise UnreachableError(f"Cannot read {path}: {problem.strerror}.") from None

    @cached_property
    def _bucket(self) -> UserBucket:
        from mxr.s3.user_bucket import UserBucket

        return UserBucket(self.url, self._settings.timeout)

    @contextmanager
    def _object(self, name: str, start: int) -> Iterator[Iterator[bytes]]:
        body = self._bucket.bucket.get(self._bucket.key(name), start)
        if body is None:
            raise NotFoundError(f"There is no {name} at {self.url}.")
        try:
            yield iter(lambda: body.read(CHUNK), b"")
        finally:
            body.close()

    @contextmanager
    def _page(self, name: str, seconds: float, start: int) -> Iterator[Iterator[bytes]]:
        base = self._settings.hub.base(self.url) if self.url.startswith(HUB) else self.url
        reply = self._get(f"{base}/{name}", {"Range": f"bytes={start}-"} if start else {})
        with returned_connection(reply), shut_down_after(seconds, reply.shutdown):
            # A server may send all of it all the same.
            yield _skip(self._chunks(reply), start if reply.status == OK else 0)

    def _get(self, url: str, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        """GET a file, by a few redirects if need be, and never from https to http.

        No token is sent anywhere, but that of the hub to the hub.
        """
        import urllib3

        from .connection_errors import connection_error

        timeout, hub = self._settings.timeout, self.url.startswith(HUB)
        for _ in range(MAX_REDIRECTS + 1):
            try:
                reply = self._plain_pool.request(
                    "GET",
                    url,
                    headers={**PLAIN, **headers, **(self._settings.hub.headers(url) if hub else {})},
                    retries=False,
                    redirect=False,
                    timeout=urllib3.Timeout(connect=min(CONNECT, timeout), read=timeout),
                    preload_content=False,
                    decode_content=False,
                )
            except (urllib3.exceptions.HTTPError, OSError) as problem:
                raise connection_error(self.url, problem, self._proxy) from problem
            if reply.status in (200, 206):
                return reply
            with returned_connection(reply):
                following = reply.get_redirect_location()
                if not following:
                    raise self._status_error(reply, url)
            before, url = url, urljoin(url, following)
            if not url.startswith(("https://", "http://")) or (before.startswith("https:") and url.startswith("http:")):
                raise NotARegistryError(f"{before} redirects to {url[:200]}, which is not followed.")
        raise NotARegistryError(f"{self.url} redirects more than {MAX_REDIRECTS} times.")

    def _status_error(self, reply: urllib3.BaseHTTPResponse, url: str) -> MxrError:
        status = reply.status
        if status in (404, 410):
            return NotFoundError(f"There is no {url}.")
        if status == 429 or status >= 500:
            problem = TemporaryError(f"The web server at {self.url} answers {status}.")
            problem.retry_after = _retry_after(reply)
            return problem
        if status in (401, 403) and self.url.startswith(HUB):
            return UnauthenticatedError(
                f"The hub does not give {self.url} to this user ({status}).",
                hint="Check the name, or set HF_TOKEN to a token that may read the repository.",
            )
        if status in (401, 403):
            return NotFoundError(f"The web server at {self.url} does not give {url} to everybody ({status}).")
        return NotARegistryError(f"The web server at {self.url} answers {status}.")

    # --- everything else ---

    def _reply(self, *_: Any, **__: Any) -> NoReturn:
        raise self.takes_nothing()

    def with_timeout(self, seconds: float) -> StaticClient:
        """Return a client with a timeout of at most `seconds` without a byte received."""
        found = StaticClient(replace(self._settings, timeout=min(self._settings.timeout, seconds)), connections=1)
        found.seen = self.seen
        return found


def _etag(artifact: artifact_protocol.Artifact) -> str:
    return f'"{sha256_hex(codec.canonical(codec.encode(artifact)).encode())[:32]}"'


def _missed(index: ReadIndex, arch: str | None) -> Iterator[MissedArtifact]:
    for row in islice(chain(index.for_archs(arch), index.for_others(arch)), MAX_COMPARED):
        each = row.artifact
        recall = None if each.recall is None else each.recall.word
        yield MissedArtifact(each.key, each.candidate(), each.state == LOST, recall)


def _context(index: ReadIndex) -> MissContext:
    head = index.head
    return MissContext(head.namespace, head.serve, head.claim is not None, "export it again after a promotion")
